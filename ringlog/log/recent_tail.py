"""The recent tail: written extents that stay in memory to be read, of one log and of all logs of a shard."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringlog.errors import check
from ringlog.log.extent import Extent

if TYPE_CHECKING:
    from ringlog.log.partition import PartitionLog

_GONE_MIN = 64


class LogTail:
    """Extents of one log, ascending and without gaps. Taking the oldest costs the same however many there are."""

    def __init__(self) -> None:
        self._extents: list[Extent | None] = []
        self._gone = 0
        """How many were taken from the front: their places are cut off when they are half of all."""
        self.floor = 0
        """Records below it are read from disk: compaction has removed some that memory still has."""

    def __len__(self) -> int:
        return len(self._extents) - self._gone

    @property
    def start_offset(self) -> int | None:
        """Records from it on are read from memory; None: all are read from disk."""
        if self._gone == len(self._extents):
            return None
        return max(_base_offset(self._extents[self._gone]), self.floor)

    @property
    def oldest(self) -> Extent:
        extent = self._extents[self._gone]
        assert extent is not None
        return extent

    def append(self, extent: Extent) -> None:
        self._extents.append(extent)

    def take_oldest(self) -> Extent:
        extent = self.oldest
        self._extents[self._gone] = None
        self._gone += 1
        if self._gone >= max(_GONE_MIN, len(self._extents) - self._gone):
            del self._extents[: self._gone]
            self._gone = 0
        return extent

    def since(self, offset: int) -> Iterator[Extent]:
        """The extent that holds an offset, and all after it. None when the offset is older than all."""
        at = len(self._extents) - 1
        if at >= self._gone and _base_offset(self._extents[at]) > offset:  # most readers are at the end
            at = bisect_right(self._extents, offset, lo=self._gone, key=_base_offset) - 1
        while self._gone <= at < len(self._extents):
            extent = self._extents[at]
            assert extent is not None
            yield extent
            at += 1

    def release(self) -> None:
        """Give all memory back. The tail is empty afterwards."""
        while len(self):
            self.take_oldest().release()


def _base_offset(extent: Extent | None) -> int:
    assert extent is not None
    return extent.base_offset


class ShardTail:
    """The extents of all logs of a shard, oldest first: the order in which they leave memory."""

    def __init__(self) -> None:
        self._extents: deque[tuple[PartitionLog, Extent]] = deque()
        self._gone = 0
        """How many of them belong to logs that were left, and are empty."""

    def keep(self, log: PartitionLog, extent: Extent) -> None:
        self._extents.append((log, extent))

    def leave(self, log: PartitionLog) -> None:
        """A log gives all its memory back, and is not used any more."""
        self._gone += len(log.tail)
        log.tail.release()
        if 2 * self._gone > len(self._extents):
            # Not for each log: that would cost all of the tail each time.
            self._extents = deque(kept for kept in self._extents if len(kept[0].tail))
            self._gone = 0

    def evict_oldest(self) -> bool:
        """Drop the oldest extent from memory; False when there is none left."""
        while self._extents:
            log, extent = self._extents.popleft()
            if not len(log.tail):
                self._gone -= 1
                continue
            check(log.tail.oldest is extent, "a log's tail is a part of the shard's, in the same order")
            log.evict_oldest()
            return True
        return False
