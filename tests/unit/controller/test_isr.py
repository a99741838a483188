"""In-sync replicas: which changes a controller makes, and which it refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ringlog.controller import brokers, leaders
from ringlog.net.cluster_messages import (
    BrokerHeartbeatRequest,
    IsrChange,
    RegisterBrokerRequest,
)
from tests.support.controller_world import alter, cluster, done, everything, join, led_by, members, replay


def test_of_two_changes_judged_by_the_same_state_one_is_made():
    image = cluster()
    mine = led_by(image, 2)
    first = IsrChange(mine.partition, mine.leader_epoch, mine.partition_epoch, members(image, 2, 3))
    second = IsrChange(mine.partition, mine.leader_epoch, mine.partition_epoch, members(image, 1, 2))
    assert alter(image, 2, first).partitions[0].error == 0
    refused = alter(image, 2, second).partitions[0]
    assert refused.error != 0 and set(refused.isr) == {2, 3}
    assert refused.partition_epoch == mine.partition_epoch + 1


@pytest.mark.parametrize(
    "wrong", [{"leader_epoch": 7}, {"partition_epoch": 7}, {"isr": [1, 3]}, {"isr": [2, 2]}, {"isr": [2, 9]}]
)
def test_a_change_that_does_not_fit_changes_nothing(wrong: dict[str, Any]):
    image = cluster()
    mine = led_by(image, 2)
    fits = {
        "leader_epoch": mine.leader_epoch,
        "partition_epoch": mine.partition_epoch,
        "isr": members(image, 2, 3),
    }
    if "isr" in wrong:
        wrong = {"isr": members(image, *wrong["isr"])}
    reply = alter(image, 2, IsrChange(mine.partition, **(fits | wrong)))
    assert reply.partitions[0].error != 0
    assert image.partitions[mine.partition] == mine


def test_a_leader_that_may_lack_what_it_held_leads_no_more():
    image = cluster()
    mine = led_by(image, 2)
    change = IsrChange(
        mine.partition, mine.leader_epoch, mine.partition_epoch, members(image, 2), renews=True
    )
    state = alter(image, 2, change).partitions[0]
    after = image.partitions[mine.partition]
    others = tuple(member for member in mine.isr if member != 2)
    assert (state.error, after.leader in others, after.isr) == (0, True, others)
    assert (after.leader_epoch, after.partition_epoch) == (mine.leader_epoch + 1, mine.partition_epoch + 1)
    assert alter(image, 2, change).partitions[0].error != 0, "a copy of it"
    assert image.partitions[mine.partition] == after


def test_a_follower_that_may_lack_what_it_held_is_in_sync_no_more():
    image = cluster()
    mine = led_by(image, 2)
    epochs = mine.leader_epoch, mine.partition_epoch
    assert alter(image, 3, IsrChange(mine.partition, *epochs, [], renews=True)).partitions[0].error == 0
    after = image.partitions[mine.partition]
    assert (after.leader, set(after.isr)) == (2, {1, 2})
    assert (after.leader_epoch, after.partition_epoch) == (mine.leader_epoch + 1, mine.partition_epoch + 1), (
        "what it said that it held, in the old epoch, counts no more"
    )


def test_who_may_lack_what_it_held_and_is_the_last_in_sync_leads_in_a_new_epoch():
    image = cluster()
    for node_id in (1, 3):
        replay(image, brokers.fence(image, node_id))
    mine = led_by(image, 2)
    assert mine.isr == (2,)
    change = IsrChange(mine.partition, mine.leader_epoch, mine.partition_epoch, [], renews=True)
    assert alter(image, 2, change).partitions[0].error == 0
    after = image.partitions[mine.partition]
    assert (after.leader, after.isr) == (2, (2,))
    assert (after.leader_epoch, after.partition_epoch) == (mine.leader_epoch + 1, mine.partition_epoch + 1)


def test_rather_one_that_leaves_leads_than_one_that_may_lack_what_it_held():
    image = cluster()
    replay(image, brokers.fence(image, 3))
    mine = led_by(image, 2)
    image.brokers[1] = msgspec.structs.replace(image.brokers[1], leaving=True)
    change = IsrChange(mine.partition, mine.leader_epoch, mine.partition_epoch, [], renews=True)
    assert alter(image, 2, change).partitions[0].error == 0
    after = image.partitions[mine.partition]
    assert (after.leader, after.isr) == (1, (1,))


def test_a_replica_that_restarted_since_it_fetched_does_not_come_into_sync():
    image = cluster()
    mine = led_by(image, 2)
    former_life = members(image, 2, 3)
    join(image, 3, "b")
    now = image.partitions[mine.partition]
    change = IsrChange(now.partition, now.leader_epoch, now.partition_epoch, former_life)
    assert alter(image, 2, change).partitions[0].error != 0


def test_a_crash_is_forgiven_where_acks_waited_for_the_disk():
    for flush, in_sync in (("ack", (3,)), ("os", ())):
        image = cluster()
        image.topics["t"].config["flush"] = flush
        for node_id in (1, 2, 3):
            replay(image, brokers.fence(image, node_id))
        join(image, 3, "b")
        assert all(partition.isr == in_sync for partition in everything(image))


def test_a_crash_is_forgiven_by_what_the_node_says_of_topics_that_say_nothing():
    for default, of_topic, in_sync in (("os", {}, ()), ("os", {"flush": "ack"}, (3,)), ("ack", {}, (3,))):
        image = cluster()
        image.topics["t"].config.update(of_topic)
        for node_id in (1, 2, 3):
            replay(image, brokers.fence(image, node_id))
        request = RegisterBrokerRequest(3, "3b", "d3", [], "", shards=2, flush=default)
        done(image, brokers.register(image, request))
        assert all(partition.isr == in_sync for partition in everything(image)), (default, of_topic)


def test_only_the_leader_may_ask_and_no_fenced_node_comes_into_sync():
    image = cluster()
    mine = led_by(image, 2)
    change = IsrChange(mine.partition, mine.leader_epoch, mine.partition_epoch, members(image, 2, 3))
    assert alter(image, 3, change).partitions[0].error != 0
    replay(image, brokers.fence(image, 1))
    now = image.partitions[mine.partition]
    back = IsrChange(now.partition, now.leader_epoch, now.partition_epoch, members(image, 1, 2, 3))
    alter(image, 2, back)
    assert image.partitions[mine.partition].isr == now.isr
    join(image, 1, "b")
    now = image.partitions[mine.partition]
    back = IsrChange(now.partition, now.leader_epoch, now.partition_epoch, members(image, 1, 2, 3))
    assert alter(image, 2, back).partitions[0].error == 0
    assert replay(image, leaders.preferred(image)) is None
    assert all(
        partition.leader == partition.replicas[0] or 1 not in partition.isr for partition in everything(image)
    )


def test_a_proposal_that_found_a_node_fenced_is_over_also_when_the_node_is_back():
    image = cluster()
    mine = led_by(image, 2)
    replay(image, brokers.fence(image, 1))
    now = image.partitions[mine.partition]
    back = IsrChange(now.partition, now.leader_epoch, now.partition_epoch, members(image, 1, 2, 3))
    alter(image, 2, back)
    epoch, version = image.brokers[1].broker_epoch, image.version
    outcome = brokers.heartbeat(image, BrokerHeartbeatRequest(1, epoch, version), committed_version=version)
    replay(image, outcome.records)
    assert not image.brokers[1].fenced
    assert alter(image, 2, back).partitions[0].error != 0, "a copy of it"
    assert 1 not in image.partitions[mine.partition].isr
