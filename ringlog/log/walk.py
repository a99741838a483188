"""Walks all of a segment file, good or bad: runs of whole batches, and whatever stands between them.

For tools that look at files offline. Where recovery's scanner ends at the first fault, a walk says what is
wrong and goes on at the next whole batch; it waits for each read, and holds a bounded part of the file.

    │ batch │ batch │ broken bytes │ batch │ broken bytes │ zeros │
    └───── Run ─────┴──── Broken ──┴─ Run ─┴──── Broken ──┴ Zeros ┘
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ringlog.disk.api import Disk, File
from ringlog.errors import CorruptBatch
from ringlog.limits import BATCH_BYTES_MAX, MIB
from ringlog.log.jobs import must
from ringlog.records.format import LENGTH_PREFIX_BYTES
from ringlog.records.scan import find_batch, scan

_STEP_BYTES = 4 * MIB
_SEARCH_BYTES = BATCH_BYTES_MAX + _STEP_BYTES
"""What must lie behind a byte to be sure whether a batch begins there, and some to move on by."""


class Run(NamedTuple):
    """Whole batches, one after another, with right CRCs."""

    table: np.ndarray
    """BATCH_TABLE rows; positions count from the start of the file."""
    data: memoryview
    """The bytes of all these batches. They stay there until the next item of the walk is asked for."""

    @property
    def position(self) -> int:
        return int(self.table["position"][0])

    @property
    def end(self) -> int:
        return self.position + self.data.nbytes

    def batch(self, row: int) -> memoryview:
        """The bytes of one of the batches."""
        begin = int(self.table["position"][row]) - self.position
        return self.data[begin : begin + int(self.table["length"][row])]


class Broken(NamedTuple):
    """Bytes that are no whole batch, up to the next one or to the last byte that is not zero."""

    position: int
    end: int
    fault: CorruptBatch
    """Why no batch begins at `position`. Its position counts from the start of the file."""
    header: Any = None
    """The BATCH_TABLE row that the bytes claim to be, where only their CRC is wrong."""


class Zeros(NamedTuple):
    """Space behind the content: nothing but zeros up to the end of the file."""

    position: int
    end: int


Item = Run | Broken | Zeros


def walk(disk: Disk, path: str) -> Iterator[Item]:
    """Everything in a segment file, in order and without gaps. Opens it for reading only; raises OSError.

    The file may grow or shrink meanwhile, as that of a running node does: what is shown is what was read.
    """
    file = disk.open(path)
    try:
        yield from _Walk(_Window(disk, file)).items()
    finally:
        disk.close(file)


class _Walk:
    def __init__(self, window: _Window) -> None:
        self._window = window
        self._content_end: int | None = None

    def items(self) -> Iterator[Item]:
        window, position, wanted = self._window, 0, _STEP_BYTES
        while position < window.stop:
            data = window.view(position, wanted, at_most=max(wanted, _STEP_BYTES))
            if not data.nbytes:
                return
            found = scan(data, level="crc")
            if found.end:
                table = found.table.copy()
                table["position"] += position
                yield Run(table, data[: found.end])
                position += found.end
                wanted = _STEP_BYTES
                continue
            assert found.fault is not None
            if found.incomplete and position + data.nbytes < window.stop:
                wanted = _claimed_bytes(data)
                continue
            fault = CorruptBatch(found.fault.field, position + found.fault.position, found.fault.reason)
            header = _header(data) if found.fault.field == "crc" else None
            following = self._next_batch(position)
            if header is not None and position + int(header["length"]) == window.stop:
                following = max(following, window.stop)  # its last bytes are its own, though they are zeros
            if position < following:
                yield Broken(position, following, fault, header)
            if following >= self._end_of_content() and following < window.stop:
                yield Zeros(following, window.stop)
                return
            position, wanted = following, _STEP_BYTES

    def _next_batch(self, position: int) -> int:
        """Where the next whole batch begins behind a byte where none does; else the end of the content."""
        window, begin = self._window, position
        while begin < self._end_of_content():
            data = window.view(begin, _SEARCH_BYTES)
            at = find_batch(data, 0, min_offset=0)
            # A batch that begins in the last BATCH_BYTES_MAX bytes may be preceded by one that is cut off here.
            is_all = begin + data.nbytes >= window.stop
            sure = data.nbytes if is_all else data.nbytes - BATCH_BYTES_MAX
            if 0 <= at < sure:
                return begin + at
            begin += sure
        return max(position, self._end_of_content())

    def _end_of_content(self) -> int:
        """The byte behind the last one that is not zero. Looked for once, from the end."""
        if self._content_end is None:
            self._content_end = self._window.last_nonzero()
        return min(self._content_end, self._window.stop)


class _Window:
    """A part of a file in memory that moves forward. A view is good until the next call."""

    def __init__(self, disk: Disk, file: File) -> None:
        self._disk = disk
        self._file = file
        self._memory = memoryview(mmap.mmap(-1, 2 * _SEARCH_BYTES))
        self._begin = 0
        self._filled = 0
        self.stop = disk.size(file)
        """The end of the file; earlier when it turns out to have become shorter."""

    def view(self, position: int, at_least: int, at_most: int = 2 * _SEARCH_BYTES) -> memoryview:
        """The bytes from a position on: at least so many, or all up to the end of the file."""
        if self._begin + self._filled < min(position + at_least, self.stop):
            self._move_to(position, at_most)
        first = position - self._begin
        return self._memory[first : min(first + at_most, self._filled)]

    def _move_to(self, position: int, at_most: int) -> None:
        kept = max(self._begin + self._filled - position, 0)
        if kept:
            self._memory[:kept] = self._memory[self._filled - kept : self._filled]
        self._begin, self._filled = position, kept
        wanted = min(at_most, self.stop - position)
        while self._filled < wanted:
            got = self._read(self._memory[self._filled : wanted], position + self._filled)
            if got == 0:
                self.stop = position + self._filled
                return
            self._filled += got

    def last_nonzero(self) -> int:
        memory = memoryview(bytearray(_STEP_BYTES))
        end = self.stop
        while end > 0:
            begin = max(end - _STEP_BYTES, 0)
            got = self._read(memory[: end - begin], begin)
            content = bytes(memory[:got]).rstrip(b"\0")
            if content:
                return begin + len(content)
            end = begin
        return 0

    def _read(self, into: memoryview, position: int) -> int:
        token = self._disk.read(self._file, into, position)
        return must(self._disk.wait(token), f"read {self._file.path}")


def _claimed_bytes(data: memoryview) -> int:
    """How long the batch is that the data begins with; its length was found possible before."""
    if data.nbytes < LENGTH_PREFIX_BYTES:
        return _STEP_BYTES
    return LENGTH_PREFIX_BYTES + int.from_bytes(data[8:LENGTH_PREFIX_BYTES], "big", signed=True)


def _header(data: memoryview) -> Any:
    """The row of the batch that the data begins with, whatever its CRC."""
    return scan(data[: _claimed_bytes(data)], level="headers").table[0]
