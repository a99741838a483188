"""Axes of plots: where a value lies, and which ticks to show. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence


class Axis:
    """Maps values to pixels, evenly or by their logarithm.

    >>> axis = Axis([1.0, 100.0], 0.0, 200.0, log=True)
    >>> axis.place(10.0), axis.ticks()
    (100.0, [1.0, 10.0, 100.0])
    """

    def __init__(self, values: Sequence[float], start: float, end: float, *, log: bool) -> None:
        self._start, self._end, self._log = start, end, log
        found = [value for value in values if value > 0] if log else [*values, 0.0]
        low, high = (min(found), max(found)) if found else (1.0, 10.0)
        if log:
            self._low, self._high = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
            self._high = max(self._high, self._low + 1)
        else:
            self._step = _nice((high - low) / 4 or 1.0)
            self._low = math.floor(low / self._step + 1e-9)
            self._high = max(math.ceil(high / self._step - 1e-9), self._low + 1)

    def place(self, value: float) -> float:
        """The pixel of a value."""
        at = (math.log10(max(value, 10.0**self._low)) if self._log else value / self._step) - self._low
        return self._start + (self._end - self._start) * at / (self._high - self._low)

    def ticks(self) -> list[float]:
        """Powers of ten, or round numbers."""
        steps = range(self._low, self._high + 1)
        return [10.0**step if self._log else step * self._step for step in steps]


def _nice(step: float) -> float:
    """The next of 1, 2, 5, 10, … times a power of ten.

    >>> _nice(0.23), _nice(7.0)
    (0.5, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(step))
    return next(size * power for size in (1, 2, 5, 10) if size * power >= step * (1 - 1e-9))
