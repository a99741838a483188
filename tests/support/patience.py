"""Time limits of tests with real processes: those of the promise where cores are free, longer where they are not.

Two things lengthen a limit, and neither is the fault of what is tested: others who want the same cores, and a machine
that stands still as a whole (a paused virtual machine, a frozen group of processes).
"""

from __future__ import annotations

import os
import threading
import time

STEP_S = 0.1
STOOD_STILL_S = 1.0
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


class _Pulse:
    """How long this process as a whole stood still: a thread sleeps in short steps, and counts what it overslept."""

    def __init__(self) -> None:
        self.stood_still_s = 0.0
        self._thread: threading.Thread | None = None

    def take(self) -> float:
        """Seconds that everybody in this process was asleep for, since the first call."""
        if self._thread is None or not self._thread.is_alive():  # a fork takes no threads along
            self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
            self._thread.start()
        return self.stood_still_s

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            time.sleep(STEP_S)
            overslept_s = time.monotonic() - began - STEP_S
            if overslept_s > STOOD_STILL_S:
                self.stood_still_s += overslept_s


_pulse = _Pulse()


class Patience:
    """A span of time in which those that this process itself slept through do not count.

    >>> Patience(seconds=60).is_over
    False
    """

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds - _pulse.take()

    @property
    def is_over(self) -> bool:
        if time.monotonic() < self._ends + _pulse.take():
            return False
        time.sleep(2 * STEP_S)  # the pulse may not have been felt since all went on
        return time.monotonic() >= self._ends + _pulse.take() + 2 * STEP_S
