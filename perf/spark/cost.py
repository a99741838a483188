"""What a piece of work costs all processes of a run: this one, the node, Spark and its Python workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import psutil


class Cost(NamedTuple):
    """Of one piece of work."""

    wall_s: float
    cpu_s: float


def cost_of(work: Callable[[], object]) -> Cost:
    """Do it, and measure. What a process used that has ended meanwhile is not seen: Spark keeps its workers.

    >>> cost_of(lambda: sum(range(100_000))).cpu_s < 60
    True
    """
    began_s, had = time.perf_counter(), _cpu_s()
    work()
    wall_s, has = time.perf_counter() - began_s, _cpu_s()
    return Cost(wall_s, sum(used_s - had.get(pid, 0.0) for pid, used_s in has.items()))


def _cpu_s() -> dict[int, float]:
    """Core seconds so far, by process."""
    me = psutil.Process()
    used: dict[int, float] = {}
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # gone since it was listed
            times = process.cpu_times()
            used[process.pid] = times.user + times.system
    return used
