"""Measures a thing and its limit in turns, so that a noisy neighbour slows both."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def alternate(
    ours: Callable[[], float], limit: Callable[[], float], rounds: int
) -> tuple[list[float], list[float]]:
    """Run both in turns, `rounds` times each after one of each that is not counted, and return what they say.

    Garbage is collected between rounds and not within: a pause would be a property of the neighbours' objects.

    >>> alternate(lambda: 2.0, lambda: 3.0, rounds=2)
    ([2.0, 2.0], [3.0, 3.0])
    """
    samples: list[float] = []
    limits: list[float] = []
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        limit()
        ours()
        for _ in range(rounds):
            gc.collect()
            limits.append(limit())
            samples.append(ours())
    finally:
        if was_enabled:
            gc.enable()
    return samples, limits


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def core_seconds(work: Callable[[], object]) -> float:
    """How long one call keeps its core busy: what computing costs, whoever else wants the core meanwhile."""
    began = time.thread_time()
    work()
    return time.thread_time() - began
