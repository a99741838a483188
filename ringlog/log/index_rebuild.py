"""Loads the indexes of segments, and rebuilds from the log what is missing or wrong."""

from __future__ import annotations

import logging

from ringlog.disk.api import Disk
from ringlog.errors import CorruptSegment
from ringlog.log.files import SegmentFiles
from ringlog.log.index import OffsetIndex, SegmentIndex, TimeIndex
from ringlog.log.jobs import Job, read_file, write_file
from ringlog.log.names import INDEX, LOG, TIME_INDEX, offset_name
from ringlog.log.replay import replay_index
from ringlog.log.scanner import Scratch, scan_file
from ringlog.log.segment import ActiveSegment
from ringlog.log.state import SealedEntry
from ringlog.records.checksum import crc32c

_log = logging.getLogger(__name__)


def load_indexes(
    disk: Disk, files: SegmentFiles, path: str, entry: SealedEntry
) -> Job[tuple[OffsetIndex, TimeIndex]]:
    """Both indexes, as the checksums in the partition's state vouch for them. Raises CorruptSegment when they
    must be rebuilt and the segment itself is not whole."""
    base = f"{path}/{offset_name(entry.base_offset, '')}"
    offsets = yield from _read_if_right(disk, base + INDEX, entry.index_crc)
    times = yield from _read_if_right(disk, base + TIME_INDEX, entry.time_index_crc)
    if offsets is not None and times is not None:
        return OffsetIndex.decode(entry.base_offset, offsets, entry.bytes), TimeIndex.decode(
            entry.base_offset, times
        )
    _log.warning("%s: an index is missing or wrong; rebuilding both from the log", base)
    index = SegmentIndex(entry.base_offset)
    yield from _add_from_log(disk, files, index, entry.bytes)
    index.finish()
    yield from write_file(disk, base + INDEX, index.offsets.encode())
    yield from write_file(disk, base + TIME_INDEX, index.times.encode())
    return index.offsets, index.times


def complete_index(disk: Disk, files: SegmentFiles, segment: ActiveSegment) -> Job[None]:
    """Fill the gap that a crash left in the indexes of a growing segment. Lookups are right with the gap, but slow."""
    end, saved = segment.index_gap_end, segment.saved
    if end:
        # What is in the files stays as it is: only what is new will be added to them.
        front = segment.index.head(saved.index_entries, saved.time_index_entries)
        yield from _add_from_log(disk, files, front, end, growing=segment.is_growing)
        if segment.index_gap_end:  # nobody else did it meanwhile
            segment.index.put_before(front, end)
            segment.index_gap_end = 0


def _add_from_log(
    disk: Disk, files: SegmentFiles, index: SegmentIndex, stop: int, *, growing: bool = False
) -> Job[None]:
    """Bring an index up to the batches below byte `stop`. `growing`: appends go on behind them."""
    base_offset, start = index.offsets.base_offset, index.offsets.last_position
    held = files.hold(base_offset, write=growing)
    try:
        end = yield from scan_file(
            disk,
            held.file,
            start,
            stop,
            lambda table: replay_index(index, table),
            expected_offset=base_offset if start == 0 else None,
            dense=False,
            level="crc",
            scratch=Scratch(),
        )
    finally:
        files.release(held)
    if end.fault is not None:
        name = offset_name(base_offset, LOG)
        raise CorruptSegment(f"{name} byte {end.fault.position}: {end.fault.field}: {end.fault.reason}")


def _read_if_right(disk: Disk, path: str, crc: int) -> Job[bytes | None]:
    if not disk.exists(path):
        return None
    data = yield from read_file(disk, path)
    return data if crc32c(data) == crc else None
