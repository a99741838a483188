"""Replication in shards: what clients are told of records on three nodes. The test plays network and controller."""

from __future__ import annotations

import pytest

from ringlog.controller.records import TopicConfig
from ringlog.limits import REPLICA_MARK_MS
from ringlog.model import Durability
from ringlog.net.framing import Acks
from ringlog.net.wire_errors import NUMBERS
from ringlog.replication.messages import ReplicaFetch, ReplicaHeld, Want, encode_ask
from ringlog.shard.commands import NodeApi, place
from tests.support.replica_calls import acked, produce, read, replies
from tests.support.shard_cluster import PARTITION, ShardCluster


def test_a_record_is_acknowledged_as_committed_when_all_have_flushed_it():
    cluster = ShardCluster()
    produce(cluster, 1, b"a", b"b")
    cluster.worlds[1].settle()
    assert replies(cluster, 1) == [], "the leader alone has it"
    cluster.run()
    assert acked(cluster, 1) == [0, 1]
    for node in (1, 2, 3):
        assert cluster.values(node) == [b"a", b"b"]


def test_followers_have_the_same_bytes():
    cluster = ShardCluster()
    produce(cluster, 1, b"a", b"b", b"c")
    cluster.run()
    name = cluster.worlds[1].name()
    one, two, three = (
        cluster.worlds[n].store.read_tail(name, 0, 9999, ahead=True).tobytes() for n in (1, 2, 3)
    )
    assert one == two == three != b""


def test_consumers_see_what_is_committed_and_nothing_else():
    cluster = ShardCluster()
    produce(cluster, 1, b"a")
    cluster.run()
    cluster.cut.add(3)
    produce(cluster, 1, b"b")
    cluster.run()
    row = read(cluster, 1)
    assert (row.readable_offset, row.next_offset) == (1, 1)
    cluster.cut.clear()
    cluster.run(20, after_ms=500)
    assert read(cluster, 1).next_offset == 2


def test_followers_hear_of_a_commit_soon_though_nothing_more_is_written():
    cluster = ShardCluster()
    produce(cluster, 1, b"a")
    cluster.run(REPLICA_MARK_MS + 12)
    assert [cluster.worlds[node].log(PARTITION).committed_offset for node in (1, 2, 3)] == [1, 1, 1]


def test_a_leader_that_is_asked_alone_answers_when_it_has_flushed():
    cluster = ShardCluster()
    cluster.cut |= {2, 3}
    produce(cluster, 1, b"a", acks=Acks.LEADER)
    cluster.run()
    (reply,) = replies(cluster, 1)
    assert reply.produced.durability == Durability.FLUSHED


def test_who_does_not_lead_sends_clients_elsewhere():
    cluster = ShardCluster()
    produce(cluster, 2, b"a")
    (reply,) = replies(cluster, 2)
    assert reply.error.code == "NOT_LEADER" and reply.error.retriable
    assert read(cluster, 2).error != 0


def test_a_follower_serves_those_who_ask_for_it_up_to_what_it_knows_to_be_committed():
    cluster = ShardCluster()
    produce(cluster, 1, b"a")
    cluster.run()
    cluster.cut.add(3)
    produce(cluster, 1, b"b")
    cluster.run()
    row = read(cluster, 2, follower=True)
    assert (row.error, row.readable_offset, row.next_offset) == (0, 1, 1), "b is on node 2, and not committed"
    assert read(cluster, 2).error == NUMBERS["NOT_LEADER"], "others are sent to the leader"
    cluster.cut.clear()
    cluster.run(20, after_ms=500)
    produce(cluster, 1, b"c")
    cluster.run()
    assert read(cluster, 2, follower=True).next_offset == 2, "with new data it hears that b is committed"


def test_a_follower_that_waits_for_records_is_told_when_they_are_committed():
    cluster = ShardCluster()
    world = cluster.worlds[3]
    world.fetch((PARTITION, 0), follower=True, wait_ms=60_000)
    produce(cluster, 1, b"a")
    cluster.run()
    produce(cluster, 1, b"b")
    cluster.run()
    _, rows = world.only_fetched()
    assert rows[PARTITION].next_offset == 1


def test_a_follower_that_is_not_in_sync_serves_nobody():
    cluster = ShardCluster()
    produce(cluster, 1, b"a")
    cluster.run()
    produce(cluster, 1, b"b")
    cluster.run()
    cluster.tell(isr=(1, 2))
    assert read(cluster, 3, follower=True).error == NUMBERS["NOT_LEADER"]
    cluster.tell(isr=(1, 2, 3))
    assert read(cluster, 3, follower=True).next_offset == 1


def test_too_few_in_sync_replicas_are_said_so():
    cluster = ShardCluster()
    cluster.tell(isr=(1,))
    produce(cluster, 1, b"a")
    (reply,) = replies(cluster, 1)
    assert reply.error.code == "NOT_ENOUGH_REPLICAS" and reply.error.retriable


def test_a_smaller_min_insync_is_felt_at_once_also_by_who_waits():
    cluster = ShardCluster(min_insync=3)
    produce(cluster, 1, b"a")
    cluster.tell(isr=(1, 2))
    cluster.cut.add(3)
    cluster.run()
    assert replies(cluster, 1) == []
    for world in cluster.worlds.values():
        world.delta(TopicConfig(1, {"min.insync.replicas": "2"}))
    assert acked(cluster, 1) == [0]
    produce(cluster, 1, b"b")
    cluster.run()
    assert acked(cluster, 1) == [1]


def test_a_partition_without_a_leader_says_what_to_do():
    cluster = ShardCluster()
    cluster.tell(leader=-1, leader_epoch=2, isr=(1,))
    produce(cluster, 2, b"a")
    (reply,) = replies(cluster, 2)
    assert reply.error.code == "PARTITION_OFFLINE"


@pytest.mark.parametrize("api", [NodeApi.REPLICA_FETCH, NodeApi.REPLICA_HELD])
def test_a_node_cannot_speak_for_another(api):
    cluster = ShardCluster()
    produce(cluster, 1, b"a")
    cluster.worlds[1].settle()
    want = Want(PARTITION, 1, 1, 1, 1, 100)
    ask = (
        ReplicaFetch(2, 1, 0, 1, 0, 0, 100, [want], [])
        if api == NodeApi.REPLICA_FETCH
        else ReplicaHeld(2, 1, [want])
    )
    cluster.worlds[1].send(api, encode_ask(ask), session=3)
    leader = cluster.worlds[1].core.hosting.hosted[PARTITION].replica.leader
    assert leader.followers[2].held_offset < 1
    cluster.worlds[1].send(api, encode_ask(ask), session=place(2, 5))
    assert leader.followers[2].held_offset == 1


def test_a_shard_rests_while_no_process_speaks_with_other_nodes():
    cluster = ShardCluster()
    cluster.run()
    replication = cluster.worlds[2].core.replication
    replication.forget(replication.peers)
    cluster.elect(3, 2)  # a new leader is asked at once, as soon as somebody carries that
    now_ms = cluster.worlds[2].now_ms
    replication.work(now_ms)
    assert replication.due_ms is None
    replication.connect(cluster.peers[2], now_ms)
    assert replication.due_ms is not None


def test_followers_write_while_the_leader_writes_and_nothing_is_acknowledged_before_both_have_flushed():
    cluster = ShardCluster()
    cluster.worlds[1].produce(b"a")
    cluster.run()
    cluster.worlds[1].net.take()
    cluster.disks[1].hold_all("write")
    cluster.worlds[1].produce(b"b")
    cluster.run()
    assert cluster.values(2) == cluster.values(3) == [b"a", b"b"]
    assert cluster.worlds[2].log(PARTITION).flushed_offset == 2
    leads = cluster.worlds[1]
    assert leads.net.take() == [] and leads.log(PARTITION).readable_offset == 1
    assert leads.store.read_tail(leads.log(PARTITION).name, 0, 9999).next_offset == 1, (
        "readers see none of it"
    )
    cluster.disks[1].release_all()
    cluster.run()
    assert [reply.produced.base_offset for reply in leads.net.take()] == [1]


def test_a_follower_that_was_relieved_is_not_taken_back_while_it_stands_still():
    cluster = ShardCluster()
    cluster.run()
    produce(cluster, 1, b"a")
    cluster.run(20, after_ms=50)
    cluster.answer_proposals()
    acked(cluster, 1)
    cluster.cut.add(3)  # its shard stands still; its node lives, and is not fenced
    cluster.tell(1, 2, isr=(1, 2), leader_epoch=cluster.record.leader_epoch + 1)
    cluster.run(12, after_ms=50)
    cluster.answer_proposals()
    assert cluster.record.isr == (1, 2)
    produce(cluster, 1, b"b")
    cluster.run(3, after_ms=50)
    assert acked(cluster, 1) == [1]
