"""Decoded ranges that several executors may ask for: the lately used ones, up to a bound in bytes. Pure."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from typing import Any, NamedTuple

from ringlog.model import TopicPartition


class Wanted(NamedTuple):
    """What a decoded range is of."""

    tp: TopicPartition
    columns: tuple[str, ...]
    topic_id: int | None = None
    """Names are given again: what is kept of a topic must not be taken for what its successor has."""


class Piece(NamedTuple):
    """Decoded records of the offsets from `start` up to `next_offset`."""

    start: int
    next_offset: int
    nbytes: int
    batch: Any
    """It may begin with records below `start`: batches of the log are not cut."""


class HotRanges:
    """The pieces.

    >>> hot = HotRanges(bytes_max=100)
    >>> orders = Wanted(TopicPartition("orders", 0), ("offset",))
    >>> hot.put(orders, Piece(0, 50, 60, "a")); hot.put(orders, Piece(50, 90, 60, "b"))
    >>> hot.find(orders, 10), hot.find(orders, 60).batch, hot.nbytes
    (None, 'b', 60)
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._pieces: OrderedDict[tuple[Wanted, int], Piece] = OrderedDict()
        """The one that was used last is the last."""
        self._starts: dict[Wanted, list[int]] = {}
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._pieces)

    def find(self, wanted: Wanted, offset: int) -> Piece | None:
        """The piece that holds an offset."""
        starts = self._starts.get(wanted, [])
        at = bisect_right(starts, offset) - 1
        if at < 0:
            return None
        key = (wanted, starts[at])
        piece = self._pieces[key]
        if offset >= piece.next_offset:
            return None
        self._pieces.move_to_end(key)
        return piece

    def put(self, wanted: Wanted, piece: Piece) -> None:
        """Keep a piece, and let go of those that were not used for longest."""
        if piece.nbytes > self._bytes_max:
            return
        self._drop((wanted, piece.start))
        self._pieces[wanted, piece.start] = piece
        insort(self._starts.setdefault(wanted, []), piece.start)
        self.nbytes += piece.nbytes
        while self.nbytes > self._bytes_max:
            self._drop(next(iter(self._pieces)))

    def _drop(self, key: tuple[Wanted, int]) -> None:
        piece = self._pieces.pop(key, None)
        if piece is None:
            return
        wanted, start = key
        self.nbytes -= piece.nbytes
        self._starts[wanted].remove(start)
        if not self._starts[wanted]:
            del self._starts[wanted]
