"""What a piece of work costs all processes of a run: this one, the node, Spark and its Python workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import psutil

from perf.stats import median


class Cost(NamedTuple):
    """Of one piece of work."""

    wall_s: float
    cpu_s: float


def core_s_per_million(costs: Sequence[Cost], rows: int) -> float:
    """What a million rows cost, whoever else wanted the cores meanwhile; the first work of a kind, which warms up, is
    left out where there is another.

    >>> core_s_per_million([Cost(9, 9), Cost(1, 2), Cost(1, 3), Cost(1, 4)], 1_500_000)
    2.0
    """
    return median([cost.cpu_s for cost in costs[1:] or costs]) / rows * 1e6


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
