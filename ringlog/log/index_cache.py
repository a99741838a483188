"""Which sealed segments have their indexes in memory: those that were used last, within a bound.

An index is a quarter to half a percent of its segment. A shard with terabytes of log would need gigabytes for all of
them, and reads mostly of the end.
"""

from __future__ import annotations

from collections import OrderedDict

from ringlog.log.index import OFFSET_ENTRY, TIME_ENTRY
from ringlog.log.segment import SealedSegment


class IndexCache:
    """The indexes of the sealed segments of one shard."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: OrderedDict[SealedSegment, int] = OrderedDict()
        """What each takes, the one that was used last at the end."""
        self.nbytes = 0

    def used(self, segment: SealedSegment) -> None:
        """The indexes of a segment are in memory, and were just used. Others may have to go: they are loaded again when
        somebody reads there."""
        self.nbytes -= self._held.pop(segment, 0)
        offsets, times = segment.offsets, segment.times
        if offsets is None or times is None or segment.is_clean_named:
            return  # what compaction has just made is not found under its name yet: it stays until then
        nbytes = len(offsets) * OFFSET_ENTRY.itemsize + len(times) * TIME_ENTRY.itemsize
        self._held[segment] = nbytes
        self.nbytes += nbytes
        while self.nbytes > self._bytes_max and len(self._held) > 1:
            oldest, taken = self._held.popitem(last=False)
            oldest.offsets = oldest.times = None
            self.nbytes -= taken
