"""Unclean elections: only where a topic allows them, only as the last resort, and never without a word."""

from __future__ import annotations

import msgspec
import pytest

from ringlog.controller import brokers
from ringlog.controller.active import ActiveController
from ringlog.controller.commands import alter_topic, topic_metadata
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Broker, MetadataRecord, Partition, Topic
from ringlog.controller.topic_config import UNCLEAN_ELECTION, check_config
from ringlog.controller.unclean import UncleanElections
from ringlog.errors import InvalidRequest
from ringlog.limits import BROKER_ABSENT_MS
from ringlog.model import NO_LEADER
from ringlog.net.cluster_messages import BrokerHeartbeatRequest
from ringlog.net.messages import AlterTopicRequest

ALLOWED = {UNCLEAN_ELECTION: "true"}


def image_of(config: dict[str, str], *, alive: tuple[int, ...] = (2, 3), **facts: object) -> MetadataImage:
    """Node 1 was the last one in sync, and is gone."""
    image = MetadataImage()
    for node_id in (1, 2, 3):
        image.replay(Broker(node_id, node_id, "life", "disk", (), "", fenced=node_id not in alive))
    image.replay(Topic(1, str(facts.pop("topic", "t")), config))
    known = {"replicas": (1, 2, 3), "shards": (0, 0, 0), "leader": NO_LEADER, "isr": (1,), **facts}
    image.replay(msgspec.structs.replace(Partition(1, 1, 0, 0, 7, 20), **known))
    return image


def after_waiting(image: MetadataImage, absent: tuple[int, ...] = (1,), **defaults: str) -> list[Partition]:
    elections = UncleanElections({name.replace("_", "."): value for name, value in defaults.items()})
    assert elections.due(image, absent, 1_000.0) == []
    assert elections.due(image, absent, 1_000.0 + BROKER_ABSENT_MS - 1) == [], "whoever is back by then leads"
    return elections.due(image, absent, 1_000.0 + BROKER_ABSENT_MS)


def test_a_replica_that_is_not_in_sync_leads_where_the_topic_allows_it_and_the_metadata_say_so():
    image = image_of(ALLOWED)
    (elected,) = after_waiting(image)
    assert (elected.leader, elected.isr, elected.leader_epoch, elected.partition_epoch) == (2, (2,), 8, 21)
    assert elected.unclean_epoch == 8
    image.replay(elected)
    assert topic_metadata(image, image.topics["t"]).partitions[0].unclean_epoch == 8


@pytest.mark.parametrize(
    ("config", "facts"),
    [
        ({}, {}),
        ({UNCLEAN_ELECTION: "false"}, {}),
        (ALLOWED, {"alive": ()}),
        (ALLOWED, {"alive": (3,), "adding": (3,)}),
        (ALLOWED, {"leader": 1}),
    ],
    ids=["by default", "where it is off", "if nobody is there", "one that is being made", "if there is one"],
)
def test_nobody_is_elected_otherwise(config, facts):
    assert after_waiting(image_of(config, **facts)) == []


def test_an_in_sync_replica_that_is_heard_of_is_waited_for():
    assert after_waiting(image_of(ALLOWED), absent=()) == []
    assert after_waiting(image_of(ALLOWED, isr=(1, 3), alive=(2,)), absent=(1,)) == []


def test_a_partition_whose_last_disk_is_lost_has_nobody_to_wait_for():
    (elected,) = after_waiting(image_of(ALLOWED, isr=()), absent=())
    assert elected.isr == (2,)


def test_the_defaults_of_the_node_hold_where_a_topic_says_nothing_but_not_for_its_own_topics():
    asked = {"unclean_leader_election_enable": "true"}
    assert len(after_waiting(image_of({}), **asked)) == 1
    assert after_waiting(image_of({UNCLEAN_ELECTION: "false"}), **asked) == []
    assert after_waiting(image_of({}, topic="__offsets"), **asked) == []


def test_the_active_controller_elects_when_the_setting_is_turned_on_and_not_before():
    active = ActiveController(image_of({}), [], session_ms=1_000, now_ms=0.0)

    def elected_at(now_ms: float) -> list[MetadataRecord]:
        for node_id in (2, 3):
            beat = BrokerHeartbeatRequest(node_id, node_id, 9)
            active.judge(beat, committed_version=9, now_ms=now_ms)
        return active.due(now_ms)

    assert not any(elected_at(now_ms) for now_ms in range(100, 10_000, 100))
    active.appended(alter_topic(active.planned, AlterTopicRequest("t", {**ALLOWED})).records)
    ((elected,),) = filter(None, (elected_at(now_ms) for now_ms in range(10_000, 11_000, 100)))
    assert isinstance(elected, Partition) and elected.unclean_epoch == elected.leader_epoch


def test_a_later_clean_election_leaves_the_mark():
    image = image_of(ALLOWED)
    image.replay(*after_waiting(image))
    image.replay(msgspec.structs.replace(image.partitions[1], isr=(2, 3)))
    (_, moved) = brokers.fence(image, 2)
    assert isinstance(moved, Partition)
    assert (moved.leader, moved.leader_epoch, moved.unclean_epoch) == (3, 9, 8)


@pytest.mark.parametrize("value", ["yes", "1", "True", ""])
def test_the_setting_is_true_or_false(value):
    with pytest.raises(InvalidRequest, match=r"unclean\.leader\.election\.enable=.*use true or false"):
        check_config({UNCLEAN_ELECTION: value})
