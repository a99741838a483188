"""Segments: the one that grows, and those that never change again."""

from __future__ import annotations

import msgspec

from ringlog.limits import BLOCK_BYTES, PREALLOCATE_BYTES_MAX, PREALLOCATE_BYTES_MIN
from ringlog.log.extent import block_ceil, block_floor
from ringlog.log.files import SegmentFile
from ringlog.log.index import OffsetIndex, SegmentIndex, TimeIndex
from ringlog.log.state import SavedIndexes, SealedEntry

_STEP_GROWTH = 4
_BUSY_MS = 1_000
"""A partition that uses up a preallocation in less time than this gets a larger one next."""


class Leases:
    """Reads under way on a segment: its files are not replaced or deleted meanwhile."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1


class ActiveSegment:
    """The end of a log: batches are appended here, in memory first, then in its file.

    written_position ≤ position always holds, and no block at or beyond `allocated` is ever written.
    """

    def __init__(
        self, base_offset: int, created_ms: int, index: SegmentIndex | None = None, position: int = 0
    ) -> None:
        self.base_offset = base_offset
        self.created_ms = created_ms
        """When its first batch came, by the wall clock of the appends."""
        self.index = index or SegmentIndex(base_offset)
        self.position = position
        """Bytes received: where the next batch will begin."""
        self.next_offset = base_offset
        self.written_position = position
        self.held: SegmentFile | None = None
        """Its file, once an append has needed it."""
        self.allocated = 0
        """Bytes that are reserved on disk."""
        self.preallocation = Preallocation()
        self.saved = SavedIndexes()
        self.index_gap_end = 0
        """Batches below it may lack in the indexes: a crash took what was not saved of them. 0: nothing lacks."""
        self.quarantined = False
        self.is_growing = True
        """False once a sealed segment stands in its place: a read that began before may still hold this one."""
        self.leases = Leases()

    @property
    def max_timestamp(self) -> int:
        return self.index.max_timestamp


class SealedSegment:
    """A part of the log that never changes again. Its indexes are loaded when they are first used."""

    def __init__(self, entry: SealedEntry) -> None:
        self.entry = entry
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        self.leases = Leases()
        self.is_clean_named = False
        """Compaction made it, and its files are not yet in the place of those that it replaces."""

    @property
    def base_offset(self) -> int:
        return self.entry.base_offset

    @property
    def next_offset(self) -> int:
        return self.entry.next_offset

    @property
    def created_ms(self) -> int:
        """When its first batch came; 0: nobody knows any more."""
        return self.entry.created_ms

    @property
    def position(self) -> int:
        """Its length in bytes."""
        return self.entry.bytes

    @property
    def max_timestamp(self) -> int:
        return self.entry.max_timestamp

    @property
    def quarantined(self) -> bool:
        """It holds a corrupt batch: readers are refused, the file is kept."""
        return self.entry.quarantined

    @quarantined.setter
    def quarantined(self, value: bool) -> None:
        self.entry = msgspec.structs.replace(self.entry, quarantined=value)


Segment = ActiveSegment | SealedSegment


def is_growing(segment: Segment) -> bool:
    """Whether its file is open for writing: all who hold it share that handle."""
    return isinstance(segment, ActiveSegment) and segment.is_growing


class Preallocation:
    """How much space to reserve ahead: little for an idle partition, much for a busy one. Pure.

    >>> plan = Preallocation()
    >>> plan.next_range(end=100, allocated=0, segment_bytes=2**30, now_ms=0)
    (0, 65536)
    >>> plan.next_range(end=40_000, allocated=65536, segment_bytes=2**30, now_ms=10)
    (65536, 262144)
    >>> plan.next_range(end=50_000, allocated=327680, segment_bytes=2**30, now_ms=20) is None
    True
    """

    def __init__(self) -> None:
        self._step = PREALLOCATE_BYTES_MIN
        self._last_ms: int | None = None

    def inherit(self, other: Preallocation) -> None:
        """A new segment goes on at the rate of the one before it."""
        self._step, self._last_ms = other._step, other._last_ms

    def next_range(
        self, end: int, allocated: int, segment_bytes: int, now_ms: int, step_max: int = PREALLOCATE_BYTES_MAX
    ) -> tuple[int, int] | None:
        """(position, length) to reserve now, both in whole blocks, or None while half a step is left beyond `end`."""
        self._step = min(self._step, step_max)
        if allocated - end >= self._step // 2 or (allocated >= segment_bytes and end <= allocated):
            return None
        if self._last_ms is not None:
            busy = now_ms - self._last_ms < _BUSY_MS
            grown = self._step * _STEP_GROWTH if busy else self._step // _STEP_GROWTH
            self._step = min(max(grown, PREALLOCATE_BYTES_MIN), step_max)
        self._last_ms = now_ms
        start = block_floor(allocated)
        wanted = min(start + block_floor(self._step), block_ceil(segment_bytes))
        return start, max(wanted, block_ceil(end) + BLOCK_BYTES) - start
