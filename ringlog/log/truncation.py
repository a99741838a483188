"""Removes the end of a log, as a follower does when its leader's history differs from its own.

Order matters: first the recovery point moves below the cut, then bytes go, the last segment first. A crash in
between leaves a log that is whole and still has some of its end; the truncation is then asked for again.
"""

from __future__ import annotations

import numpy as np

from ringlog.errors import CorruptSegment, OffsetOutOfRange, check
from ringlog.log.copying import save_range
from ringlog.log.events import disk_error
from ringlog.log.holes import cut_to_hole
from ringlog.log.housekeeping import Housekeeper
from ringlog.log.index import SegmentIndex
from ringlog.log.jobs import Job, must, run_now
from ringlog.log.names import INDEX, LOG, TIME_INDEX, free_name, offset_name
from ringlog.log.new_end import mark_at, remove_snapshots_above
from ringlog.log.partition import PartitionLog
from ringlog.log.replay import replay_index
from ringlog.log.scanner import Scratch, scan_file
from ringlog.log.segment import ActiveSegment, Segment


def cut(log: PartitionLog, housekeeper: Housekeeper, offset: int, now_ms: int, scratch: Scratch) -> None:
    """Cut an idle log now, as `truncate_files` does; it is fenced when the disk fails."""
    log.must_be_open()
    if not log.log_start_offset <= offset <= log.next_offset:
        raise OffsetOutOfRange(
            f"{log.name}: cannot truncate to {offset}, outside of [{log.log_start_offset}, {log.next_offset}]"
        )
    try:
        if offset < log.next_offset:
            run_now(log.context.disk, truncate_files(log, housekeeper, offset, now_ms, scratch))
    except OSError as error:
        # Some files may be gone: an append to one that was set aside would be acknowledged and lost.
        log.fence(disk_error(log.name, "truncate", error))
        raise


def truncate_files(
    log: PartitionLog, housekeeper: Housekeeper, offset: int, now_ms: int, scratch: Scratch
) -> Job[None]:
    """Cut everything from the batch that holds `offset` on. The log must be idle, and is to be reopened afterwards."""
    check(log.idle and housekeeper.quiet, "a log is truncated when nothing is in flight")
    if offset == log.hole_offset:
        yield from cut_to_hole(log, housekeeper, now_ms, scratch)
        return
    segment = log.segment_of(offset)
    kept = yield from _kept_part(log, housekeeper, segment, offset, scratch)
    mark = yield from mark_at(log, housekeeper, kept, now_ms, scratch)
    # Batches go as a whole, also one that the log started in the middle of.
    log.log_start_offset = min(log.log_start_offset, kept.next_offset)
    # Index files are left alone: until the new state stands, the old one vouches for what is in them.
    yield from housekeeper.save_mark(mark, with_indexes=False)
    remove_snapshots_above(log, kept.next_offset)
    for later in reversed([s for s in log.segments if s.base_offset > segment.base_offset]):
        _set_segment_aside(log, later)
        must((yield log.context.disk.flush_dir(log.path)), "flush directory")
    yield from _cut_file(log, segment, kept.position, scratch)


def _kept_part(
    log: PartitionLog, housekeeper: Housekeeper, segment: Segment, offset: int, scratch: Scratch
) -> Job[ActiveSegment]:
    """The segment as it will be: everything before the batch that holds the offset."""
    if segment.quarantined:
        raise CorruptSegment(
            f"{log.name}: cannot truncate to {offset}: the segment from {segment.base_offset} on is in quarantine"
        )
    kept = ActiveSegment(segment.base_offset, log.active.created_ms, _index_below(segment, offset))
    kept.next_offset = segment.base_offset
    start = kept.index.offsets.last_position  # of a batch that is kept, where there is one
    is_found = False

    def visit(table: np.ndarray) -> None:
        nonlocal is_found
        below = table[table["last_offset"] < offset]
        is_found = len(below) < len(table)
        if len(below):
            replay_index(kept.index, below)
            kept.position = int(below["position"][-1]) + int(below["length"][-1])
            kept.next_offset = int(below["last_offset"][-1]) + 1

    held = log.files.hold(segment.base_offset, write=isinstance(segment, ActiveSegment))
    try:
        end = yield from scan_file(
            log.context.disk,
            held.file,
            start,
            segment.position,
            visit,
            expected_offset=None if start else segment.base_offset,
            dense=False,
            scratch=scratch,
            is_over=lambda: is_found,
        )
    finally:
        log.files.release(held)
    if end.fault is not None and end.next_offset < offset:
        raise housekeeper.found_rotten(segment, f"cannot truncate to {offset}: {end.fault}")
    return kept


def _index_below(segment: Segment, offset: int) -> SegmentIndex:
    """What the segment's index knows of the batches below an offset: they need not be read for that. Nothing, where it
    is not in memory, or not whole."""
    if isinstance(segment, ActiveSegment):
        index = segment.index if segment.index_gap_end == 0 else None
    elif segment.offsets is not None and segment.times is not None:
        index = SegmentIndex.resume(segment.offsets, segment.times, -1, segment.base_offset)
    else:
        index = None
    return index.below(offset) if index is not None else SegmentIndex(segment.base_offset)


def _set_segment_aside(log: PartitionLog, segment: Segment) -> None:
    disk = log.context.disk
    name = offset_name(segment.base_offset, LOG)
    if disk.exists(f"{log.path}/{name}"):
        disk.rename(f"{log.path}/{name}", f"{log.path}/{free_name(disk, log.path, name, 'cut')}")
    for suffix in (INDEX, TIME_INDEX):
        derived = f"{log.path}/{offset_name(segment.base_offset, suffix)}"
        if disk.exists(derived):
            disk.remove(derived)


def _cut_file(log: PartitionLog, segment: Segment, position: int, scratch: Scratch) -> Job[None]:
    """Save the end of a segment's file, then cut it off. The shard stands still for the copy: what is cut is what one
    leader wrote and nobody else had, so mostly a few batches. It is long where a leader took much with acks=1 that no
    follower could fetch, or after an unclean election; whole segments behind it are renamed, not copied."""
    disk = log.context.disk
    path = log.files.path_of(segment.base_offset)
    if position == segment.position or not disk.exists(path):
        return
    file = disk.open(path, write=True, direct=True)
    try:
        name = free_name(disk, log.path, f"{offset_name(segment.base_offset, LOG)}.{position}", "cut")
        yield from save_range(disk, file, position, segment.position, f"{log.path}/{name}", scratch)
        disk.truncate(file, position)
        must((yield disk.flush(file)), "flush")
    finally:
        disk.close(file)
