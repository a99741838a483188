"""Replication in shards: real logs on three nodes, with the network and the controller played by the test."""

from __future__ import annotations

import msgspec
import pytest

from ringlog.controller.records import TopicConfig
from ringlog.limits import REPLICA_LAG_MS_DEFAULT, REPLICA_PARTITION_BYTES
from ringlog.model import Durability
from ringlog.net.framing import Acks, Api
from ringlog.net.messages import (
    LATEST,
    DeleteRecordsRequest,
    ListOffsetsReply,
    ListOffsetsRequest,
    OffsetQuery,
    PartitionStart,
    decode_body,
)
from ringlog.net.wire_errors import NUMBERS
from ringlog.records.encode import encode
from ringlog.replication.messages import ReplicaFetch, ReplicaHeld, Want, decode_fetched, encode_ask
from ringlog.shard.commands import LENT, NodeApi, pack_u64, place, unpack_lent
from tests.support.fake_disk import FakeDisk
from tests.support.shard_cluster import PARTITION, ShardCluster


def produce(cluster: ShardCluster, node: int, *values: bytes, acks: Acks = Acks.ALL, producer=None) -> None:
    for value in values:
        cluster.worlds[node].produce(value, acks=acks, producer=producer)


def replies(cluster: ShardCluster, node: int) -> list:
    return cluster.worlds[node].net.take()


def acked(cluster: ShardCluster, node: int) -> list[int]:
    """Offsets of what was acknowledged as committed."""
    found = []
    for reply in replies(cluster, node):
        assert reply.error is None, reply.error
        assert reply.produced.durability == Durability.COMMITTED
        found.append(reply.produced.base_offset)
    return found


def read(cluster: ShardCluster, node: int, offset: int = 0, *, follower: bool = False):
    """What a consumer gets there."""
    world = cluster.worlds[node]
    world.net.take()
    world.fetch((PARTITION, offset), follower=follower)
    world.settle(5)
    _, rows = world.only_fetched()
    return rows[PARTITION]


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
        cluster.worlds[n].store.read_tail(name, 0, 9999, held=True).tobytes() for n in (1, 2, 3)
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


def test_a_new_leader_has_all_that_was_acknowledged_and_goes_on():
    cluster = ShardCluster()
    produce(cluster, 1, b"a", b"b")
    cluster.run()
    assert acked(cluster, 1) == [0, 1]
    cluster.cut.add(1)
    cluster.elect(2, 2, 3, isr=(2, 3))
    produce(cluster, 2, b"c")
    cluster.run()
    assert acked(cluster, 2) == [2]
    assert read(cluster, 2).next_offset == 3


def test_what_the_old_leader_alone_had_is_cut_when_it_returns_and_its_producers_are_told():
    cluster = ShardCluster()
    produce(cluster, 1, b"a")
    cluster.run()
    acked(cluster, 1)
    cluster.cut.add(1)
    produce(cluster, 1, b"never committed", b"nor this")
    cluster.run()
    cluster.elect(2, 2, 3, isr=(2, 3))
    produce(cluster, 2, b"b")
    cluster.run()
    assert cluster.values(1) == [b"a", b"never committed", b"nor this"]
    cluster.cut.clear()
    cluster.hear(1)
    assert [reply.error.code for reply in replies(cluster, 1)] == ["NOT_LEADER", "NOT_LEADER"]
    cluster.run(20, after_ms=100)
    assert [cluster.values(node) for node in (1, 2, 3)] == [[b"a", b"b"]] * 3
    cluster.answer_proposals()
    assert cluster.record.isr == (1, 2, 3), "it has caught up, and the leader proposed it"


def test_a_node_that_lost_power_has_what_it_reported_and_fetches_the_rest():
    cluster = ShardCluster()
    produce(cluster, 1, b"a", b"b")
    cluster.run()
    assert acked(cluster, 1) == [0, 1]
    cluster.lose_power(3)
    cluster.tell(isr=(1, 2))
    produce(cluster, 1, b"c")
    cluster.run()
    assert acked(cluster, 1) == [2]
    cluster.start(3)
    assert cluster.values(3) == [b"a", b"b"]
    cluster.run(20, after_ms=100)
    assert cluster.values(3) == [b"a", b"b", b"c"]
    cluster.answer_proposals()
    assert cluster.record.isr == (1, 2, 3)


def test_all_lose_power_and_nothing_acknowledged_is_lost():
    cluster = ShardCluster()
    produce(cluster, 1, *[b"%d" % n for n in range(20)])
    cluster.run()
    assert len(acked(cluster, 1)) == 20
    for node in (1, 2, 3):
        cluster.lose_power(node)
    for node in (1, 2, 3):
        cluster.start(node)
    cluster.elect(3)
    cluster.run(20, after_ms=100)
    assert [cluster.values(node) for node in (1, 2, 3)] == [[b"%d" % n for n in range(20)]] * 3
    assert read(cluster, 3).readable_offset == 20


def test_a_repeat_after_a_failover_is_answered_with_its_first_offset():
    cluster = ShardCluster()
    produce(cluster, 1, b"a", producer=(77, 0, 0))
    cluster.run()
    assert acked(cluster, 1) == [0]
    cluster.elect(2)
    cluster.run(20, after_ms=100)
    produce(cluster, 2, b"a", producer=(77, 0, 0))
    cluster.run()
    assert acked(cluster, 2) == [0]
    assert cluster.values(2) == [b"a"]


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


def test_an_unclean_election_makes_followers_give_up_what_their_leader_lacks():
    cluster = ShardCluster(min_insync=1)
    produce(cluster, 1, b"a")
    cluster.run()
    cluster.tell(isr=(1, 3))
    cluster.cut.add(2)
    produce(cluster, 1, b"b", b"c")
    cluster.run()
    assert acked(cluster, 1) == [0, 1, 2]
    assert cluster.worlds[3].log(PARTITION).committed_offset >= 1
    cluster.cut = {1, 3}
    cluster.elect(2, isr=(2,), unclean_epoch=2)
    produce(cluster, 2, b"d")
    cluster.run()
    cluster.cut.clear()
    cluster.run(40, after_ms=100)
    for node in (1, 2, 3):
        assert cluster.values(node) == [b"a", b"d"]
        assert cluster.worlds[node].core.hosting.hosted[PARTITION].replica.halted is None
    assert set(cluster.answer_proposals()) & {(1, 2, 3), (2, 1, 3)}
    cluster.run(20, after_ms=100)
    for node in (1, 3):
        assert cluster.worlds[node].log(PARTITION).committed_offset <= 2


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


def test_a_new_leader_does_not_say_where_the_log_ends_before_it_knows():
    cluster = ShardCluster()
    produce(cluster, 1, b"a")
    cluster.run()
    cluster.cut |= {1, 3}
    cluster.elect(2, 2)
    world = cluster.worlds[2]

    def ask():
        world.send(Api.LIST_OFFSETS, ListOffsetsRequest([OffsetQuery(PARTITION, LATEST)]))
        (reply,) = world.net.take()
        return decode_body(reply.body, ListOffsetsReply).found[0]

    assert ask().error == NUMBERS["OFFSET_NOT_AVAILABLE"]
    cluster.cut.clear()
    cluster.hear()
    cluster.run(20, after_ms=100)
    assert (ask().error, ask().offset) == (0, 1)


@pytest.mark.parametrize("size", [10, 100_000])
def test_large_and_small_data_arrive_whole(size):
    cluster = ShardCluster()
    values = [bytes([n]) * size for n in range(12)]
    produce(cluster, 1, *values)
    cluster.run(20)
    assert acked(cluster, 1) == list(range(12))
    assert cluster.values(3) == values


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


def test_a_batch_that_is_larger_than_an_answer_goes_alone():
    cluster = ShardCluster(max_message_bytes="4000000")
    world = cluster.worlds[1]
    other = msgspec.structs.replace(cluster.record, partition=2, index=1)
    world.delta(other)
    while world.core.hosting.has_to_open:
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


def test_a_shard_rests_while_no_process_speaks_with_other_nodes():
    cluster = ShardCluster()
    cluster.run()
    replication = cluster.worlds[2].core.replication
    replication.forget(replication.peers)
    cluster.elect(3, 2)  # a new leader is asked at once, as soon as somebody carries that
    now_ms = cluster.worlds[2].now_ms
    replication.work(now_ms)
    assert replication.next_due_ms is None
    replication.connect(cluster.peers[2], now_ms)
    assert replication.next_due_ms is not None
