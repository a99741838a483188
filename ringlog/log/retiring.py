"""What becomes of the files of segments that were deleted, compacted or set aside, when nobody needs them any more.

Both follow a saved state that no longer needs them: after a crash in between, opening the log does the rest.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ringlog.disk.api import Disk
from ringlog.limits import ROTTEN_SEGMENTS_KEPT
from ringlog.log.jobs import Job, file_size, must
from ringlog.log.known_files import FileKind, known_file
from ringlog.log.names import BAD, CLEAN, INDEX, LOG, SPARE, TIME_INDEX, offset_name
from ringlog.log.removal import delete_file, delete_some
from ringlog.log.segment import SealedSegment
from ringlog.log.state import PartitionState

if TYPE_CHECKING:
    from ringlog.log.partition import PartitionLog

_logger = logging.getLogger(__name__)

SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX)


def delete_segment(log: PartitionLog, base_offset: int) -> Job[None]:
    """Delete the files of a segment that no state names. What cannot be deleted is left for the next opening."""
    disk = log.context.disk
    log.files.drop(base_offset)
    try:
        for suffix in SEGMENT_SUFFIXES:
            path = f"{log.path}/{offset_name(base_offset, suffix)}"
            if disk.exists(path):
                yield from delete_file(disk, path, file_size(disk, path))
        must((yield disk.flush_dir(log.path)), f"flush directory {log.path}")
    except OSError as error:
        _logger.warning("%s: segment %d was not deleted: %s", log.name, base_offset, error)


def swap_segment(log: PartitionLog, new: SealedSegment, merged: Sequence[int]) -> Job[None]:
    """Give what compaction wrote its name, and delete the other segments that it holds the records of."""
    disk = log.context.disk
    log.files.drop(new.base_offset)
    replaced = log.files.path_of(new.base_offset)
    old = f"{replaced}.old{CLEAN}"
    # Not by the rename of the new one over it: that would give back all its space at once, and hold everybody up.
    disk.rename(replaced, old)
    for suffix in SEGMENT_SUFFIXES:
        path = f"{log.path}/{offset_name(new.base_offset, suffix)}"
        disk.rename(path + CLEAN, path)
    # Before anyone gets a turn: who reads from now on looks for the name.
    log.files.renamed(new.base_offset)
    new.is_clean_named = False
    log.context.indexes.used(new)
    must((yield disk.flush_dir(log.path)), f"flush directory {log.path}")
    yield from delete_file(disk, old, file_size(disk, old))
    for base_offset in merged:
        yield from delete_segment(log, base_offset)


def spares(disk: Disk, path: str) -> list[tuple[str, int]]:
    """Names and sizes of files in a directory that were set aside because of holes, and that nobody needs when their
    records are there again: all but a few rotten ones."""
    good, rotten = [], []
    for name, size in sorted(disk.list_dir(path)):
        known = known_file(name)
        if known is not None and known.is_aside and known.kind is FileKind.SEGMENT:
            if name.endswith(f".{SPARE}"):
                good.append((name, size))
            elif name.endswith(f".{BAD}"):
                rotten.append((name, size))
    return good + rotten[:-ROTTEN_SEGMENTS_KEPT]


def delete_spares(disk: Disk, path: str, files: Sequence[tuple[str, int]]) -> Job[Sequence[tuple[str, int]]]:
    """Delete some of them; returns those that are left. What cannot be deleted is so until the log is opened again."""
    try:
        return (yield from delete_some(disk, path, files))
    except OSError as error:
        _logger.warning("%s: spare files were not deleted: %s", path, error)
        return ()


def superseded(state: PartitionState, sizes: Mapping[int, int]) -> list[int]:
    """Segment files that the state proves to be done with: below the start of the log, where the catalogue does not
    reach, or within a segment of the catalogue that was made of several."""
    starts = [entry.base_offset for entry in state.sealed]
    first = starts[0] if starts else state.active.base_offset
    found = []
    for base in sizes:
        if base < first:
            done_with = first <= state.log_start_offset
        else:
            within = bisect_right(starts, base) - 1
            # Only beside the whole segment that took its place: where that is missing, this may be all there is.
            replaced = within >= 0 and sizes.get(starts[within]) == state.sealed[within].bytes
            done_with = replaced and starts[within] < base < state.sealed[within].next_offset
        if done_with:
            found.append(base)
    return found
