"""Followers that are behind: they get what they lack, whatever its size, and hold up no commit for long."""

from __future__ import annotations

import msgspec
import pytest

from ringlog.limits import REPLICA_LAG_MS_DEFAULT, REPLICA_PARTITION_BYTES
from ringlog.net.framing import Acks, Api
from ringlog.net.messages import DeleteRecordsRequest, PartitionStart
from ringlog.records.encode import encode
from ringlog.replication.messages import ReplicaFetch, Want, decode_fetched, encode_ask
from ringlog.shard.commands import LENT, NodeApi, pack_u64, unpack_lent
from tests.support.fake_disk import FakeDisk
from tests.support.replica_calls import acked, produce, read, replies
from tests.support.shard_cluster import PARTITION, ShardCluster


def test_a_follower_that_lags_is_proposed_to_leave_and_commits_go_on_without_it():
    cluster = ShardCluster()
    cluster.run()
    cluster.cut.add(3)
    produce(cluster, 1, b"a")
    cluster.run()
    assert replies(cluster, 1) == []
    cluster.run(30, after_ms=REPLICA_LAG_MS_DEFAULT // 20)
    assert (1, 2) in cluster.answer_proposals()
    cluster.run()
    assert acked(cluster, 1) == [0]


def test_a_follower_that_is_behind_in_one_partition_gets_all_that_an_answer_takes():
    cluster = ShardCluster(max_message_bytes=str(2 << 20))
    cluster.run()
    cluster.cut.add(3)
    value = b"x" * (REPLICA_PARTITION_BYTES - 200)
    produce(cluster, 1, *[value] * 3)
    cluster.run()
    cluster.cut.clear()
    taken, deliver = [], cluster.deliver

    def counting(source: int, node: int, lane: int, reply) -> None:
        if node == 3 and reply.flags & LENT:
            taken.append(unpack_lent(memoryview(reply.body)).data_bytes)
        deliver(source, node, lane, reply)

    cluster.deliver = counting
    cluster.run(40, after_ms=100)
    assert cluster.values(3) == [value] * 3
    assert max(taken) > 3 * len(value), taken


def test_a_node_may_be_told_how_long_a_follower_may_lag():
    cluster = ShardCluster(lag_ms_max=2_000)
    cluster.run()
    cluster.cut.add(3)
    produce(cluster, 1, b"a")
    cluster.run(15, after_ms=100)
    assert cluster.answer_proposals() == []
    cluster.run(15, after_ms=100)
    assert (1, 2) in cluster.answer_proposals()


def test_a_proposal_that_is_refused_is_made_anew():
    cluster = ShardCluster()
    cluster.tell(isr=(1, 2))
    cluster.run(20, after_ms=50)
    assert set(cluster.answer_proposals(error=3)) == {(1, 2, 3)}
    cluster.run(20, after_ms=50)
    assert set(cluster.answer_proposals()) == {(1, 2, 3)}


def delete_before(cluster: ShardCluster, node: int, offset: int) -> None:
    world = cluster.worlds[node]
    world.send(Api.DELETE_RECORDS, DeleteRecordsRequest([PartitionStart(PARTITION, offset)]))
    world.settle()
    world.net.take()
    assert world.log(PARTITION).log_start_offset == offset


def wipe(cluster: ShardCluster, node: int) -> None:
    """A node comes back with an empty disk."""
    cluster.lose_power(node)
    cluster.disks[node] = FakeDisk(seed=10 + node)
    cluster.start(node)


def test_a_replica_that_has_nothing_begins_where_its_leaders_log_begins():
    cluster = ShardCluster()
    produce(cluster, 1, b"a", b"b", b"c", b"d")
    cluster.run()
    delete_before(cluster, 1, 2)
    wipe(cluster, 3)
    cluster.run(40)
    assert cluster.worlds[3].log(PARTITION).log_start_offset == 2
    assert cluster.values(3) == [b"c", b"d"] == cluster.values(1)
    produce(cluster, 1, b"e")
    cluster.run()
    assert cluster.values(3) == [b"c", b"d", b"e"]
    cluster.lose_power(3)
    cluster.start(3)
    cluster.run(20)
    log = cluster.worlds[3].log(PARTITION)
    assert (log.log_start_offset, log.next_offset) == (2, 5), "also after it lost power"


def test_a_replica_that_is_too_far_behind_gives_up_what_it_has():
    cluster = ShardCluster()
    produce(cluster, 1, b"a", b"b")
    cluster.run()
    cluster.cut.add(3)
    cluster.tell(1, 2, isr=(1, 2))
    produce(cluster, 1, b"c", b"d", b"e")
    cluster.run()
    delete_before(cluster, 1, 4)
    cluster.cut.clear()
    cluster.hear()
    cluster.run(60, after_ms=100)
    log = cluster.worlds[3].log(PARTITION)
    assert (log.log_start_offset, log.next_offset) == (4, 5)
    assert cluster.values(3) == [b"e"]
    cluster.elect(3, isr=(1, 2, 3))
    cluster.run(20)
    assert read(cluster, 3, 4).next_offset == 5


def test_a_leaders_log_may_begin_within_a_batch():
    cluster = ShardCluster()
    batch = encode([b"a", b"b", b"c"], timestamps=1)
    cluster.worlds[1].send(Api.PRODUCE, batch, partition=PARTITION, flags=Acks.ALL)
    produce(cluster, 1, b"d")
    cluster.run()
    delete_before(cluster, 1, 2)
    wipe(cluster, 3)
    cluster.run(40)
    log = cluster.worlds[3].log(PARTITION)
    assert (log.log_start_offset, log.next_offset) == (2, 4)
    assert cluster.values(3) == [b"a", b"b", b"c", b"d"], "batches are kept whole"


@pytest.mark.parametrize("size", [10, 100_000])
def test_large_and_small_data_arrive_whole(size):
    cluster = ShardCluster()
    values = [bytes([n]) * size for n in range(12)]
    produce(cluster, 1, *values)
    cluster.run(20)
    assert acked(cluster, 1) == list(range(12))
    assert cluster.values(3) == values


def test_a_batch_that_is_larger_than_an_answer_goes_alone():
    cluster = ShardCluster(max_message_bytes="4000000")
    world = cluster.worlds[1]
    other = msgspec.structs.replace(cluster.record, partition=2, index=1)
    world.delta(other)
    while world.core.hosting.has_work:
        world.core.hosting.work(world.now_ms)
    world.produce(b"small", partition=PARTITION)
    world.produce(bytes(1_000_000), partition=2)
    world.settle()
    world.net.take()
    wants = [Want(PARTITION, 1, 0, -1, 0, 1 << 20), Want(2, 1, 0, -1, 0, 1 << 20)]

    def answered(sequence: int, *changed: Want) -> list[int]:
        fetch = ReplicaFetch(2, 1, 0, 1, sequence, 0, 100_000, list(changed), [])
        world.send(NodeApi.REPLICA_FETCH, encode_ask(fetch), session=2)
        (reply,) = world.net.take()
        if reply.flags & LENT:
            lent = unpack_lent(memoryview(reply.body))
            world.send(NodeApi.RELEASE, pack_u64(lent.token))
            body = lent.head + bytes(lent.data_bytes)
        else:
            body = reply.body
        return [part.partition for part in decode_fetched(body)[0].parts]

    assert answered(0, *wants) == [PARTITION]
    assert answered(1) == [2]


def test_commits_do_not_wait_for_a_node_that_was_fenced_although_it_had_kept_up():
    cluster = ShardCluster()
    produce(cluster, 1, b"a")
    cluster.run()
    assert acked(cluster, 1) == [0]
    cluster.cut.add(3)
    cluster.fence(3)
    cluster.run(20, after_ms=50)
    assert cluster.answer_proposals() == [], "it held all that is committed, and is not there any more"
    produce(cluster, 1, b"b")
    cluster.run()
    assert acked(cluster, 1) == [1]


def test_a_refused_proposal_holds_up_no_commit():
    cluster = ShardCluster()
    produce(cluster, 1, b"a")
    cluster.run()
    assert acked(cluster, 1) == [0]
    cluster.cut.add(3)
    cluster.tell(isr=(1, 2))
    cluster.run(10, after_ms=50)
    produce(cluster, 1, b"b")
    cluster.run()
    assert replies(cluster, 1) == [], "who was proposed counts"
    assert (1, 2, 3) in cluster.answer_proposals(error=3)
    assert acked(cluster, 1) == [1]


def test_followers_go_on_when_the_recent_tail_has_filled_their_memory():
    cluster = ShardCluster(memory_bytes=16 << 20)
    for number in range(24):
        produce(cluster, 1, bytes([number]) * 1_000_000)
        cluster.run(4)
        assert acked(cluster, 1) == [number]
    assert cluster.worlds[3].store.memory_free_bytes < 4 << 20, "there is no more room than at any time later"
