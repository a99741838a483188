"""Sparse offset and time indexes of one segment, in Kafka's file formats.

    offset index entry, 8 bytes, big endian        time index entry, 12 bytes, big endian
    0       4        8                             0               8        12
    ├───────┼────────┤                             ├───────────────┼────────┤
    │ i32   │ i32    │                             │ i64           │ i32    │
    │ last  │ byte   │                             │ timestamp, ms │ offset │
    │ offset│ where  │                             │ highest so    │ of it, │
    │ of a  │ it     │                             │ far           │ − base │
    │ batch,│ begins │
    │ − base│        │

An entry is added at most once in INDEX_INTERVAL_BYTES. Both are derived from the log: written at seal,
checkpoint and stop, and rebuilt when their checksum in the partition's state does not fit.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

import numpy as np

from ringlog.errors import CorruptFile, check
from ringlog.limits import INDEX_BYTES_MAX, INDEX_INTERVAL_BYTES, RELATIVE_OFFSET_MAX

OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])


class OffsetIndex:
    """Where batches begin, for one in many. Both columns increase strictly.

    >>> index = OffsetIndex(base_offset=100)
    >>> index.add(last_offset=109, position=0)
    >>> index.add(last_offset=119, position=5000)
    >>> index.position_before(119), index.position_before(115), index.position_before(101)
    (5000, 0, 0)
    """

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def add(self, last_offset: int, position: int) -> None:
        relative = last_offset - self.base_offset
        if self._offsets:
            check(relative > self._offsets[-1], "offsets of an index increase")
            check(position > self._positions[-1], "positions of an index increase")
        self._offsets.append(relative)
        self._positions.append(position)

    def position_before(self, offset: int) -> int:
        """A byte at or before the batch that holds the offset: the reader scans forward from there."""
        at = bisect_right(self._offsets, offset - self.base_offset) - 1
        return self._positions[at] if at >= 0 else 0

    def positions_between(self, start: int, stop: int) -> list[int]:
        """The indexed batch starts in a byte range: where a large range may be split."""
        return list(self._positions[bisect_left(self._positions, start) : bisect_left(self._positions, stop)])

    def last_between(self, start: int, stop: int) -> int | None:
        """The first byte of the last indexed batch that begins in a byte range, its end included.

        >>> index = OffsetIndex(base_offset=100)
        >>> index.add(last_offset=109, position=0)
        >>> index.add(last_offset=119, position=5000)
        >>> index.last_between(1, 5000), index.last_between(1, 4999)
        (5000, None)
        """
        at = bisect_right(self._positions, stop) - 1
        return self._positions[at] if at >= 0 and self._positions[at] >= start else None

    def first_at(self, position: int) -> tuple[int, int] | None:
        """The last offset and the first byte of the first indexed batch that begins at or after a byte.

        >>> index = OffsetIndex(base_offset=100)
        >>> index.add(last_offset=109, position=0)
        >>> index.add(last_offset=119, position=5000)
        >>> index.first_at(1), index.first_at(5001)
        ((119, 5000), None)
        """
        at = bisect_left(self._positions, position)
        return (
            None
            if at == len(self._positions)
            else (self.base_offset + self._offsets[at], self._positions[at])
        )

    def cut(self, position: int) -> None:
        """Forget the batches that begin at or after a byte."""
        keep = bisect_left(self._positions, position)
        del self._offsets[keep:], self._positions[keep:]

    def encode(self, first: int = 0, stop: int | None = None) -> bytes:
        """The file content of the entries [first, stop)."""
        offsets = self._offsets[first:stop]
        rows = np.empty(len(offsets), OFFSET_ENTRY)
        rows["offset"] = offsets
        rows["position"] = self._positions[first:stop]
        return rows.tobytes()

    @classmethod
    def decode(cls, base_offset: int, data: bytes, segment_bytes: int) -> OffsetIndex:
        """Read a file's content; raises CorruptFile when it cannot be an index of such a segment."""
        rows = _rows(data, OFFSET_ENTRY, "offset index")
        offsets, positions = rows["offset"], rows["position"]
        _must_increase(offsets, "offset index offset", OFFSET_ENTRY.itemsize, 0, RELATIVE_OFFSET_MAX)
        _must_increase(
            positions, "offset index position", OFFSET_ENTRY.itemsize, 0, max(segment_bytes - 1, 0)
        )
        index = cls(base_offset)
        index._offsets.frombytes(offsets.astype("i4").tobytes())
        index._positions.frombytes(positions.astype("i4").tobytes())
        return index


class TimeIndex:
    """The highest timestamp so far and the offset that has it, for one batch in many.

    >>> index = TimeIndex(base_offset=100)
    >>> index.add(timestamp=1_000, offset=105)
    >>> index.add(timestamp=2_000, offset=130)
    >>> index.offset_before(1_500), index.offset_before(1_000), index.offset_before(3_000)
    (105, 100, 130)
    """

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    def add(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless it says nothing new."""
        if self._timestamps and timestamp <= self._timestamps[-1]:
            return
        self._timestamps.append(timestamp)
        self._offsets.append(offset - self.base_offset)

    def offset_before(self, timestamp: int) -> int:
        """No record below this offset has the timestamp or a later one."""
        at = bisect_left(self._timestamps, timestamp) - 1
        return self.base_offset + (self._offsets[at] if at >= 0 else 0)

    def entries_after(self) -> list[tuple[int, int]]:
        """For each entry the offset behind it, and the highest timestamp before that."""
        offsets = (self.base_offset + offset + 1 for offset in self._offsets)
        return list(zip(offsets, self._timestamps, strict=True))

    def cut(self, offset: int) -> None:
        """Forget entries of an offset and all after it."""
        keep = bisect_left(self._offsets, offset - self.base_offset)
        del self._timestamps[keep:], self._offsets[keep:]

    def encode(self, first: int = 0, stop: int | None = None) -> bytes:
        """The file content of the entries [first, stop)."""
        timestamps = self._timestamps[first:stop]
        rows = np.empty(len(timestamps), TIME_ENTRY)
        rows["timestamp"] = timestamps
        rows["offset"] = self._offsets[first:stop]
        return rows.tobytes()

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> TimeIndex:
        """Read a file's content; raises CorruptFile when it cannot be a time index."""
        rows = _rows(data, TIME_ENTRY, "time index")
        _must_increase(rows["timestamp"], "time index timestamp", TIME_ENTRY.itemsize, -1, 2**63 - 1)
        _must_increase(rows["offset"], "time index offset", TIME_ENTRY.itemsize, 0, RELATIVE_OFFSET_MAX)
        index = cls(base_offset)
        index._timestamps.frombytes(rows["timestamp"].astype("i8").tobytes())
        index._offsets.frombytes(rows["offset"].astype("i4").tobytes())
        return index


class SegmentIndex:
    """Both indexes of a segment, fed with every batch and keeping one in INDEX_INTERVAL_BYTES."""

    def __init__(self, base_offset: int) -> None:
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.next_position = INDEX_INTERVAL_BYTES
        """The first batch that begins here or behind makes the next entry."""

    @property
    def is_full(self) -> bool:
        """No room for another entry of either kind in a file of INDEX_BYTES_MAX."""
        return (len(self.times) + 1) * TIME_ENTRY.itemsize > INDEX_BYTES_MAX or (
            len(self.offsets) + 1
        ) * OFFSET_ENTRY.itemsize > INDEX_BYTES_MAX

    def add_batch(self, last_offset: int, position: int, max_timestamp: int) -> None:
        """Take note of a batch that begins at `position`."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position >= self.next_position:
            self.add_entry(last_offset, position, self.max_timestamp, self.max_timestamp_offset)

    def add_entry(
        self, last_offset: int, position: int, max_timestamp: int, max_timestamp_offset: int
    ) -> None:
        """Add an entry to both: for a batch, and for the highest timestamp up to and including it."""
        self.offsets.add(last_offset, position)
        self.times.add(max_timestamp, max_timestamp_offset)
        self.next_position = position + INDEX_INTERVAL_BYTES

    def head(self, entries: int, time_entries: int) -> SegmentIndex:
        """A copy of the first entries, ready for the batches from the last indexed one on."""
        head = SegmentIndex(self.offsets.base_offset)
        head.offsets._offsets, head.offsets._positions = (
            self.offsets._offsets[:entries],
            self.offsets._positions[:entries],
        )
        head.times._timestamps, head.times._offsets = (
            self.times._timestamps[:time_entries],
            self.times._offsets[:time_entries],
        )
        if entries:
            head.next_position = head.offsets.last_position + INDEX_INTERVAL_BYTES
        if time_entries:
            head.max_timestamp = head.times._timestamps[-1]
            head.max_timestamp_offset = head.times.base_offset + head.times._offsets[-1]
        return head

    def below(self, offset: int) -> SegmentIndex:
        """A copy up to the last indexed batch that lies below an offset, ready for the batches from that one on."""
        entries = bisect_left(self.offsets._offsets, offset - self.offsets.base_offset)
        # What raised the highest timestamp behind that batch stands behind it.
        last = self.offsets._offsets[entries - 1] if entries else -1
        return self.head(entries, bisect_right(self.times._offsets, last) if entries else 0)

    def put_before(self, front: SegmentIndex, end: int) -> None:
        """Take the entries of batches below byte `end` from another index, and keep one's own of the rest."""
        first = bisect_left(self.offsets._positions, end)
        for offset, position in zip(
            self.offsets._offsets[first:], self.offsets._positions[first:], strict=True
        ):
            front.offsets.add(front.offsets.base_offset + offset, position)
        for timestamp, offset in zip(self.times._timestamps, self.times._offsets, strict=True):
            front.times.add(timestamp, front.times.base_offset + offset)
        self.offsets, self.times = front.offsets, front.times

    def finish(self) -> None:
        """The segment is complete: its last time entry is its highest timestamp."""
        self.times.add(self.max_timestamp, self.max_timestamp_offset)

    @classmethod
    def resume(
        cls, offsets: OffsetIndex, times: TimeIndex, max_timestamp: int, max_timestamp_offset: int
    ) -> SegmentIndex:
        """Go on from indexes that were read from their files."""
        index = cls(offsets.base_offset)
        index.offsets, index.times = offsets, times
        index.max_timestamp, index.max_timestamp_offset = max_timestamp, max_timestamp_offset
        index.next_position = offsets.last_position + INDEX_INTERVAL_BYTES
        return index


def _rows(data: bytes, entry: np.dtype[np.void], what: str) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    if len(data) % entry.itemsize:
        raise CorruptFile(what, len(data), f"length is not a multiple of {entry.itemsize}")
    if len(data) > INDEX_BYTES_MAX:
        raise CorruptFile(what, INDEX_BYTES_MAX, f"longer than {INDEX_BYTES_MAX} bytes")
    return np.frombuffer(data, entry)


def _must_increase(column: np.ndarray, what: str, stride: int, low: int, high: int) -> None:
    """Raise unless the column lies in [low, high] and increases strictly; names the first entry that does not."""
    wide = column.astype("i8")
    bad = (wide < low) | (wide > high)
    bad[1:] |= wide[1:] <= wide[:-1]
    if bad.any():
        row = int(bad.argmax())
        raise CorruptFile(what, row * stride, f"{int(wide[row])} is out of range or does not increase")
