"""Walks the batches of a segment file from a byte on, reading ahead while it checks.

Three windows take turns: while one is checked the next two are being read. A batch that crosses the end of a window
is carried over in front of the next one, so that every batch is seen in one piece:

    │        carry room        │          window           │
                     │ rest of │ read from the file …
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ringlog.disk.api import Disk, File
from ringlog.errors import CorruptBatch
from ringlog.limits import BATCH_BYTES_MAX, BLOCK_BYTES, MIB
from ringlog.log.extent import block_ceil, block_floor
from ringlog.log.jobs import Job, must
from ringlog.records.scan import Level, scan

_WINDOW_BYTES = 2 * MIB
_WINDOWS = 3
CARRY_BYTES = block_ceil(BATCH_BYTES_MAX) + BLOCK_BYTES


class ScanEnd(NamedTuple):
    """Where a walk ended, and why."""

    position: int
    """The byte after the last good batch."""
    next_offset: int
    leader_epoch: int
    fault: CorruptBatch | None
    """None when the file ends exactly there. Its position counts from the start of the file."""


class Scratch:
    """Memory for walks, used by one at a time. Pages that a walk never touches cost nothing."""

    def __init__(self) -> None:
        self.windows = [memoryview(mmap.mmap(-1, CARRY_BYTES + _WINDOW_BYTES)) for _ in range(_WINDOWS)]

    @property
    def window(self) -> memoryview:
        """Some whole blocks, for those who need no carry."""
        return self.windows[0][CARRY_BYTES:]


def scan_file(
    disk: Disk,
    file: File,
    start: int,
    stop: int,
    visit: Callable[[np.ndarray], None],
    *,
    expected_offset: int | None,
    min_epoch: int = -1,
    dense: bool = True,
    level: Level = "full",
    scratch: Scratch,
    is_over: Callable[[], bool] = lambda: False,
) -> Job[ScanEnd]:
    """Walk the bytes [start, stop) and show each run of good batches to `visit`, as BATCH_TABLE rows whose
    positions count from the start of the file. Ends at the first batch that is not good, and after a window when
    `is_over` says so."""
    position, next_offset, epoch = start, -1 if expected_offset is None else expected_offset, min_epoch
    carry = memoryview(b"")
    begin = block_floor(start)
    turn = 0
    ahead = deque(
        _read_window(disk, file, scratch.windows[at], begin + at * _WINDOW_BYTES, stop)
        for at in range(_WINDOWS - 1)
        if begin + at * _WINDOW_BYTES < stop
    )
    while ahead:
        got = yield ahead.popleft()
        if got < 0:
            yield from _let_go(ahead)
        must(got, f"read {file.path}")
        window = scratch.windows[turn]
        end, following = min(begin + got, stop), begin + _WINDOW_BYTES
        # The carry lies in the window before: it is moved before that one is read into again.
        first = CARRY_BYTES - carry.nbytes
        window[first:CARRY_BYTES] = carry
        is_last = end < following or end == stop
        later = begin + (_WINDOWS - 1) * _WINDOW_BYTES
        if not is_last and later < stop:
            ahead.append(_read_window(disk, file, scratch.windows[turn - 1], later, stop))
        turn = (turn + 1) % _WINDOWS
        skipped = max(position - begin, 0)  # of the first block, when `start` is inside it
        data = window[first + skipped : CARRY_BYTES + end - begin]
        expected = next_offset if next_offset >= 0 else None
        found = scan(data, expected_offset=expected, min_epoch=epoch, dense=dense, level=level)
        if len(found.table):
            rows = found.table.copy()
            rows["position"] += position
            visit(rows)
            next_offset = int(rows["last_offset"][-1]) + 1
            epoch = int(rows["leader_epoch"][-1])
            position += found.end
        fault = None if found.incomplete and not is_last else found.fault
        if fault is not None or is_last or is_over():
            yield from _let_go(ahead)
        if fault is not None:
            at = position - found.end + fault.position
            return ScanEnd(position, next_offset, epoch, CorruptBatch(fault.field, at, fault.reason))
        carry = data[found.end :]
        begin = following
    return ScanEnd(position, next_offset, epoch, None)


def _let_go(ahead: deque[int]) -> Job[None]:
    """Wait for reads that nobody needs any more: the memory is the disk's until they complete."""
    while ahead:
        yield ahead.popleft()


def _read_window(disk: Disk, file: File, window: memoryview, begin: int, stop: int) -> int:
    length = min(_WINDOW_BYTES, block_ceil(stop) - begin)
    token = disk.read(file, window[CARRY_BYTES : CARRY_BYTES + length], begin)
    disk.submit()  # now: it is to be read while the window before it is checked
    return token


def read_range(
    disk: Disk, file: File, start: int, stop: int, visit: Callable[[int, memoryview], None], scratch: Scratch
) -> Job[None]:
    """Show the raw bytes [start, stop) of a file to `visit`, a window at a time, with where each begins."""
    window = scratch.window
    begin = block_floor(start)
    while begin < stop:
        length = min(window.nbytes, block_ceil(stop) - begin)
        got = must((yield disk.read(file, window[:length], begin)), f"read {file.path}")
        low, high = max(start, begin), min(stop, begin + got)
        if low < high:
            visit(low, window[low - begin : high - begin])
        if got < length:
            return
        begin += length
