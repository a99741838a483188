"""What is a violation in logs that were not closed, and in compacted ones."""

from __future__ import annotations

import struct

from msgspec.structs import replace

from ringlog.log.findings import Rule
from ringlog.log.names import STATE_NAME
from ringlog.log.verify import verify_partition
from ringlog.records.encode import encode
from tests.support.planted import FIRST, violations
from tests.support.sample_logs import SampleLog, closed_log, crashed_log


def test_a_broken_batch_below_the_recovery_point_is_a_violation_also_in_a_log_that_was_not_closed():
    log = crashed_log()
    active = log.segments()[-1]
    log.flip(active, 100)
    assert (Rule.WHOLE_BATCHES, log.file(active), 0) in violations(log)


def test_a_whole_batch_further_than_one_write_reaches_behind_a_broken_one_is_a_violation():
    log = crashed_log()
    state, active = log.state(), log.segments()[-1]
    log.put(STATE_NAME, replace(state, reach_bytes=1000).encode())
    broken = int(log.batches(active)["position"].searchsorted(state.active.position))
    at = log.position(active, broken)
    log.flip(active, at + 100)
    assert violations(log) == [(Rule.END, log.file(active), at)]


def test_an_end_that_the_next_segment_does_not_continue_is_a_violation():
    log = crashed_log()
    state = log.state()
    # As after a crash before the second segment was sealed: the state knows of the first one only.
    second = int(log.segments()[1][:20])
    point = replace(state.active, base_offset=second, next_offset=second, position=0, max_timestamp=-1)
    saved = replace(point.indexes, index_entries=0, index_crc=0, time_index_entries=0, time_index_crc=0)
    point = replace(point, max_timestamp_offset=second, indexes=saved)
    epochs = [start for start in state.epochs if start.offset < second]
    log.put(
        STATE_NAME,
        replace(state, active=point, sealed=state.sealed[:1], epochs=epochs, has_producers=False).encode(),
    )
    assert violations(log) == []
    last = log.position(log.segments()[1], -1)
    log.flip(log.segments()[1], last + 100)
    assert (Rule.DENSE_OFFSETS, log.file(log.segments()[1]), last) in violations(log)


def _compacted() -> SampleLog:
    """A log without a state, whose second batch compaction took away."""
    log = SampleLog()
    log.close()
    for name in log.names():
        log.disk.remove(log.file(name))
    first, third = (encode([b"a", b"b"], timestamps=1, base_offset=at, leader_epoch=0) for at in (10, 20))
    log.put("00000000000000000008.log", first + third)
    log.put(f"{STATE_NAME}.bad", b"")
    return log


def test_offsets_may_skip_only_where_the_log_is_compacted():
    log = _compacted()
    assert violations(log, compacted=True) == []
    # Without a state every byte is above the recovery point, where a gap ends the log.
    notes = verify_partition(log.disk, log.path)
    assert (Rule.END, 0) in [(f.rule, f.byte) for f in notes]


def test_offsets_that_fall_are_a_violation_also_where_the_log_is_compacted():
    log = closed_log()
    at = log.position(f"{FIRST}.log", 7)
    log.poke(f"{FIRST}.log", at, struct.pack(">q", 0))
    assert (Rule.RISING_OFFSETS, log.file(f"{FIRST}.log"), at) in violations(log, compacted=True)
