"""Time limits of tests with real processes: those of the promise where cores are free, longer where they are not.

Two things lengthen a limit, and neither is the fault of what is tested: others who want the same cores, and a machine
that stands still as a whole (a paused virtual machine, a frozen group of processes).
"""

from __future__ import annotations

import os
import time

STOOD_STILL_S = 0.5
"""A sleeper that wakes so much too late was not merely behind others."""


def stretched(seconds: float) -> float:
    """A limit for the machine as it is now: one that shares its core with seven others needs eight times as long.

    >>> stretched(3.0) >= 3.0
    True
    """
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1), _delay_factor())


def _delay_factor() -> float:
    """How many times longer this process took for its work than the work itself: what waiting for a core cost it."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            ran_ns, waited_ns, _ = map(int, file.read().split())
    except (OSError, ValueError):  # a kernel without these figures
        return 1.0
    return (ran_ns + waited_ns) / max(ran_ns, 1)


class Patience:
    """A span of time in which those that this process itself slept through do not count.

    >>> patience = Patience(seconds=60)
    >>> patience.sleep(0.001); patience.is_over
    False
    """

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._ends

    def sleep(self, seconds: float) -> None:
        """Wait a little. What goes far beyond it, everybody stood still for."""
        began = time.monotonic()
        time.sleep(seconds)
        beyond_s = time.monotonic() - began - seconds
        if beyond_s > STOOD_STILL_S:
            self._ends += beyond_s
