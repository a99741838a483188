"""Shares out the time of a probe: each step gets its part of what is left, so that the whole keeps to its budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

SLICE_S_MIN = 0.01


class Step(NamedTuple):
    """One thing to measure."""

    name: str
    weight: float
    run: Callable[[float], None]
    """Called with the seconds that it may take."""


def run_steps(
    steps: Sequence[Step],
    budget_s: float,
    on_progress: Callable[[float, str], None] = lambda share, name: None,
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """Run all steps; what one takes too long is missing for those behind it. Returns the seconds that it took.

    >>> slices = []
    >>> _ = run_steps([Step("a", 1, slices.append), Step("b", 3, slices.append)], 8.0, clock=lambda: 0.0)
    >>> slices
    [2.0, 8.0]
    """
    began_s = clock()
    left_weight = sum(step.weight for step in steps)
    total_weight = left_weight
    for step in steps:
        on_progress(1 - left_weight / total_weight, step.name)
        left_s = budget_s - (clock() - began_s)
        step.run(max(left_s * step.weight / left_weight, SLICE_S_MIN))
        left_weight -= step.weight
    on_progress(1.0, "done")
    return clock() - began_s
