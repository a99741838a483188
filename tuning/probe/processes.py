"""Measures how fast processes of this machine reach each other: memcpy, ring hops, and cores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from ringlog.limits import MIB
from tuning.probe.measured import CorePair
from tuning.probe.partner import Partner, ask_bytes, take
from tuning.probe.statistics import percentile

COPY_BYTES = 32 * MIB
COPIES_MIN = 8
"""However little time there is: one copy may be interrupted, and says nothing of the machine."""
HOPS = 50
BYTES_BATCH = 200


def measure_memcpy(
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    copy: Callable[[NDArray[np.uint8], NDArray[np.uint8]], None] = np.copyto,
) -> float:
    """Bytes per second of one core that copies more than its caches hold: the best of several, at least COPIES_MIN."""
    source = np.full(COPY_BYTES, 7, np.uint8)
    target = np.zeros(COPY_BYTES, np.uint8)
    copy(target, source)  # not counted: the kernel finds memory for the target meanwhile, page by page
    until, took = clock() + seconds, list[float]()
    while len(took) < COPIES_MIN or clock() < until:
        began = clock()
        copy(target, source)
        took.append(clock() - began)
    return COPY_BYTES / min(took)


def measure_hop(partner: Partner, cores: Sequence[int], seconds: float, *, sleeping: bool) -> float:
    """Microseconds one way through a ring, to a process that sleeps or spins: half the median round trip. Each side has
    a core of its own, if there are two: who spins on one core with the other only waits for his time to end."""
    until = time.perf_counter() + seconds
    trips: list[float] = []
    with _on_core(cores[0]):
        while not trips or time.perf_counter() < until:
            partner.ask(do="echo", count=HOPS, sleeping=sleeping, core=cores[-1])
            for _ in range(HOPS):
                if sleeping:
                    time.sleep(
                        0.0005
                    )  # until it is asleep for certain: what is wanted is what its waking costs
                began = time.perf_counter()
                partner.writer.write(b"ping")
                take(partner.reader, sleeping=sleeping)
                trips.append(time.perf_counter() - began)
    return percentile(trips, 0.5) / 2 * 1e6


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    """Stay on a core for a while."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


def measure_core_pairs(partner: Partner, pairs: Sequence[tuple[int, int]], seconds: float) -> list[CorePair]:
    """The round trip of a byte between cores: the best of several batches, as anything else disturbs."""
    found = []
    for first, second in pairs:
        with _on_core(first):
            until = time.perf_counter() + seconds / len(pairs)
            best = float("inf")
            while best == float("inf") or time.perf_counter() < until:
                partner.ask(do="echo bytes", count=BYTES_BATCH, core=second)
                began = time.perf_counter()
                ask_bytes(partner.flags, BYTES_BATCH)
                best = min(best, (time.perf_counter() - began) / BYTES_BATCH)
        found.append(CorePair(first=first, second=second, round_trip_us=best * 1e6))
    return found


def pairs_to_measure(cores: Sequence[int], pairs_max: int) -> list[tuple[int, int]]:
    """The first core with the others, spread evenly when there are many.

    >>> pairs_to_measure([0, 1, 2, 3], 8), pairs_to_measure(list(range(64)), 3), pairs_to_measure([0], 8)
    ([(0, 1), (0, 2), (0, 3)], [(0, 1), (0, 22), (0, 43)], [])
    """
    others = list(cores[1:])
    step = max(1, len(others) / pairs_max)
    chosen = [others[int(at * step)] for at in range(min(len(others), pairs_max))]
    return [(cores[0], other) for other in chosen]
