"""The partitions on the stats page: what went in and out, where the log begins and ends, and when it was how long.

Each process has an area of its own, so no two write the same row, whatever the ids of their partitions:

    ┌ used, generation ┬ row 0 ┬ row 1 ┬ …            a row that serves no partition has the id 0
    └ 64 bytes         ┴───────┴───────┴ …            rows at and beyond `used` were never touched

An area is as large as it may ever get, and its memory is reserved as rows come to be used.

Marks tell the age of a record: `offset` was appended at `ms` or later. There are few, and the older they are the
farther apart: one is dropped for each new one, that whose neighbours are nearest beside their age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from ringlog.limits import PARTITIONS_MAX
from ringlog.model import LogEnds

MARKS = 32
HEAD_BYTES = 64
ROW = np.dtype(
    [
        ("partition", "<u4"),
        ("shard", "<u4"),
        ("bytes_in", "<u8"),
        ("records_in", "<u8"),
        ("bytes_out", "<u8"),
        ("log_start_offset", "<u8"),
        ("readable_offset", "<u8"),
        ("mark_offset", "<i8", (MARKS,)),
        ("mark_ms", "<i8", (MARKS,)),
    ]
)
AREA_BYTES = HEAD_BYTES + PARTITIONS_MAX * ROW.itemsize
_ROW_WORDS = ROW.itemsize // 8
_START_WORD, _END_WORD = 4, 5
_RESERVE_ROWS = 128
assert ROW.itemsize % 8 == 0

Mark = tuple[int, int]
"""(offset, ms)"""


class PartitionArea:
    """The rows of one process, as anyone sees them."""

    def __init__(self, memory: memoryview) -> None:
        self.head = np.frombuffer(memory, "<u8", 2)
        self.rows: NDArray[np.void] = np.frombuffer(memory, ROW, PARTITIONS_MAX, HEAD_BYTES)
        self.words = memory[HEAD_BYTES:AREA_BYTES].cast("Q")
        self._slots: dict[int, int] = {}
        self._slots_generation = -1

    def served(self) -> NDArray[np.void]:
        """A copy of the rows of all partitions that are served."""
        rows = self.rows[: min(int(self.head[0]), PARTITIONS_MAX)]
        found: NDArray[np.void] = rows[rows["partition"] != 0]
        return found

    def ends(self, partition: int) -> LogEnds | None:
        """Where a log begins and ends; None: this process does not serve it."""
        generation = int(self.head[1])
        if generation != self._slots_generation:
            ids = self.rows["partition"][: min(int(self.head[0]), PARTITIONS_MAX)].tolist()
            self._slots = {each: slot for slot, each in enumerate(ids) if each}
            self._slots_generation = generation
        slot = self._slots.get(partition)
        if slot is None:
            return None
        row = self.rows[slot]
        # Its owner may be writing: a mark may be beside its neighbour's time, which is near.
        marks = list(zip(row["mark_offset"].tolist(), row["mark_ms"].tolist(), strict=True))
        return LogEnds(int(row["log_start_offset"]), int(row["readable_offset"]), marks)


class PartitionRows:
    """The rows of one process, for itself."""

    def __init__(self, area: PartitionArea, reserve: Callable[[int, int], None]) -> None:
        self._area = area
        self._reserve = reserve
        """(position in the area, bytes): raises OSError when there is no memory for it."""
        self._reserved = 0
        self._slots: dict[int, int] = {}
        self._free: list[int] = []
        self._counts: dict[int, list[int]] = {}
        self._touched: set[int] = set()
        self._grown: set[int] = set()
        self._looked_ms = 0
        self._looked_ends = np.zeros(0, np.int64)
        self._renumber(used=0)

    def host(
        self,
        partition: int,
        shard: int,
        log_start_offset: int = 0,
        readable_offset: int = 0,
        marks: Iterable[Mark] = (),
        *,
        now_ms: int,
    ) -> None:
        """Begin the row of a partition. Where memory is short, it is served without one."""
        self.leave(partition)
        self._looked_ms = self._looked_ms or now_ms
        slot = self._free.pop() if self._free else self._new_slot()
        if slot is None:
            return
        row = np.zeros(1, ROW)
        row["partition"], row["shard"] = partition, shard
        row["log_start_offset"], row["readable_offset"] = log_start_offset, readable_offset
        known = sorted(marks)[-MARKS:] or [(log_start_offset, now_ms)]
        known = [known[0]] * (MARKS - len(known)) + known  # the first to be dropped
        row["mark_offset"], row["mark_ms"] = [mark[0] for mark in known], [mark[1] for mark in known]
        self._area.rows[slot : slot + 1] = row
        self._looked_ends[slot] = readable_offset
        self._slots[partition] = slot
        self._counts[partition] = [0, 0, 0]
        self._renumber(max(int(self._area.head[0]), slot + 1))

    def leave(self, partition: int) -> None:
        """Forget a partition."""
        slot = self._slots.pop(partition, None)
        if slot is None:
            return
        del self._counts[partition]
        self._touched.discard(partition)
        self._grown.discard(slot)
        self._area.rows[slot : slot + 1] = np.zeros(1, ROW)
        self._free.append(slot)
        self._renumber(int(self._area.head[0]))

    def moved(self, partition: int, *, bytes_in: int = 0, records_in: int = 0, bytes_out: int = 0) -> None:
        """Count what went in and out of a partition."""
        sums = self._counts.get(partition)
        if sums is not None:
            sums[0] += bytes_in
            sums[1] += records_in
            sums[2] += bytes_out
            self._touched.add(partition)

    def grown(self, partition: int, readable_offset: int) -> None:
        """A log may be read up to here: everyone may see it at once."""
        slot = self._slots.get(partition)
        if slot is not None:
            self._area.words[slot * _ROW_WORDS + _END_WORD] = readable_offset
            self._grown.add(slot)

    def started(self, partition: int, log_start_offset: int) -> None:
        """A log begins here now."""
        slot = self._slots.get(partition)
        if slot is not None:
            self._area.words[slot * _ROW_WORDS + _START_WORD] = log_start_offset

    def show(self) -> None:
        """Copy the counts to the page."""
        rows = self._area.rows
        for partition in self._touched:
            slot = self._slots[partition]
            row = rows[slot : slot + 1]
            row["bytes_in"], row["records_in"], row["bytes_out"] = self._counts[partition]
        self._touched.clear()

    def look(self, now_ms: int) -> None:
        """Set a mark for each log that has grown since the last look: its first new record came after that."""
        if self._grown:
            slots = np.fromiter(self._grown, np.int64, len(self._grown))
            self._grown.clear()
            rows = self._area.rows
            offsets, times = rows["mark_offset"][slots], rows["mark_ms"][slots]
            keep = _kept(times, now_ms)
            rows["mark_offset"][slots] = _shifted(offsets, keep, self._looked_ends[slots])
            rows["mark_ms"][slots] = _shifted(times, keep, np.full(len(slots), self._looked_ms))
            self._looked_ends[slots] = rows["readable_offset"][slots]
        self._looked_ms = now_ms

    def _new_slot(self) -> int | None:
        used = int(self._area.head[0])
        if used == PARTITIONS_MAX:
            return None
        if used == self._reserved:
            try:
                self._reserve(HEAD_BYTES + used * ROW.itemsize, _RESERVE_ROWS * ROW.itemsize)
            except OSError:
                return None
            self._reserved = min(used + _RESERVE_ROWS, PARTITIONS_MAX)
            self._looked_ends = np.concatenate([self._looked_ends, np.zeros(_RESERVE_ROWS, np.int64)])
        return used

    def _renumber(self, used: int) -> None:
        """Tell readers that rows have come or gone."""
        self._area.head[0] = used
        self._area.head[1] += 1


def _kept(times: NDArray[np.int64], now_ms: int) -> NDArray[np.int64]:
    """For each row of marks the places of all but that which tells the least; never the first."""
    gaps = times[:, 2:] - times[:, :-2]
    ages = np.maximum(now_ms - times[:, :-2], 1)
    drop = 1 + np.argmin(gaps / ages, axis=1)[:, None]
    places = np.arange(MARKS - 1)[None, :]
    kept: NDArray[np.int64] = places + (places >= drop)
    return kept


def _shifted(
    values: NDArray[np.int64], keep: NDArray[np.int64], last: NDArray[np.int64]
) -> NDArray[np.int64]:
    return np.concatenate([np.take_along_axis(values, keep, axis=1), last[:, None]], axis=1)
