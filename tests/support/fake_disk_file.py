"""The content of one fake file: what programs see, what is durable, and what a power loss makes of the rest.

The model. A file is one `live` image, one `durable` image, and the ordered list of changes that lie between
them: extents (whole sectors with their new content) and resizes. At a power loss

- each sector of each unflushed extent landed or not, independently of all others, so a sector that was
  written several times since the last flush holds any one of its versions;
- resizes are metadata: they survive as a prefix of their order, as a journal keeps them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ringlog.limits import SECTOR_BYTES


@dataclass(frozen=True, slots=True)
class Extent:
    """Whole sectors and their new content, padded with zeros behind the end of the file."""

    sequence: int
    start: int
    content: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.content)

    def outside(self, start: int, end: int) -> list[Extent]:
        """The parts of this extent that do not lie in [start, end)."""
        if end <= self.start or self.end <= start:
            return [self]
        parts = []
        if self.start < start:
            parts.append(Extent(self.sequence, self.start, self.content[: start - self.start]))
        if end < self.end:
            parts.append(Extent(self.sequence, end, self.content[end - self.start :]))
        return parts

    def cut_to(self, size: int) -> list[Extent]:
        """This extent after the file was cut to `size`: zeros behind it, nothing where no sector remains."""
        if self.end <= size:
            return [self]
        if self.start >= size:
            return []
        return [Extent(self.sequence, self.start, _padded(self.content[: size - self.start]))]


@dataclass(frozen=True, slots=True)
class Resize:
    """The file's length became `size`, by growth or by truncation."""

    sequence: int
    size: int


class Begun(NamedTuple):
    """A write, or a preallocation (no data), that is in flight: all, some or nothing of it may happen."""

    end: int
    position: int
    data: bytes


@dataclass(slots=True)
class FakeInode:
    """One file's content. `sequence` orders its changes: a flush covers just what completed before it."""

    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    changes: list[Extent | Resize] = field(default_factory=list)
    sequence: int = 0

    # -- what completes ----------------------------------------------------------------------------------
    def write(self, position: int, data: bytes, *, durable: bool) -> None:
        """A write completed. A durable one settles every earlier resize too: one journal holds them all."""
        if not data:
            return
        self.grow_to(position + len(data))
        self.live[position : position + len(data)] = data
        self.sequence += 1
        extent = _sectors_of(self.live, position, position + len(data), self.sequence)
        if not durable:
            self.changes.append(extent)
            return
        self._settle_resizes()
        self.changes = [part for old in self._extents() for part in old.outside(extent.start, extent.end)]
        _lay(self.durable, extent.start, extent.content)

    def grow_to(self, size: int) -> None:
        """The file covers at least `size` bytes; new ones are zero."""
        if size > len(self.live):
            self.resize(size)

    def resize(self, size: int) -> None:
        """The length is `size`."""
        if size != len(self.live):
            _resize(self.live, size)
            self.sequence += 1
            self.changes.append(Resize(self.sequence, size))

    def flush(self, up_to_sequence: int) -> None:
        """A flush completed that was submitted when `sequence` was `up_to_sequence`."""
        for change in self.changes:
            if change.sequence <= up_to_sequence:
                if isinstance(change, Resize):
                    _resize(self.durable, change.size)
                else:
                    _lay(self.durable, change.start, change.content)
        self.changes = [change for change in self.changes if change.sequence > up_to_sequence]

    def fail_flush(self, up_to_sequence: int, rng: random.Random) -> None:
        """A flush failed. As in Linux, the data that it covered counts as clean from now on: part of it
        landed, the rest is still seen by programs, and no later flush will write it."""
        covered = [change for change in self.changes if change.sequence <= up_to_sequence]
        _land_some(self.durable, covered, 0, rng, survival=0.5)
        self.changes = [
            change
            for change in self.changes
            if isinstance(change, Resize) or change.sequence > up_to_sequence
        ]

    # -- what a power loss leaves ------------------------------------------------------------------------
    def after_power_loss(self, in_flight: Sequence[Begun], rng: random.Random, survival: float) -> bytearray:
        """The content that a restart finds. `in_flight` is what the device may have begun.

        Nothing of this inode changes: a test may look at many outcomes of one moment.
        """
        twin = FakeInode(bytearray(self.live), bytearray(self.durable), list(self.changes), self.sequence)
        for begun in in_flight:
            twin.grow_to(begun.end)
            twin.write(begun.position, begun.data, durable=False)
        resizes = [change.sequence for change in twin.changes if isinstance(change, Resize)]
        surviving = prefix_length(len(resizes), rng, survival)
        _land_some(twin.durable, twin.changes, surviving, rng, survival)
        return twin.durable

    # -- inside ------------------------------------------------------------------------------------------
    def _extents(self) -> list[Extent]:
        return [change for change in self.changes if isinstance(change, Extent)]

    def _settle_resizes(self) -> None:
        settled: list[Extent | Resize] = []
        for change in self.changes:
            if isinstance(change, Extent):
                settled.append(change)
                continue
            _resize(self.durable, change.size)
            settled = [part for old in settled if isinstance(old, Extent) for part in old.cut_to(change.size)]
        self.changes = settled


def prefix_length(count: int, rng: random.Random, survival: float) -> int:
    """How many of so many journalled operations survive."""
    if survival <= 0.0:
        return 0
    return count if survival >= 1.0 else rng.randint(0, count)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % SECTOR_BYTES)


def _sectors_of(image: bytearray, start: int, end: int, sequence: int) -> Extent:
    first = start - start % SECTOR_BYTES
    last = end + -end % SECTOR_BYTES
    return Extent(sequence, first, _padded(bytes(memoryview(image)[first:last])))


def _resize(image: bytearray, size: int) -> None:
    if size < len(image):
        del image[size:]
    else:
        image.extend(bytes(size - len(image)))


def _lay(image: bytearray, start: int, content: bytes) -> None:
    """Put content into an image, as far as the image reaches: content never grows a file, resizes do."""
    end = min(start + len(content), len(image))
    if start < end:
        image[start:end] = content[: end - start]


def _land_some(
    image: bytearray,
    changes: Sequence[Extent | Resize],
    resizes_kept: int,
    rng: random.Random,
    survival: float,
) -> None:
    """Bring changes to an image: the first resizes, and each sector of each extent or not."""
    limit: int | None = None
    for change in changes:
        if isinstance(change, Extent):
            for at in range(0, len(change.content), SECTOR_BYTES):
                if rng.random() < survival:
                    sector = change.content[at : at + SECTOR_BYTES]
                    start = change.start + at
                    _lay(image, start, sector if limit is None else sector[: max(0, limit - start)])
        elif resizes_kept > 0:
            resizes_kept -= 1
            _resize(image, change.size)
        else:
            # What was written behind a cut that did not survive lies in blocks that no file owns.
            limit = change.size if limit is None else min(limit, change.size)
