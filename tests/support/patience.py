"""Time limits of tests with real processes: those of the promise where cores are free, longer where they are not."""

from __future__ import annotations

import os


def stretched(seconds: float) -> float:
    """A limit for the machine as it is now: one that shares its core with seven others needs eight times as long.

    >>> stretched(3.0) >= 3.0
    True
    """
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
