"""When the records of a log came, as far as its segments and the index of its end tell without a read. Pure."""

from __future__ import annotations

from bisect import bisect_right

from ringlog.log.partition import PartitionLog

MARKS = 24
_NEARER = 0.6
"""Each mark is nearer to now than the one before by this factor, so that each age is known about as well."""


def history(log: PartitionLog, now_ms: int) -> list[tuple[int, int]]:
    """(offset, ms) for a few offsets, ascending: the record there came at that time or later.

    A segment knows when its first batch came. One that a crash has made forget it came after what lies before it.
    Timestamps are their producers': one that is behind those before it, or ahead of now, tells nothing.
    """
    known: list[tuple[int, int]] = []
    after_ms = log.segments[0].max_timestamp
    for segment in log.segments:
        known.append((max(segment.base_offset, log.log_start_offset), segment.created_ms or after_ms))
        after_ms = max(after_ms, segment.max_timestamp)
    known += log.active.index.times.entries_after()
    rising: list[tuple[int, int]] = []
    for offset, at_ms in known:
        if 0 <= at_ms <= now_ms and (not rising or at_ms >= rising[-1][1]):
            rising.append((offset, at_ms))
    return _thinned(rising, now_ms)


def _thinned(rising: list[tuple[int, int]], now_ms: int) -> list[tuple[int, int]]:
    """The first, and of the others those that lie just before ages that shrink step by step.

    >>> _thinned([(n, 1000 * n) for n in range(1000)], now_ms=1_000_000)[:4]
    [(0, 0), (400, 400000), (640, 640000), (784, 784000)]
    """
    if len(rising) <= MARKS:
        return rising
    places = {0}
    age_ms = float(now_ms - rising[0][1])
    for _ in range(MARKS - 1):
        age_ms *= _NEARER
        places.add(max(bisect_right(rising, now_ms - age_ms, key=lambda mark: mark[1]) - 1, 0))
    return [rising[place] for place in sorted(places)]
