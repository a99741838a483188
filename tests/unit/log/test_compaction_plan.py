"""When a log is compacted, how far, and which segments become one."""

from __future__ import annotations

from ringlog.log.compaction_plan import (
    CompactionPlan,
    group_segments,
    may_drop_tombstones,
    plan_compaction,
)
from ringlog.log.segment import ActiveSegment, SealedSegment
from ringlog.log.settings import LogSettings
from ringlog.log.state import SealedEntry

COMPACT = LogSettings(compact=True)
NOW = 10**12


def sealed(base, next_offset, *, nbytes=100, youngest_ms=0, since_ms=0, quarantined=False):
    entry = SealedEntry(base, next_offset, nbytes, youngest_ms, 0, 0, quarantined, since_ms)
    return SealedSegment(entry)


def plan(*segments, start=0, compacted=0, settings=COMPACT, now_ms=NOW):
    return plan_compaction([*segments, ActiveSegment(10**6, 0)], start, compacted, settings, now_ms)


def test_a_pass_is_due_when_enough_of_the_bytes_are_dirty():
    clean, dirty = sealed(0, 10, nbytes=100), sealed(10, 20, nbytes=99)
    assert plan(clean, dirty, compacted=10) is None
    more = sealed(20, 30, nbytes=1)
    found = plan(clean, dirty, more, compacted=10)
    assert found == CompactionPlan(10, (clean, dirty, more), 0.5)


def test_the_active_segment_and_those_that_are_not_sealed_yet_are_left_alone():
    rolled = ActiveSegment(10, 0, position=10)
    first = sealed(0, 10)
    assert plan(first, rolled, sealed(20, 30)).segments == (first,)
    assert plan() is None


def test_records_that_are_too_young_end_the_pass():
    settings = LogSettings(compact=True, compaction_lag_min_ms=50)
    old, young = sealed(0, 10, youngest_ms=NOW - 50), sealed(10, 20, youngest_ms=NOW - 49)
    assert plan(old, young, sealed(20, 30), settings=settings).segments == (old,)


def test_records_from_the_future_are_compacted_unless_a_lag_is_asked_for():
    assert plan(sealed(0, 10, youngest_ms=NOW + 99)) is not None


def test_a_little_dirt_is_compacted_when_it_has_waited_long_enough():
    settings = LogSettings(compact=True, compaction_lag_max_ms=100)
    clean = sealed(0, 10, nbytes=10_000)
    assert plan(clean, sealed(10, 20, youngest_ms=NOW - 49), compacted=10, settings=settings) is None
    assert plan(clean, sealed(10, 20, youngest_ms=NOW - 50), compacted=10, settings=settings) is not None
    assert settings.roll_ms == 50


def test_corrupt_and_deleted_segments_are_passed_over():
    kept = sealed(20, 30)
    assert plan(sealed(0, 10), sealed(10, 20, quarantined=True), kept, start=10).segments == (kept,)


def test_a_pass_that_stopped_within_a_segment_goes_on_there():
    found = plan(sealed(0, 100), compacted=40)
    assert (found.start_offset, found.dirty_ratio) == (40, 1.0)


def test_tombstones_may_go_when_they_were_kept_for_their_time():
    settings = LogSettings(compact=True, delete_retention_ms=100)
    old, young = sealed(0, 10, since_ms=NOW - 100), sealed(0, 10, since_ms=NOW - 99)
    assert may_drop_tombstones(old, 10, settings, NOW)
    assert not may_drop_tombstones(young, 10, settings, NOW)
    assert not may_drop_tombstones(old, 9, settings, NOW), "part of it was never compacted"
    assert not may_drop_tombstones(sealed(0, 10), 10, settings, NOW)


def test_old_tombstones_make_a_pass_due_without_new_records():
    settings = LogSettings(compact=True, delete_retention_ms=100)
    assert plan(sealed(0, 10, since_ms=NOW - 99), compacted=10, settings=settings) is None
    assert plan(sealed(0, 10, since_ms=NOW - 100), compacted=10, settings=settings) is not None


def groups(*segments, start, settings=None):
    settings = settings or LogSettings(compact=True, segment_bytes=1 << 20)
    found = group_segments(CompactionPlan(start, segments, 1.0), settings, NOW)
    return [([s.base_offset for s in group.segments], group.tombstones_since_ms) for group in found]


def test_small_neighbours_become_one_up_to_the_size_of_a_segment():
    half = 1 << 19
    assert groups(sealed(0, 1, nbytes=half), sealed(1, 2, nbytes=half), sealed(2, 3, nbytes=1), start=0) == [
        ([0, 1], NOW),
        ([2], NOW),
    ]


def test_segments_with_a_corrupt_one_between_them_stay_apart():
    assert groups(sealed(0, 1), sealed(2, 3), start=0) == [([0], NOW), ([2], NOW)]


def test_segments_too_far_apart_for_an_index_stay_apart():
    far = 2**31 + 5
    assert len(groups(sealed(0, 5), sealed(5, far), start=0)) == 2


def test_tombstones_of_different_ages_do_not_wait_for_one_another():
    young = NOW - 10
    assert groups(sealed(0, 1, since_ms=young), sealed(1, 2, since_ms=young), sealed(2, 3), start=2) == [
        ([0, 1], young),
        ([2], NOW),
    ]


def test_a_segment_without_tombstones_joins_any():
    assert groups(sealed(0, 1), sealed(1, 2), start=1) == [([0, 1], NOW)]
    gone = NOW - 10**9
    assert groups(sealed(0, 1, since_ms=gone), sealed(1, 2), start=1) == [([0, 1], NOW)]
