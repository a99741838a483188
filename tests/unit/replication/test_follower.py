"""A follower: what it appends, what it cuts, and what it never cuts."""

from __future__ import annotations

import pytest

from ringlog.errors import CorruptBatch, PartitionBusy, ReplicaHalted
from ringlog.replication.follower import Append, BeginAt, Follower, Ignore, Truncate
from ringlog.replication.messages import Part
from ringlog.replication.view import PartitionView
from tests.support.replica_world import PARTITION, MemoryLog, spans

VIEW = PartitionView(PARTITION, 1, 5, 10, (1, 2, 3), (1, 2, 3))


def part(offset: int, *, epoch: int = 5, watermark: int = 0, start: int = 0, diverging=(-1, -1)) -> Part:
    return Part(PARTITION, 0, epoch, offset, watermark, start, 0, *diverging)


def test_it_asks_from_its_end_and_says_what_it_holds():
    log = MemoryLog(spans((0, 9, 4)))
    log.add(spans((10, 14, 5)))
    want = Follower(2, VIEW, 0).want(log, 1000)
    assert (want.leader_epoch, want.fetch_offset, want.last_epoch, want.held_offset) == (5, 15, 5, 10)


def test_batches_that_continue_the_log_are_appended_also_with_gaps():
    log, role = MemoryLog(spans((0, 9, 4))), Follower(2, VIEW, 0)
    assert role.take(part(10), spans((10, 12, 4), (20, 20, 5)), log) == Append()


@pytest.mark.parametrize("batches", [spans((9, 12, 4)), spans((10, 9, 4)), spans((10, 12, 4), (12, 14, 4))])
def test_batches_that_overlap_are_refused(batches):
    with pytest.raises(CorruptBatch, match="base_offset"):
        Follower(2, VIEW, 0).take(part(10), batches, MemoryLog(spans((0, 9, 4))))


@pytest.mark.parametrize("batches", [spans((10, 12, 3)), spans((10, 12, 6)), spans((10, 11, 5), (12, 14, 4))])
def test_batches_whose_epochs_go_back_or_are_of_the_future_are_refused(batches):
    with pytest.raises(CorruptBatch, match="leader_epoch"):
        Follower(2, VIEW, 0).take(part(10), batches, MemoryLog(spans((0, 9, 4))))


def test_an_answer_of_another_epoch_or_to_another_question_is_ignored():
    log, role = MemoryLog(spans((0, 9, 4))), Follower(2, VIEW, 0)
    assert role.take(part(10, epoch=4, watermark=10), spans((10, 12, 4)), log) == Ignore()
    assert role.take(part(10, epoch=6, diverging=(3, 0)), [], log) == Ignore()
    assert role.take(part(8, watermark=10), spans((8, 9, 4)), log) == Ignore()
    assert role.high_watermark == 0


def test_it_is_cut_where_both_histories_agree_at_the_latest():
    log, role = MemoryLog(spans((0, 9, 1), (10, 19, 2), (20, 29, 3))), Follower(2, VIEW, 0)
    assert role.take(part(30, diverging=(2, 15)), [], log) == Truncate(15), "the leader's epoch 2 is shorter"
    assert role.take(part(30, diverging=(2, 25)), [], log) == Truncate(20), "ours is"
    assert role.take(part(30, diverging=(0, 0)), [], log) == Truncate(0), "we have nothing that old"


def test_what_is_committed_is_never_cut():
    log, role = MemoryLog(spans((0, 9, 1), (10, 19, 2))), Follower(2, VIEW, 12)
    with pytest.raises(ReplicaHalted, match="12 was committed"):
        role.take(part(20, diverging=(1, 10)), [], log)


def test_in_a_compacted_log_an_epoch_may_have_vanished_from_the_leaders_history():
    log, role = MemoryLog(spans((0, 9, 1), (10, 19, 2))), Follower(2, VIEW._replace(compacted=True), 12)
    assert role.take(part(20, diverging=(1, 10)), [], log) == Truncate(10)


def test_an_empty_log_cannot_be_cut_it_halts_once_its_leader_knows_that_it_is_empty(monkeypatch):
    log, role = MemoryLog(spans((0, 9, 1), (10, 19, 2))), Follower(2, VIEW._replace(compacted=True), 20)
    log.delete_below(20)
    with monkeypatch.context() as patch, pytest.raises(PartitionBusy):
        patch.setattr(MemoryLog, "durable_start_offset", 10)
        role.take(part(20, diverging=(1, 15)), [], log)
    with pytest.raises(ReplicaHalted, match="below offset 20, where this log begins"):
        role.take(part(20, diverging=(1, 15)), [], log)


def test_it_begins_anew_where_the_leaders_log_begins():
    log, role = MemoryLog(spans((0, 9, 4))), Follower(2, VIEW, 0)
    assert role.take(part(10, start=50), [], log) == BeginAt(50)


def test_it_begins_anew_where_the_leaders_log_begins_within_a_batch_that_it_has_another_part_of():
    log, role = MemoryLog(spans((0, 9, 4))), Follower(2, VIEW, 0)
    assert role.take(part(10, start=10), spans((8, 12, 5)), log) == BeginAt(10)
    assert role.take(part(10, start=10), spans((10, 12, 5)), log) == Append()


def test_it_learns_what_is_committed_up_to_its_own_end():
    log, role = MemoryLog(spans((0, 9, 4))), Follower(2, VIEW, 0)
    answer, batches = part(10, watermark=14), spans((10, 11, 5))
    role.take(answer, batches, log)
    assert role.high_watermark == 10
    log.add(batches)
    role.appended(answer, log)
    assert role.high_watermark == 12
    role.take(part(12, watermark=3), [], log)
    assert role.high_watermark == 12


def test_its_log_begins_where_the_leaders_does_as_far_as_it_is_committed_and_held():
    log, role = MemoryLog(spans((0, 9, 4))), Follower(2, VIEW, 0)
    assert role.take(part(10, watermark=8, start=6), [], log) == Ignore()
    assert role.start_due(log) == 6
    log.held_offset = 5
    assert role.start_due(log) == 5, "what a crash may take away is no place to begin at"
    log.delete_below(5)
    assert role.start_due(log) is None
    log.flush()
    assert role.start_due(log) == 6


def test_its_log_never_begins_behind_what_it_knows_to_be_committed():
    log, role = MemoryLog(spans((0, 9, 4))), Follower(2, VIEW, 3)
    role.take(part(10, start=6), [], log)
    assert role.start_due(log) == 3


def test_it_says_where_its_log_begins():
    log = MemoryLog(spans((0, 9, 4)))
    log.delete_below(4)
    assert Follower(2, VIEW, 0).want(log, 1000).start_offset == 4


def test_an_empty_log_from_before_an_unclean_election_begins_where_its_leader_does():
    log = MemoryLog()
    log.start_offset = log.held_offset = log._end = 50
    role = Follower(2, VIEW._replace(unclean_epoch=5), 50)
    assert role.take(part(50, diverging=(-1, 10)), [], log) == BeginAt(0)
    assert role.high_watermark == 0
    with pytest.raises(ReplicaHalted):
        Follower(2, VIEW, 50).take(part(50, diverging=(-1, 10)), [], log)
