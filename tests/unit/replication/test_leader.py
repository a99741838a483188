"""A leader: whose fetches count, what is committed, who is in sync."""

from __future__ import annotations

import pytest

from ringlog.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    InvariantBroken,
    NotEnoughReplicas,
    UnknownLeaderEpoch,
)
from ringlog.replication.leader import BeginsLater, Diverged, Leader, Serve
from ringlog.replication.messages import Want
from ringlog.replication.view import EpochEnd, IsrProposal, PartitionView
from tests.support.replica_world import PARTITION, MemoryLog, spans

VIEW = PartitionView(PARTITION, 1, 5, 10, (1, 2, 3), (1, 2, 3), min_insync=2)
LAG_MS = 1_000


def leader(log: MemoryLog | None = None, view: PartitionView = VIEW) -> tuple[Leader, MemoryLog]:
    log = log or MemoryLog(spans((0, 9, 4)))
    return Leader(1, 100, view, log, 0, now_ms=0), log


def want(
    offset: int, *, last_epoch: int = 4, held: int | None = None, epoch: int = 5, start: int = 0
) -> Want:
    return Want(PARTITION, epoch, offset, last_epoch, offset if held is None else held, 1000, start)


def fetch(role: Leader, log: MemoryLog, node: int, asked: Want, *, now_ms: int = 0, node_epoch: int = 0):
    return role.fetched(node, node_epoch or node * 100, asked, log, now_ms)


def test_a_record_is_committed_when_every_in_sync_replica_holds_it():
    role, log = leader()
    assert fetch(role, log, 2, want(10)) == Serve(10)
    assert role.high_watermark == 0
    fetch(role, log, 3, want(8))
    assert role.high_watermark == 8


def test_what_a_follower_received_and_did_not_flush_does_not_count():
    role, log = leader()
    fetch(role, log, 2, want(10, held=3))
    fetch(role, log, 3, want(10, held=7))
    assert role.high_watermark == 3


def test_the_leader_counts_itself():
    role, log = leader()
    log.append(5, 5)
    fetch(role, log, 2, want(15, last_epoch=5))
    fetch(role, log, 3, want(15, last_epoch=5))
    assert role.high_watermark == 10
    log.flush()
    assert role.advance(log)
    assert role.high_watermark == 15


def test_the_watermark_never_goes_back():
    role, log = leader()
    fetch(role, log, 2, want(10))
    fetch(role, log, 3, want(10))
    fetch(role, log, 3, want(4))
    assert role.high_watermark == 10


def test_a_late_fetch_changes_nothing():
    role, log = leader()
    fetch(role, log, 2, want(10))
    fetch(role, log, 2, want(4))
    assert role.followers[2].held_offset == 10


@pytest.mark.parametrize(("epoch", "error"), [(4, FencedLeaderEpoch), (6, UnknownLeaderEpoch)])
def test_a_fetch_of_another_epoch_is_refused_and_does_not_count(epoch, error):
    role, log = leader()
    with pytest.raises(error):
        fetch(role, log, 2, want(10, epoch=epoch))
    assert role.followers[2].held_offset < 0


def test_a_fetch_of_a_stranger_is_refused():
    role, log = leader()
    with pytest.raises(InvalidRequest):
        fetch(role, log, 9, want(10))


def test_nobody_holds_more_than_it_has():
    role, log = leader()
    with pytest.raises(InvalidRequest):
        fetch(role, log, 2, want(5, held=6))


def test_a_node_that_restarted_holds_nothing_until_it_says_so_again():
    role, log = leader()
    fetch(role, log, 2, want(10), node_epoch=200)
    fetch(role, log, 2, want(2), node_epoch=201)
    assert role.followers[2].held_offset == 2
    with pytest.raises(InvalidRequest):
        fetch(role, log, 2, want(10), node_epoch=200)  # of its former life, and late


def test_a_follower_with_another_history_is_told_where_its_epoch_ends_here():
    log = MemoryLog(spans((0, 9, 1), (10, 19, 4)))
    role, _ = leader(log)
    assert fetch(role, log, 2, want(15, last_epoch=1)) == Diverged(EpochEnd(1, 10))
    assert fetch(role, log, 2, want(15, last_epoch=3)) == Diverged(EpochEnd(1, 10))
    assert fetch(role, log, 2, want(25, last_epoch=4)) == Diverged(EpochEnd(4, 20))
    assert fetch(role, log, 2, want(15, last_epoch=0)) == Diverged(EpochEnd(0, 0))
    assert role.followers[2].held_offset < 0, "none of these counts"
    assert fetch(role, log, 2, want(10, last_epoch=1)) == Serve(10)
    assert fetch(role, log, 2, want(0, last_epoch=-1)) == Serve(0)


def test_a_follower_behind_the_start_of_the_log_is_told_where_it_begins():
    log = MemoryLog(spans((0, 9, 1), (10, 19, 4)))
    log.delete_below(10)
    role, _ = leader(log)
    assert fetch(role, log, 2, want(5, last_epoch=1)) == BeginsLater(10)
    assert fetch(role, log, 2, want(10, last_epoch=1)) == Serve(10), "its last epoch is deleted here"


def test_an_empty_follower_that_begins_behind_the_start_of_the_log_has_no_other_history():
    """It began anew where a former leader's log did, which had deleted more than this one has."""
    log = MemoryLog(spans((0, 9, 1), (10, 19, 4)))
    role, _ = leader(log)
    assert fetch(role, log, 2, want(10, last_epoch=-1, start=10)) == Serve(10)
    assert fetch(role, log, 3, want(10, last_epoch=-1, start=0)) == Diverged(EpochEnd(-1, 0)), "not empty"


def test_an_empty_follower_has_no_other_history_also_if_its_last_epoch_was_compacted_away_here():
    log = MemoryLog(spans((0, 9, 1), (20, 29, 4)))
    role, _ = leader(log)
    assert fetch(role, log, 2, want(20, last_epoch=3, start=20)) == Serve(20)
    assert fetch(role, log, 3, want(20, last_epoch=3)) == Diverged(EpochEnd(1, 20)), "not empty"


def test_nothing_is_committed_while_too_few_are_in_sync():
    role, log = leader(view=VIEW._replace(isr=(1,)))
    assert role.high_watermark == 0
    with pytest.raises(NotEnoughReplicas):
        role.must_take()
    role.changed(VIEW._replace(isr=(1, 2), partition_epoch=11), log, 0)
    role.must_take()
    fetch(role, log, 2, want(10))
    assert role.high_watermark == 10


def test_a_follower_joins_when_it_holds_what_earlier_epochs_may_have_committed():
    role, log = leader(view=VIEW._replace(isr=(1, 2)))
    fetch(role, log, 3, want(9))
    assert role.propose(log, LAG_MS, 0) is None
    fetch(role, log, 3, want(10))
    proposal = role.propose(log, LAG_MS, 0)
    assert proposal is not None
    assert proposal.isr == ((1, 100), (2, -1), (3, 300))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 10)


def test_a_follower_that_lags_leaves_once_the_controller_agrees():
    role, log = leader()
    for node in (2, 3):
        fetch(role, log, node, want(10), now_ms=100)
    log.append(5, 5)
    log.flush()
    fetch(role, log, 2, want(15, last_epoch=5), now_ms=900)
    assert role.propose(log, LAG_MS, 1_100) is None
    proposal = role.propose(log, LAG_MS, 1_101)
    assert proposal is not None and proposal.nodes == (1, 2)
    role.advance(log)
    assert role.high_watermark == 10, "it counts until the controller has agreed"
    role.changed(VIEW._replace(isr=(1, 2), partition_epoch=11), log, 1_200)
    assert role.high_watermark == 15


def test_a_follower_that_keeps_up_with_a_busy_leader_stays():
    role, log = leader()
    for now_ms in range(0, 5_000, 100):
        end = log.end_offset
        log.append(5, 10)
        log.flush()
        for node in (2, 3):  # each has what there was at its last fetch, and never all
            fetch(
                role, log, node, want(end, last_epoch=log.end_of(5).epoch if end > 10 else 4), now_ms=now_ms
            )
        assert role.propose(log, LAG_MS, now_ms) is None


def test_a_follower_that_reports_more_often_than_its_way_is_long_keeps_up_all_the_same():
    role, log = leader()
    ends = [log.end_offset]
    for now_ms in range(1, 5 * LAG_MS):
        log.append(5, 1)
        log.flush()
        ends.append(log.end_offset)
        end = ends[
            max(0, now_ms - 3)
        ]  # what it holds is always three milliseconds old, and told every millisecond
        for node in (2, 3):
            fetch(role, log, node, want(end, last_epoch=5 if end > 10 else 4), now_ms=now_ms)
        assert role.propose(log, LAG_MS, now_ms) is None


def test_a_follower_that_held_all_of_an_idle_log_does_not_lag_with_the_next_record():
    role, log = leader()
    for node in (2, 3):
        fetch(role, log, node, want(10))
    for now_ms in range(0, 10 * LAG_MS, LAG_MS // 4):
        assert role.propose(log, LAG_MS, now_ms) is None
    log.append(5, 1)
    assert role.propose(log, LAG_MS, 10 * LAG_MS) is None
    assert role.propose(log, LAG_MS, 11 * LAG_MS) is not None


def test_a_replica_that_is_proposed_to_join_counts_at_once():
    role, log = leader(view=VIEW._replace(isr=(1, 2)))
    fetch(role, log, 3, want(10))
    assert role.propose(log, LAG_MS, 0) is not None
    log.append(5, 5)
    log.flush()
    fetch(role, log, 2, want(15, last_epoch=5))
    assert role.high_watermark == 10
    fetch(role, log, 3, want(12, last_epoch=5))
    assert role.high_watermark == 12


def refuse(role: Leader, proposal: IsrProposal, log: MemoryLog) -> bool:
    """The controller says no, and the partition is as it was."""
    return role.refused(proposal, VIEW.leader_epoch, VIEW.partition_epoch, log)


def test_one_proposal_is_under_way_until_it_is_refused_or_the_partition_changes():
    role, log = leader(view=VIEW._replace(isr=(1, 2)))
    fetch(role, log, 3, want(10))
    first = role.propose(log, LAG_MS, 0)
    assert first is not None and role.propose(log, LAG_MS, 0) is None and role.pending == first
    role.refused(first._replace(partition_epoch=9), VIEW.leader_epoch, 9, log)
    assert role.pending == first, "a refusal of another one"
    refuse(role, first, log)
    assert role.propose(log, LAG_MS, 0) == first
    role.changed(VIEW._replace(isr=(1, 2), partition_epoch=11), log, 0)
    again = role.propose(log, LAG_MS, 0)
    assert again is not None and again.partition_epoch == 11


def test_a_leader_knows_the_end_once_it_has_committed_what_it_began_with():
    role, log = leader()
    assert not role.knows_end
    fetch(role, log, 2, want(10))
    fetch(role, log, 3, want(10))
    assert role.knows_end


def test_a_replica_that_moved_away_is_forgotten_and_a_new_one_begins_with_nothing():
    role, log = leader()
    role.changed(VIEW._replace(replicas=(1, 2, 4), isr=(1, 2), partition_epoch=11), log, 0)
    with pytest.raises(InvalidRequest):
        fetch(role, log, 3, want(10))
    fetch(role, log, 2, want(10))
    assert role.high_watermark == 10
    fetch(role, log, 4, want(0, last_epoch=-1))
    assert role.propose(log, LAG_MS, 0) is None


@pytest.mark.parametrize("wrong", [{"leader": 2}, {"isr": (2, 3)}, {"leader_epoch": 3}])
def test_nobody_leads_who_was_not_elected(wrong):
    with pytest.raises(InvariantBroken):
        leader(view=VIEW._replace(**wrong))


def test_when_a_proposal_is_refused_commits_wait_no_more_for_who_was_proposed():
    role, log = leader(view=VIEW._replace(isr=(1, 2)))
    fetch(role, log, 3, want(10))
    proposal = role.propose(log, LAG_MS, 0)
    log.append(5, 5)
    log.flush()
    fetch(role, log, 2, want(15, last_epoch=5))
    assert role.high_watermark == 10
    assert refuse(role, proposal, log)
    assert role.high_watermark == 15


def test_a_copy_that_is_refused_when_the_partition_has_changed_does_not_end_the_proposal():
    role, log = leader(view=VIEW._replace(isr=(1, 2)))
    fetch(role, log, 3, want(10))
    proposal = role.propose(log, LAG_MS, 0)
    log.append(5, 5)
    log.flush()
    fetch(role, log, 2, want(15, last_epoch=5))
    role.refused(proposal, VIEW.leader_epoch, VIEW.partition_epoch + 1, log)
    assert role.pending == proposal and role.high_watermark == 10, "the first copy may have been taken"


def test_who_is_not_there_any_more_is_not_proposed():
    role, log = leader(view=VIEW._replace(isr=(1, 2)))
    fetch(role, log, 3, want(10))
    asked = []

    def lives(node: int, node_epoch: int) -> bool:
        asked.append((node, node_epoch))
        return False

    assert role.propose(log, LAG_MS, 0, lives) is None
    assert asked == [(3, 300)]


def test_a_deletion_is_done_when_all_that_could_lead_begin_behind_it():
    role, log = leader()
    log.delete_below(6)
    assert not role.is_deleted(6, log), "nobody was heard of yet"
    fetch(role, log, 2, want(10, start=6))
    fetch(role, log, 3, want(10, start=5))
    assert not role.is_deleted(6, log)
    assert role.is_deleted(5, log)
    role.changed(VIEW._replace(partition_epoch=11, isr=(1, 2)), log, 0)
    assert role.is_deleted(6, log), "who is not in sync is not elected"


def test_a_replica_that_still_has_what_was_deleted_does_not_come_into_sync():
    role, log = leader(view=VIEW._replace(isr=(1, 2)))
    fetch(role, log, 2, want(10))
    log.delete_below(6)
    fetch(role, log, 3, want(10, start=5))
    assert role.propose(log, LAG_MS, 0) is None
    fetch(role, log, 3, want(10, start=6))
    proposal = role.propose(log, LAG_MS, 0)
    assert proposal is not None and proposal.nodes == (1, 2, 3)


def test_a_replica_that_does_not_say_where_it_begins_is_not_waited_for():
    role, log = leader()
    log.delete_below(6)
    for node in (2, 3):
        fetch(role, log, node, want(10, start=-1))
    assert role.is_deleted(6, log)
