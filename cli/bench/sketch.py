"""Percentiles of any number of latencies in a few kilobytes: counts in buckets, each 1 % wider than the last. Pure."""

from __future__ import annotations

import math

_GROWTH = math.log(1.01)
_SMALLEST_S = 1e-6
_BUCKETS = 2600
"""From a microsecond to beyond a day."""


class Sketch:
    """Adds latencies, and tells below which one a share of them lies, to 1 %.

    >>> sketch = Sketch()
    >>> for ms in range(1, 1001):
    ...     sketch.add(ms / 1e3)
    >>> round(sketch.quantile_ms(0.5) / 500, 1), sketch.count, sketch.max_ms
    (1.0, 1000, 1000.0)
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self._max_s = 0.0

    def add(self, latency_s: float, count: int = 1) -> None:
        """Add a latency that `count` records had."""
        bucket = 0
        if latency_s > _SMALLEST_S:
            bucket = min(int(math.log(latency_s / _SMALLEST_S) / _GROWTH) + 1, _BUCKETS)
        self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.count += count
        self._max_s = max(self._max_s, latency_s)

    def merge(self, other: Sketch) -> None:
        """Add all that another one counted."""
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.count += other.count
        self._max_s = max(self._max_s, other._max_s)

    @property
    def max_ms(self) -> float:
        """The longest, exactly."""
        return self._max_s * 1e3

    def quantile_ms(self, share: float) -> float:
        """The latency that a share of all did not exceed; 0 when there is none at all."""
        wanted = share * self.count
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return min(_SMALLEST_S * math.exp(bucket * _GROWTH), self._max_s) * 1e3
        return 0.0

    def dump(self) -> dict[str, object]:
        """As JSON can carry it to another process."""
        return {"counts": {str(bucket): n for bucket, n in self._counts.items()}, "max_s": self._max_s}

    @classmethod
    def load(cls, dumped: dict[str, object]) -> Sketch:
        """What another process dumped."""
        sketch = cls()
        counts, max_s = dumped["counts"], dumped["max_s"]
        assert isinstance(counts, dict) and isinstance(max_s, float)
        sketch._counts = {int(bucket): int(n) for bucket, n in counts.items()}
        sketch.count = sum(sketch._counts.values())
        sketch._max_s = max_s
        return sketch
