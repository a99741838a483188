"""Judges what lies behind the last good batch of a scanned segment: nothing, a torn write, or corruption."""

from __future__ import annotations

import mmap
from typing import NamedTuple

import numpy as np

from ringlog.disk.api import Disk, File
from ringlog.errors import CorruptBatch
from ringlog.limits import BATCH_BYTES_MAX, BLOCK_BYTES, MIB
from ringlog.log.extent import block_ceil, block_floor
from ringlog.log.jobs import Job, must
from ringlog.log.scanner import ScanEnd, Scratch, read_range
from ringlog.records.scan import find_batch, scan

_SEARCH_STEP = 64 * MIB


class Verdict(NamedTuple):
    """What is behind the end, and what follows from it."""

    torn_end: int
    """The end of the last block that is not all zeros; a batch may end in zeros, so no finer cut is safe.
    Beyond the end of the log: a write was torn."""
    next_offset: int
    corrupt: CorruptBatch | None = None
    """Set when the bad batch was once flushed: then the offsets up to `next_offset` are taken."""


def judge_end(
    disk: Disk, file: File, end: ScanEnd, size: int, reach_bytes: int, next_base: int | None, scratch: Scratch
) -> Job[Verdict]:
    """Decide what the end of a scan means. `next_base`: the first offset of a segment that follows.

    `reach_bytes`: how far one write can reach; 0 where any number of writes may have been lost.
    """
    last = yield from _last_nonzero(disk, file, end.position, size, scratch)
    torn_end = min(block_ceil(last), size) if last > end.position else end.position
    if next_base is not None and end.next_offset != next_base:
        # The next segment was begun only after all of this one was flushed.
        fault = end.fault or CorruptBatch(
            "base_offset", end.position, f"the next segment begins at {next_base}"
        )
        return Verdict(torn_end, next_base, fault)
    if end.fault is None or reach_bytes == 0 or torn_end <= end.position + reach_bytes:
        return Verdict(torn_end, end.next_offset)
    beyond = yield from _last_batch(disk, file, end.position + reach_bytes, torn_end, end.next_offset)
    if beyond is None:
        return Verdict(torn_end, end.next_offset)
    return Verdict(torn_end, beyond, end.fault)


def _last_nonzero(disk: Disk, file: File, start: int, stop: int, scratch: Scratch) -> Job[int]:
    """The byte after the last one in [start, stop) that is not zero; `start` when all are."""
    last = start

    def visit(position: int, data: memoryview) -> None:
        nonlocal last
        hits = np.flatnonzero(np.frombuffer(data, np.uint8))
        if hits.size:
            last = position + int(hits[-1]) + 1

    yield from read_range(disk, file, start, stop, visit, scratch)
    return last


def _last_batch(disk: Disk, file: File, start: int, stop: int, min_offset: int) -> Job[int | None]:
    """The offset after the last whole batch that begins in [start, stop), or None when there is none."""
    window = memoryview(mmap.mmap(-1, _SEARCH_STEP + block_ceil(BATCH_BYTES_MAX) + BLOCK_BYTES))
    found_next: int | None = None
    for begin in range(block_floor(start), stop, _SEARCH_STEP):
        length = min(window.nbytes, block_ceil(stop) - begin)
        got = must((yield disk.read(file, window[:length], begin)), f"read {file.path}")
        data = window[: min(got, stop - begin)]
        at = find_batch(data, max(start - begin, 0), min_offset=min_offset)
        while at >= 0:
            run = scan(data[at:], level="crc")
            found_next = min_offset = int(run.table["last_offset"][-1]) + 1
            at = find_batch(data, at + run.end, min_offset=min_offset)
    return found_next
