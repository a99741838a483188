"""Another node leads, or power is lost: what was acknowledged is there, and what was not is told or cut."""

from __future__ import annotations

from ringlog.net.framing import Api
from ringlog.net.messages import LATEST, ListOffsetsReply, ListOffsetsRequest, OffsetQuery, decode_body
from ringlog.net.wire_errors import NUMBERS
from tests.support.replica_calls import acked, produce, read, replies
from tests.support.shard_cluster import PARTITION, ShardCluster


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
