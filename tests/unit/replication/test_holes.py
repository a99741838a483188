"""A replica whose log has a hole: it leaves the in-sync ones, leads nothing that others can, and is mended."""

from __future__ import annotations

import pytest

from ringlog.errors import CorruptBatch, NotLeader, PartitionBusy, ReplicaHalted
from ringlog.limits import (
    REPLICA_BACKOFF_MS,
    REPLICA_FETCH_BYTES,
    REPLICA_MEND_BACKOFF_MS,
    REPLICA_MEND_BYTES,
)
from ringlog.replication.fetcher import Fetcher
from ringlog.replication.follower import BeginAt, Follower, Ignore, Truncate
from ringlog.replication.leader import Serve
from ringlog.replication.messages import Part, ReplicaFetched
from ringlog.replication.view import EpochEnd, PartitionView, WholePart
from tests.support.replica_world import PARTITION, MemoryLog, Node, fetch, spans

IN_SYNC = PartitionView(PARTITION, 1, 5, 10, (1, 2, 3), (1, 2, 3))
OUT = IN_SYNC._replace(leader_epoch=6, partition_epoch=11, isr=(1, 3))
LOG = ((0, 9, 1), (10, 19, 1), (20, 29, 2), (30, 39, 4))


def holed(hole_offset: int | None = 10) -> MemoryLog:
    log = MemoryLog(spans(*LOG))
    log.hole_offset = hole_offset
    return log


def part(
    offset: int, *, watermark: int = 0, start: int = 0, diverging=(-1, -1), is_free: bool = True
) -> Part:
    return Part(PARTITION, 0, 6, offset, watermark, start, 0, *diverging, is_free)


def test_nothing_behind_a_hole_counts_as_held():
    want = Follower(2, IN_SYNC, 0).want(holed(), 1000)
    assert (want.fetch_offset, want.last_epoch, want.held_offset) == (40, 4, 10)


def test_out_of_sync_it_asks_for_what_the_hole_lacks():
    want = Follower(2, OUT, 0).want(holed(), 1000)
    assert (want.fetch_offset, want.last_epoch, want.held_offset) == (10, 1, 10)
    want = Follower(2, OUT, 0).want(holed(0), 1000)
    assert (want.fetch_offset, want.last_epoch, want.held_offset, want.start_offset) == (0, -1, 0, 0)


def test_it_asks_for_little_until_it_is_cut_and_then_for_all():
    role, log = Follower(2, OUT, 0), holed()
    assert role.is_mending(log) and role.want(log, REPLICA_FETCH_BYTES).bytes_max == REPLICA_MEND_BYTES
    assert role.want(log, 100).bytes_max == 100
    log.hole_offset = None
    assert not role.is_mending(log) and role.want(log, REPLICA_FETCH_BYTES).bytes_max == REPLICA_FETCH_BYTES


def test_who_is_in_sync_or_whose_hole_was_deleted_asks_for_all():
    counted_on, deleted = Follower(2, IN_SYNC, 0), Follower(2, OUT, 0)
    deleted.leader_start_offset = 25
    for role in (counted_on, deleted):
        assert role.want(holed(), REPLICA_FETCH_BYTES).bytes_max == REPLICA_FETCH_BYTES


def asking(node: Node) -> Fetcher:
    fetcher = Fetcher(2, node.node_epoch, 0, 1)
    fetcher.add(node.replica, node.log)
    return fetcher


def pauses(fetcher: Fetcher, times: int) -> list[int]:
    """How long it waits after each of so many answers that it cannot use."""
    found, now_ms = [], 0
    for _ in range(times):
        asked = fetcher.next_fetch(now_ms, REPLICA_FETCH_BYTES)
        assert [want.partition for want in asked.wants] == [PARTITION]
        fetcher.take(ReplicaFetched(asked.session, asked.sequence, False, [part(10, is_free=False)]), now_ms)
        fetcher.pause(PARTITION, now_ms)
        begun_ms, now_ms = now_ms, fetcher._paused[PARTITION]
        found.append(now_ms - begun_ms)
    return found


def test_while_it_may_not_be_cut_it_asks_less_and_less_often_up_to_a_bound():
    two = Node(2, holed())
    two.follow(OUT)
    assert pauses(asking(two), 8) == [50, 100, 200, 400, 800, 1000, 1000, 1000]
    assert (REPLICA_BACKOFF_MS, REPLICA_MEND_BACKOFF_MS) == (50, 1000)


def test_who_has_no_hole_asks_as_often_as_ever():
    two = Node(2, holed(None))
    two.follow(OUT)
    assert pauses(asking(two), 4) == [REPLICA_BACKOFF_MS] * 4


def test_news_of_its_log_or_its_leader_are_a_reason_to_ask_soon_again():
    two = Node(2, holed())
    two.follow(OUT)
    fetcher = asking(two)
    pauses(fetcher, 5)
    fetcher.add(two.replica, two.log)
    fetcher.pause(PARTITION, 0)
    assert fetcher._paused[PARTITION] == REPLICA_BACKOFF_MS


def test_the_whole_part_of_a_log_has_its_history_up_to_the_hole():
    whole = WholePart(holed(25), 25)
    assert (whole.last_epoch, whole.end_of(4), whole.end_of(1)) == (2, EpochEnd(2, 25), EpochEnd(1, 20))
    assert WholePart(holed(20), 20).last_epoch == 1
    assert WholePart(holed(0), 0).end_of(7) is None


def test_it_is_cut_to_the_hole_when_the_leader_sends_what_it_lacks():
    role = Follower(2, OUT, 35)
    assert role.take(part(10, watermark=40), spans((10, 19, 1)), holed()) == Truncate(10)
    assert role.high_watermark == 10, "what it knows to be committed it knows of what it has"


def test_it_is_not_cut_while_it_is_counted_on():
    role = Follower(2, IN_SYNC._replace(leader_epoch=6), 35)
    assert role.take(part(10), spans((10, 19, 1)), holed()) == Ignore()
    assert role.take(part(40), [], holed()) == Ignore()
    assert role.high_watermark == 35


def test_it_is_not_cut_while_its_leader_counts_on_it_whatever_the_metadata_said_last():
    role = Follower(2, OUT, 35)
    with pytest.raises(PartitionBusy, match="counted on"):
        role.take(part(10, is_free=False), spans((10, 19, 1)), holed())
    assert role.high_watermark == 35


def test_a_leader_counts_on_who_is_in_sync_and_on_who_may_be_by_now():
    one, two = Node(1, holed(None)), Node(2, holed(None))
    view = OUT._replace(isr=(1, 3))
    one.follow(view)
    two.follow(view)
    leader = one.replica.must_lead()
    assert leader.counts_on(3) and not leader.counts_on(2)
    fetch(two, one)
    leader.propose(one.log, 1000, 0)
    assert leader.counts_on(2)


def test_it_is_not_cut_by_an_answer_that_brings_nothing_or_does_not_fit():
    role = Follower(2, OUT, 0)
    assert role.take(part(10), [], holed()) == Ignore()
    assert role.take(part(40), spans((40, 41, 5)), holed()) == Ignore(), (
        "to what it asked before the hole was found"
    )
    with pytest.raises(CorruptBatch):
        role.take(part(10), spans((8, 19, 1)), holed())


def test_a_hole_in_what_the_leader_has_deleted_goes_with_the_start():
    log, role = holed(), Follower(2, OUT, 0)
    assert role.take(part(10, watermark=40, start=25), [], log) == Ignore()
    assert role.want(log, 1000).fetch_offset == 40, "nothing is lost: it asks for what comes next"
    assert role.take(part(40, watermark=40, start=25), [], log) == Ignore()
    assert role.start_due(log) == 25


def test_histories_that_part_below_the_hole_are_cut_there():
    assert Follower(2, OUT, 0).take(part(25, diverging=(1, 15)), [], holed(25)) == Truncate(15)
    assert Follower(2, OUT, 0).take(part(25, diverging=(1, 22)), [], holed(25)) == Truncate(20)
    with pytest.raises(ReplicaHalted):
        Follower(2, OUT, 18).take(part(25, diverging=(1, 15)), [], holed(25))


def test_without_a_hole_a_log_that_ends_before_the_leaders_begins_is_begun_anew():
    assert Follower(2, OUT, 0).take(part(40, start=50), [], holed(None)) == BeginAt(50)


def test_a_follower_with_a_hole_leaves_the_in_sync_ones_and_serves_no_readers():
    two = Node(2, holed(None))
    two.follow(IN_SYNC)
    assert two.replica.renewal is None and two.replica.serves_readers and two.replica.is_whole
    two.log.hole_offset = 10
    two.replica.look(two.log, two.node_epoch, 0)
    assert two.replica.renewal is not None and two.replica.renewal.renews
    assert not two.replica.serves_readers and not two.replica.is_whole
    two.follow(OUT)
    assert two.replica.renewal is None and two.replica.follower is not None
    two.log.hole_offset = None
    two.follow(OUT._replace(isr=(1, 2, 3), partition_epoch=12))
    assert two.replica.serves_readers and two.replica.is_whole


def test_a_leader_that_finds_a_hole_leads_until_another_one_does_and_no_longer():
    one = Node(1, holed(None))
    one.follow(IN_SYNC)
    one.log.hole_offset = 10
    one.replica.look(one.log, one.node_epoch, 0)
    assert one.replica.leader is not None and one.replica.renewal is not None
    one.follow(IN_SYNC._replace(leader=2, leader_epoch=6, partition_epoch=11, isr=(2, 3)))
    assert one.replica.follower is not None and one.replica.renewal is None


def test_who_has_a_hole_and_is_elected_leads_nothing_while_another_one_is_in_sync():
    one = Node(1, holed())
    one.follow(IN_SYNC)
    assert one.replica.leader is None and one.replica.renewal is not None
    with pytest.raises(NotLeader, match="lacks records"):
        one.replica.must_lead()


def test_who_has_a_hole_and_is_elected_leads_when_the_others_have_left():
    one = Node(1, holed())
    one.follow(IN_SYNC)
    assert one.follow(IN_SYNC._replace(isr=(1,), partition_epoch=11))
    assert one.replica.leader is not None and one.replica.renewal is None


def test_the_last_one_in_sync_leads_on_in_its_epoch_whatever_it_lacks_until_another_one_is():
    one = Node(1, holed())
    alone = IN_SYNC._replace(isr=(1,))
    one.follow(alone)
    leader = one.replica.leader
    assert leader is not None and one.replica.renewal is None and not one.replica.is_spared
    assert leader.high_watermark == 40, "what it has is committed"
    one.follow(alone._replace(isr=(1, 2), partition_epoch=11))
    assert one.replica.renewal is not None and one.replica.is_spared


def test_a_hole_that_was_deleted_keeps_nobody_from_anything():
    one = Node(1, holed())
    one.follow(IN_SYNC)
    one.log.hole_offset = None
    assert one.replica.look(one.log, one.node_epoch, 0)
    assert one.replica.renewal is None and one.replica.leader is not None


@pytest.mark.parametrize("node", [1, 2])
def test_after_an_unclean_election_nobody_is_taken_to_have_all(node):
    one = Node(node, holed(None))
    one.follow(IN_SYNC)
    assert one.replica.is_whole
    one.follow(IN_SYNC._replace(leader_epoch=6, partition_epoch=11, unclean_epoch=6))
    assert not one.replica.is_whole


def test_it_is_not_taken_into_sync_before_it_has_all_again_and_then_it_is():
    one, two = Node(1, holed(None)), Node(2, holed())
    view = OUT._replace(isr=(1,))
    one.follow(view)
    two.follow(view)
    leader = one.replica.leader
    assert leader is not None and leader.high_watermark == 40
    fetch(two, one)
    assert two.log.end_offset == 10
    two.log.hole_offset = None
    assert leader.propose(one.log, 1000, 0) is None
    while two.log.end_offset < 40 or leader.followers[2].held_offset < 40:
        assert leader.propose(one.log, 1000, 0) is None
        fetch(two, one)
        two.log.flush()
    proposal = leader.propose(one.log, 1000, 0)
    assert proposal is not None and proposal.nodes == (1, 2)
    assert two.log.batches == one.log.batches


def test_who_knew_of_no_hole_yet_is_held_to_what_it_holds_from_then_on():
    """The leader remembers what it was told in its epoch; a new one begins with nothing."""
    one, two = Node(1, holed(None)), Node(2, holed())
    one.follow(OUT)
    two.follow(OUT)
    leader = one.replica.must_lead()
    verdict = leader.fetched(2, two.node_epoch, two.want(), one.log, 0)
    assert verdict == Serve(10) and leader.followers[2].held_offset == 10
