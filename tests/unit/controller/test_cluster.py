"""Brokers and leaders: what the controller decides, and what it refuses."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from ringlog.controller import brokers, isr
from ringlog.controller.active import ActiveController
from ringlog.controller.commands import alter_topic, create_topic, topic_metadata
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import (
    Broker,
    MetadataRecord,
    Partition,
)
from ringlog.errors import InvalidRequest, NotEnoughBrokers, PartitionBusy, StaleBroker
from ringlog.limits import BROKER_LOST_MS, BROKER_SESSION_MS
from ringlog.model import NO_LEADER
from ringlog.net.cluster_messages import (
    AlterIsrRequest,
    BrokerHeartbeatReply,
    BrokerHeartbeatRequest,
    IsrChange,
    RegisterBrokerRequest,
)
from ringlog.net.messages import AlterTopicRequest, CreateTopicRequest, decode_body
from tests.support.controller_world import alter, cluster, done, everything, join, members, replay


def test_clients_are_told_leaders_replicas_and_lanes_that_differ_between_nodes():
    image = cluster(nodes=3, partitions=12, factor=2)
    told = topic_metadata(image, image.topics["t"]).partitions
    for place in told:
        known = image.partitions[place.partition]
        assert (place.leader_node, place.leader_epoch) == (known.leader, known.leader_epoch)
        assert (tuple(place.replicas), tuple(place.isr)) == (known.replicas, known.isr)
    served_by = {
        (place.lane, place.leader_node, image.partitions[place.partition].shards[0]) for place in told
    }
    assert len({lane for lane, _, _ in served_by}) == len(served_by) >= 3, "a lane per node and shard"


def test_replicas_leaders_and_shards_are_spread_evenly():
    image = cluster(nodes=5, partitions=50, factor=3)
    replicas = Counter(node_id for partition in everything(image) for node_id in partition.replicas)
    assert set(replicas.values()) == {30}
    assert set(Counter(partition.leader for partition in everything(image)).values()) == {10}
    shards = Counter((n, s) for p in everything(image) for n, s in zip(p.replicas, p.shards, strict=True))
    assert set(shards.values()) == {15}
    leading = Counter((partition.leader, partition.shards[0]) for partition in everything(image))
    assert set(leading.values()) == {5}, (
        "leaders have the more work: they are spread over shards on their own"
    )


def test_no_two_replicas_share_a_rack_while_there_are_enough():
    image = cluster(nodes=6, partitions=30, factor=3, racks=3)
    for partition in everything(image):
        assert len({image.brokers[node_id].rack for node_id in partition.replicas}) == 3
    two_racks = cluster(nodes=6, partitions=10, factor=3, racks=2)
    for partition in everything(two_racks):
        assert len({two_racks.brokers[node_id].rack for node_id in partition.replicas}) == 2


def test_a_topic_waits_for_enough_nodes():
    with pytest.raises(NotEnoughBrokers) as refused:
        cluster(nodes=2, factor=3)
    assert refused.value.retriable


def test_a_cluster_without_nodes_makes_no_topics():
    with pytest.raises(NotEnoughBrokers):
        cluster(nodes=0, factor=1)
    with pytest.raises(NotEnoughBrokers):
        cluster(nodes=0, factor=-1)


def test_more_in_sync_replicas_than_replicas_are_refused():
    image = cluster()
    request = CreateTopicRequest("u", 1, 2, {"min.insync.replicas": "3"})
    with pytest.raises(InvalidRequest, match="could ever be written"):
        create_topic(image, request, shards=1, default_partitions=1, nodes=6)
    with pytest.raises(InvalidRequest, match="could ever be written"):
        alter_topic(image, AlterTopicRequest("t", {"min.insync.replicas": "4"}))
    alter_topic(image, AlterTopicRequest("t", {"min.insync.replicas": "3"}))


def test_a_topic_with_more_replicas_than_the_cluster_has_nodes_waits_for_nobody():
    image = cluster()
    with pytest.raises(InvalidRequest, match="this cluster has 3 nodes"):
        create_topic(image, CreateTopicRequest("u", 1, 4), shards=1, default_partitions=1, nodes=3)


def test_a_node_that_is_absent_for_long_gets_replicas_that_are_not_in_sync_yet():
    image = cluster()
    replay(image, brokers.fence(image, 3))

    def create(name: str, factor: int, config: dict[str, str], *absent: int) -> list[Partition]:
        request = CreateTopicRequest(name, 4, factor, config)
        done(image, create_topic(image, request, shards=1, default_partitions=1, nodes=3, absent=absent))
        return [image.partitions[number] for number in image.topics[name].partitions]

    two = {"min.insync.replicas": "2"}
    with pytest.raises(NotEnoughBrokers):
        create("early", 3, two)
    for partition in create("late", 3, two, 3):
        assert set(partition.replicas) == {1, 2, 3} and set(partition.isr) == {1, 2}
        assert partition.leader == partition.replicas[0] != 3
    for partition in create("small", 2, two, 3):
        assert set(partition.replicas) == {1, 2}, "there are enough without it"
    with pytest.raises(NotEnoughBrokers, match="needs 3 nodes that are ready"):
        create("strict", 3, {"min.insync.replicas": "3"}, 3)


def test_a_controller_that_stood_still_does_not_take_the_others_for_silent():
    image = cluster()
    active = ActiveController(image, (), session_ms=1_000, now_ms=0)
    active.due(0)
    assert active.due(1_500) == [], "nobody could be heard"
    fenced: list[MetadataRecord] = []
    for now_ms in range(1_500, 3_000, 100):
        fenced += active.due(now_ms)
    assert any(isinstance(record, Broker) and record.fenced for record in fenced), "but then they are silent"


def test_the_default_is_three_replicas_or_as_many_as_the_cluster_has_nodes():
    image = cluster()
    for nodes, expected in ((2, 2), (3, 3), (6, 3)):
        request = CreateTopicRequest(f"u{nodes}", 1, -1)
        done(image, create_topic(image, request, shards=1, default_partitions=1, nodes=nodes))
        (partition,) = image.topics[f"u{nodes}"].partitions
        assert len(image.partitions[partition].replicas) == expected


def test_a_silent_leader_is_followed_by_an_in_sync_replica():
    image = cluster()
    before = {partition.partition: partition for partition in everything(image)}
    replay(image, brokers.fence(image, 1))
    for partition in everything(image):
        old = before[partition.partition]
        assert 1 not in partition.isr and partition.leader in partition.isr
        assert partition.partition_epoch == old.partition_epoch + 1
        assert partition.leader_epoch == old.leader_epoch + (old.leader == 1)
    assert brokers.fence(image, 1) == [], "once is enough"


def test_the_last_in_sync_replica_is_waited_for():
    image = cluster()
    for node_id in (1, 2, 3):
        replay(image, brokers.fence(image, node_id))
    for partition in everything(image):
        assert partition.isr == (3,) and partition.leader == NO_LEADER
    join(image, 1, "b")
    assert all(partition.leader == NO_LEADER for partition in everything(image)), "1 does not have everything"
    join(image, 3, "b")
    assert all(partition.leader == 3 for partition in everything(image))


def test_a_partition_stops_when_the_last_in_sync_replica_lost_its_disk():
    image = cluster()
    for node_id in (1, 2, 3):
        replay(image, brokers.fence(image, node_id))
    join(image, 3, "b", disk="another")
    join(image, 1, "b")
    for partition in everything(image):
        assert partition.isr == () and partition.leader == NO_LEADER


def test_a_registration_sent_twice_is_one_and_an_earlier_life_is_not_heard():
    image = cluster()
    request = RegisterBrokerRequest(1, "1a", "d1", [], "")
    again = brokers.register(image, request)
    assert again.records == []
    old_epoch = image.brokers[1].broker_epoch
    new_epoch = join(image, 1, "b")
    assert new_epoch > old_epoch
    with pytest.raises(StaleBroker):
        brokers.heartbeat(image, BrokerHeartbeatRequest(1, old_epoch, 9), committed_version=9)
    with pytest.raises(StaleBroker):
        isr.alter_isr(image, AlterIsrRequest(1, old_epoch, []))


def test_a_node_that_is_behind_stays_fenced():
    image = cluster()
    epoch = done(
        image, brokers.register(image, RegisterBrokerRequest(1, "1b", "d1", [], "", shards=2))
    ).broker_epoch
    behind = brokers.heartbeat(image, BrokerHeartbeatRequest(1, epoch, 4), committed_version=5)
    assert behind.records == [] and behind.reply(image).fenced


def test_a_node_that_leaves_in_order_hands_over_first():
    image = cluster()
    epoch = image.brokers[2].broker_epoch
    leave = BrokerHeartbeatRequest(2, epoch, 9, want_stop=True)
    reply = done(image, brokers.heartbeat(image, leave, committed_version=9))
    assert reply == BrokerHeartbeatReply(fenced=False, may_stop=True)
    assert all(2 not in partition.isr and partition.leader in (1, 3) for partition in everything(image))
    with pytest.raises(NotEnoughBrokers):
        create_topic(image, CreateTopicRequest("u", 1, 3), shards=1, default_partitions=1, nodes=6)


def test_a_node_that_leaves_hands_over_to_who_comes_into_sync_after_it_asked():
    image = cluster(partitions=1)
    (before,) = everything(image)
    others = [node_id for node_id in before.replicas if node_id != before.leader]
    for node_id in others:
        replay(image, brokers.fence(image, node_id))
    leave = BrokerHeartbeatRequest(
        before.leader, image.brokers[before.leader].broker_epoch, 9, want_stop=True
    )
    done(image, brokers.heartbeat(image, leave, committed_version=9))
    assert everything(image)[0].leader == before.leader, "nobody could take over"
    for node_id in others:
        join(image, node_id, "b")
    (alone,) = everything(image)
    grown = IsrChange(
        alone.partition, alone.leader_epoch, alone.partition_epoch, members(image, *alone.replicas)
    )
    assert alter(image, before.leader, grown).partitions[0].error == 0
    outcome = brokers.heartbeat(image, leave, committed_version=9)
    assert done(image, outcome) == BrokerHeartbeatReply(fenced=False, may_stop=True)
    (after,) = everything(image)
    assert after.leader in others and before.leader not in after.isr
    assert brokers.heartbeat(image, leave, committed_version=9).records == [], "once is enough"


def test_a_heartbeat_of_an_older_version_says_nothing_of_its_shards():
    old = msgspec.msgpack.encode((2, 5, 9, False, []))
    assert decode_body(old, BrokerHeartbeatRequest) == BrokerHeartbeatRequest(2, 5, 9)


def test_a_node_with_fewer_shards_serves_everything_all_the_same():
    image = cluster(partitions=12)
    join(image, 1, "b", shards=1)
    assert all(partition.shard_on(1) == 0 for partition in everything(image))
    assert {partition.shard_on(2) for partition in everything(image)} == {0, 1}


def test_a_partition_moves_when_its_new_replicas_are_in_sync():
    image = cluster(nodes=5, partitions=1, factor=3)
    (before,) = everything(image)
    target = (5, 4, before.leader)
    replay(image, isr.reassign(image, before.partition, target))
    (moving,) = everything(image)
    assert set(moving.replicas) == set(before.replicas) | set(target) and moving.leader == before.leader
    alter(
        image,
        moving.leader,
        IsrChange(
            moving.partition, moving.leader_epoch, moving.partition_epoch, members(image, *moving.replicas)
        ),
    )
    (after,) = everything(image)
    assert (
        after.replicas == target and set(after.isr) == set(target) and not after.adding and not after.removing
    )
    assert len(after.shards) == 3


def test_a_move_can_be_cancelled():
    image = cluster(nodes=5, partitions=1, factor=3)
    (before,) = everything(image)
    others = tuple(node_id for node_id in range(1, 6) if node_id not in before.replicas)
    replay(image, isr.reassign(image, before.partition, others))
    replay(image, isr.cancel_reassignment(image, before.partition))
    (after,) = everything(image)
    assert set(after.replicas) == set(before.replicas) and after.isr == before.isr
    assert isr.cancel_reassignment(image, before.partition) == []


def test_a_move_cannot_be_cancelled_when_only_new_replicas_are_in_sync():
    partition = Partition(1, 1, 0, 0, 0, 0, (4, 1), (0, 0), 4, (4,), adding=(4,), removing=(1,))
    image = MetadataImage()
    image.partitions[1] = partition
    with pytest.raises(PartitionBusy):
        isr.cancel_reassignment(image, 1)


def test_only_who_is_silent_for_a_session_is_fenced_and_a_new_controller_waits_one():
    image = cluster()
    liveness = brokers.Liveness(session_ms=100)
    assert liveness.silent(image, 1e9) == [], "not in office"
    liveness.take_office(1000)
    assert liveness.silent(image, 1100) == []
    liveness.heard(2, 1090)
    assert liveness.silent(image, 1101) == [1, 3]
    liveness.take_office(2000)
    assert liveness.silent(image, 2050) == []
    liveness.leave_office()
    assert liveness.silent(image, 1e9) == []


def test_a_node_whose_connection_broke_is_fenced_sooner_unless_it_is_heard_again():
    image = cluster()
    liveness = brokers.Liveness(session_ms=BROKER_SESSION_MS)
    liveness.take_office(0)
    for node_id in (1, 2, 3):
        liveness.heard(node_id, 10_000)
    liveness.lost(1, 10_100)
    liveness.lost(2, 10_100)
    assert liveness.silent(image, 10_100 + BROKER_LOST_MS) == [], (
        "its controller process may be back any moment"
    )
    liveness.heard(2, 10_200)
    assert liveness.silent(image, 10_101 + BROKER_LOST_MS) == [1]
    assert liveness.silent(image, 10_001 + BROKER_SESSION_MS) == [1, 3]


def test_a_node_that_is_certainly_dead_is_fenced_at_once_until_it_is_heard():
    image = cluster()
    liveness = brokers.Liveness(session_ms=BROKER_SESSION_MS)
    liveness.take_office(0)
    liveness.dead(2)
    assert liveness.silent(image, 0) == [2]
    liveness.heard(2, 1)
    assert liveness.silent(image, 2) == []


def test_an_image_is_made_again_from_its_own_records():
    image = cluster(racks=3)
    replay(image, brokers.fence(image, 2))
    again = MetadataImage()
    replay(again, image.records())
    assert again.partitions == image.partitions and again.brokers == image.brokers
    assert isinstance(again.brokers[1], Broker) and again.next_broker_epoch == image.next_broker_epoch
