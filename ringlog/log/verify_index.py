"""Checks the index files of a segment against its batches, fed with each run of batches as it is walked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np

from ringlog.disk.api import Disk
from ringlog.errors import CorruptFile
from ringlog.log.findings import Finding, Rule, note
from ringlog.log.index import OFFSET_ENTRY, TIME_ENTRY
from ringlog.log.small_files import read_small
from ringlog.records.checksum import crc32c

_ENTRIES_NAMED = 3


class Vouched:
    """What partition.state says of an index file: how much of it is good. All of it, when nothing is said."""

    def __init__(self, entries: int | None = None, crc: int | None = None) -> None:
        self.entries = entries
        """The entries that must be right; None: all that are in the file. Others may be what a crash left."""
        self.crc = crc
        """Of these entries; None when no checksum is known."""


class _IndexCheck(ABC):
    """What both kinds have in common: loading, order, checksum, and who is to blame for a wrong entry."""

    def __init__(
        self, path: str, dtype: np.dtype[np.void], order: Rule, truth: Rule, vouched: Vouched
    ) -> None:
        self.path = path
        self._dtype = dtype
        self._order = order
        self._truth = truth
        self._vouched = vouched
        self._rows = np.empty(0, dtype)
        self._bound = 0
        self._is_right = np.empty(0, np.bool_)

    def load(self, disk: Disk) -> Iterator[Finding]:
        """Read the file, and say what is wrong with it as it stands."""
        vouched, width = self._vouched, self._dtype.itemsize
        try:
            data = read_small(disk, self.path)
        except CorruptFile as error:
            yield Finding(self._order, self.path, error.position, error.reason)
            return
        self._rows = np.frombuffer(data[: len(data) - len(data) % width], self._dtype)
        self._is_right = np.zeros(len(self._rows), np.bool_)
        self._bound = len(self._rows) if vouched.entries is None else min(vouched.entries, len(self._rows))
        covered = data if vouched.entries is None else data[: vouched.entries * width]
        if vouched.entries is not None and len(covered) < vouched.entries * width:
            found = f"{len(data)} bytes where {vouched.entries * width} were saved"
            yield Finding(Rule.SIZE, self.path, len(data), found)
        elif vouched.crc is not None and crc32c(covered) != vouched.crc:
            yield Finding(Rule.CHECKSUM, self.path, 0, f"{crc32c(covered):08x}, not {vouched.crc:08x}")
        if vouched.entries is None and len(data) % width:
            rest = f"{len(data) % width} bytes behind the last whole entry"
            yield Finding(self._order, self.path, len(data) - len(data) % width, rest)
        yield from self._check_order()

    def _check_order(self) -> Iterator[Finding]:
        rows = self._rows[: self._bound]
        bad = np.zeros(len(rows), np.bool_)
        for name in self._dtype.names or ():
            column = rows[name].astype("i8")
            bad |= column < (-1 if name == "timestamp" else 0)
            bad[1:] |= column[1:] <= column[:-1]
        yield from self._each(
            self._order, np.flatnonzero(bad), lambda row: f"{rows[row].item()} in entry {row}"
        )

    def finish(self) -> Iterator[Finding]:
        """All batches were seen: name the entries that fit none of them."""
        wrong = np.flatnonzero(~self._is_right)
        yield from self._each(self._truth, wrong[wrong < self._bound], self._describe)
        rest = wrong[wrong >= self._bound]
        if rest.size:
            found = f"{rest.size} entries that no checkpoint vouches for: the next open replaces them"
            yield note(self._truth, self.path, int(rest[0]) * self._dtype.itemsize, found)

    def _each(self, rule: Rule, rows: np.ndarray, describe: Callable[[int], str]) -> Iterator[Finding]:
        """A finding for each of the first entries that break a rule, and one for all others: a segment that was cut
        in half leaves thousands."""
        width = self._dtype.itemsize
        for row in rows[:_ENTRIES_NAMED].tolist():
            yield Finding(rule, self.path, row * width, describe(row))
        if rows.size > _ENTRIES_NAMED:
            found = f"the same in {rows.size - _ENTRIES_NAMED} more entries from here on"
            yield Finding(rule, self.path, int(rows[_ENTRIES_NAMED]) * width, found)

    @abstractmethod
    def see(self, table: np.ndarray) -> None:
        """Take note of a run of batches."""

    @abstractmethod
    def _describe(self, row: int) -> str:
        """What an entry says that is not so."""


class OffsetIndexCheck(_IndexCheck):
    """Each entry must name the byte where a batch begins, and the last offset of that batch."""

    def __init__(self, path: str, base_offset: int, vouched: Vouched) -> None:
        super().__init__(path, OFFSET_ENTRY, Rule.INDEX_ORDER, Rule.INDEX_POINTS, vouched)
        self._base_offset = base_offset
        self._by_position = np.empty(0, np.intp)
        self._sorted = np.empty(0, "i8")

    def load(self, disk: Disk) -> Iterator[Finding]:
        yield from super().load(disk)
        positions = self._rows["position"].astype("i8")
        self._by_position = np.argsort(positions, kind="stable")
        self._sorted = positions[self._by_position]

    def see(self, table: np.ndarray) -> None:
        positions = table["position"]
        low, high = np.searchsorted(self._sorted, (int(positions[0]), int(positions[-1]) + 1))
        entries = self._by_position[low:high]
        rows = np.searchsorted(positions, self._sorted[low:high])
        ends = table["last_offset"][rows] - self._base_offset
        self._is_right[entries] = (positions[rows] == self._sorted[low:high]) & (
            ends == self._rows["offset"][entries]
        )

    def _describe(self, row: int) -> str:
        offset, position = self._rows[row].item()
        return f"byte {position} for offset {self._base_offset + offset}, where no such batch begins"


class TimeIndexCheck(_IndexCheck):
    """Each entry must name a batch by its last offset that has a higher timestamp than all before it."""

    def __init__(self, path: str, base_offset: int, vouched: Vouched) -> None:
        super().__init__(path, TIME_ENTRY, Rule.TIME_INDEX_ORDER, Rule.TIME_INDEX_TRUE, vouched)
        self._base_offset = base_offset
        self._by_offset = np.empty(0, np.intp)
        self._sorted = np.empty(0, "i8")
        self.highest = -1
        """The highest timestamp of the batches seen, or −1 for none."""

    def load(self, disk: Disk) -> Iterator[Finding]:
        yield from super().load(disk)
        offsets = self._rows["offset"].astype("i8") + self._base_offset
        self._by_offset = np.argsort(offsets, kind="stable")
        self._sorted = offsets[self._by_offset]

    def see(self, table: np.ndarray) -> None:
        ends, stamps = table["last_offset"], table["max_timestamp"]
        before = np.maximum.accumulate(np.concatenate(([self.highest], stamps[:-1])))
        low, high = np.searchsorted(self._sorted, (int(ends[0]), int(ends[-1]) + 1))
        entries = self._by_offset[low:high]
        # Offsets of a broken log may fall: then no row is found, or a wrong one, but none beyond the last.
        rows = np.minimum(np.searchsorted(ends, self._sorted[low:high]), len(ends) - 1)
        claimed = self._rows["timestamp"][entries]
        self._is_right[entries] = (
            (ends[rows] == self._sorted[low:high]) & (stamps[rows] == claimed) & (before[rows] < claimed)
        )
        self.highest = max(self.highest, int(stamps.max()))

    def finish(self) -> Iterator[Finding]:
        if self.highest == -1 and len(self._rows) and self._rows[0].item() == (-1, 0):
            # What is written for a segment without any timestamp: no batch is the highest.
            self._is_right[0] = True
        yield from super().finish()

    def finish_sealed(self) -> Iterator[Finding]:
        """The last entry of a segment that grows no more is its highest timestamp, so that a search can skip it."""
        last = int(self._rows["timestamp"][-1]) if len(self._rows) else None
        if last != self.highest:
            found = f"{last} in the last entry, where the segment has {self.highest}"
            at = max(len(self._rows) - 1, 0) * self._dtype.itemsize
            yield Finding(Rule.TIME_INDEX_TRUE, self.path, at, found)

    def _describe(self, row: int) -> str:
        timestamp, offset = self._rows[row].item()
        return f"timestamp {timestamp} for offset {self._base_offset + offset}, which no such batch has"
