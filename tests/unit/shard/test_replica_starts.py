"""Where replicas' logs begin: what the leader has deleted no other replica brings back."""

from __future__ import annotations

from ringlog.errors import NotLeader
from ringlog.net.framing import Api
from ringlog.net.messages import DeleteRecordsReply, DeleteRecordsRequest, PartitionStart, decode_body
from ringlog.net.wire_errors import number_of
from tests.support.shard_cluster import NODES, PARTITION, ShardCluster

STATE = "partition.state"


def cluster_with_records(count: int = 5) -> ShardCluster:
    cluster = ShardCluster()
    for number in range(count):
        cluster.worlds[1].produce(b"%d" % number)
    cluster.run()
    assert len(cluster.worlds[1].net.take()) == count
    return cluster


def delete(cluster: ShardCluster, offset: int, node: int = 1) -> None:
    cluster.worlds[node].send(Api.DELETE_RECORDS, DeleteRecordsRequest([PartitionStart(PARTITION, offset)]))


def answers(cluster: ShardCluster, node: int = 1) -> list[tuple[int, int]]:
    """Error and start of each answer to a deletion."""
    rows = [decode_body(reply.body, DeleteRecordsReply).deleted for reply in cluster.worlds[node].net.take()]
    return [(row.error, row.log_start_offset) for (row,) in rows]


def starts(cluster: ShardCluster) -> list[int]:
    return [cluster.worlds[node].log(PARTITION).log_start_offset for node in NODES]


def test_what_the_leader_has_deleted_its_followers_delete_also_while_nothing_is_written():
    cluster = cluster_with_records()
    delete(cluster, 3)
    cluster.run(30)
    assert starts(cluster) == [3, 3, 3]
    assert answers(cluster) == [(0, 3)]


def test_when_everything_is_deleted_no_replica_keeps_the_records_on_disk():
    cluster = cluster_with_records()
    delete(cluster, -1)
    cluster.run(30)
    assert starts(cluster) == [5, 5, 5]
    assert answers(cluster) == [(0, 5)]
    cluster.run(30)
    assert [cluster.worlds[node].log(PARTITION).log_bytes for node in NODES] == [0, 0, 0]
    cluster.worlds[1].produce(b"next")
    cluster.run()
    for node in NODES:
        assert cluster.values(node) == [b"next"]


def test_a_deletion_is_answered_when_every_in_sync_replica_has_it_on_disk():
    cluster = cluster_with_records()
    cluster.disks[3].hold_all("write", STATE)
    delete(cluster, 3)
    cluster.run(30)
    assert answers(cluster) == [], "after a power loss node 3 would begin at 0"
    cluster.disks[3].release_all()
    cluster.run(30)
    assert answers(cluster) == [(0, 3)]
    for node in NODES:
        cluster.lose_power(node)
    for node in NODES:
        cluster.start(node)
    cluster.elect(3)
    cluster.run(30)
    assert starts(cluster) == [3, 3, 3]


def test_who_is_not_in_sync_is_not_waited_for_and_comes_into_sync_without_what_was_deleted():
    cluster = cluster_with_records()
    cluster.cut.add(3)
    cluster.fence(3)
    delete(cluster, 3)
    cluster.run(30)
    assert answers(cluster) == [(0, 3)]
    assert starts(cluster) == [3, 3, 0]
    cluster.cut.clear()
    cluster.fenced.clear()
    cluster.tell()
    cluster.start(3)
    cluster.disks[3].hold_all("write", STATE)
    cluster.run(60, after_ms=50)
    assert (1, 2, 3) not in cluster.answer_proposals()
    cluster.disks[3].release_all()
    cluster.run(60, after_ms=50)
    assert (1, 2, 3) in cluster.answer_proposals()
    assert starts(cluster) == [3, 3, 3]


def test_who_is_deposed_before_a_deletion_is_done_says_so():
    cluster = cluster_with_records()
    cluster.disks[3].hold_all("write", STATE)
    delete(cluster, 3)
    cluster.run(5)
    cluster.elect(2)
    cluster.run(5)
    assert answers(cluster) == [(number_of(NotLeader("")), -1)]
    cluster.disks[3].release_all()
    delete(cluster, 3, node=2)
    cluster.run(30)
    assert answers(cluster, 2) == [(0, 3)]
    assert starts(cluster) == [3, 3, 3]


def test_a_follower_that_hears_of_the_start_before_it_holds_the_records_moves_when_it_does():
    cluster = cluster_with_records(2)
    cluster.cut.add(3)
    cluster.fence(3)
    for number in range(2, 6):
        cluster.worlds[1].produce(b"%d" % number)
    cluster.run()
    cluster.worlds[1].net.take()
    delete(cluster, 1)
    cluster.run(20)
    cluster.cut.clear()
    cluster.fenced.clear()
    cluster.tell()
    cluster.start(3)
    cluster.run(60, after_ms=50)
    assert starts(cluster) == [1, 1, 1]
    assert cluster.values(3) == [b"1", b"2", b"3", b"4", b"5"]


def test_who_comes_back_when_everything_is_deleted_begins_at_the_end():
    cluster = cluster_with_records(2)
    cluster.cut.add(3)
    cluster.fence(3)
    cluster.worlds[1].produce(b"2")
    cluster.run()
    cluster.worlds[1].net.take()
    delete(cluster, 3)
    cluster.run(20)
    cluster.cut.clear()
    cluster.fenced.clear()
    cluster.tell()
    cluster.start(3)
    cluster.run(60, after_ms=50)
    assert (1, 2, 3) in cluster.answer_proposals()
    assert starts(cluster) == [3, 3, 3]
