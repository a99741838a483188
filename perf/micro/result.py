"""What a benchmark returns: a figure, the limit measured beside it, and the goal that it is held against."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from perf.stats import median, paired_ratio, spread


class Goal(msgspec.Struct, frozen=True):
    """A bound on the figure itself, or on its share of the limit.

    >>> Goal.at_least(20, "M rec/s").text, Goal.share_of_limit(0.7).text
    ('≥ 20 M rec/s', '≥ 0.7 × limit')
    """

    class Kind(Enum):
        AT_LEAST = "at least"
        AT_MOST = "at most"
        SHARE_OF_LIMIT = "share of the limit"

    kind: Kind
    bound: float
    text: str

    @classmethod
    def at_least(cls, bound: float, unit: str) -> Goal:
        return cls(cls.Kind.AT_LEAST, bound, f"≥ {bound:g} {unit}")

    @classmethod
    def at_most(cls, bound: float, unit: str) -> Goal:
        return cls(cls.Kind.AT_MOST, bound, f"≤ {bound:g} {unit}")

    @classmethod
    def share_of_limit(cls, bound: float) -> Goal:
        return cls(cls.Kind.SHARE_OF_LIMIT, bound, f"≥ {bound:g} × limit")

    def is_reached(self, value: float, ratio: float) -> bool:
        if self.kind is Goal.Kind.AT_MOST:
            return value <= self.bound
        return (value if self.kind is Goal.Kind.AT_LEAST else ratio) >= self.bound


class Result(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    what: str
    value: float
    unit: str
    spread: float
    """Of the middle half of the rounds, as a share of the median."""
    limit_name: str
    limit_value: float
    ratio: float
    """How much of the limit is reached, as the median over pairs that were measured side by side."""
    goal: Goal
    reached: bool
    rounds: int
    notes: dict[str, float] = {}
    """Further figures of the same run, their units in their names."""


def result_of(
    name: str,
    what: str,
    unit: str,
    samples: Sequence[float],
    limit_name: str,
    limits: Sequence[float],
    goal: Goal,
    notes: dict[str, float] | None = None,
) -> Result:
    """Sum up the rounds. With a goal of `at most` the figures are times: the limit is the shorter one, and the
    ratio says again how near we come to it.

    >>> result_of("x", "an example", "GB/s", [4.0, 5.0], "memcpy", [10.0, 10.0], Goal.share_of_limit(0.4)).reached
    True
    """
    is_time = goal.kind is Goal.Kind.AT_MOST
    value = median(samples)
    ratio = paired_ratio(limits, samples) if is_time else paired_ratio(samples, limits)
    return Result(
        name=name,
        what=what,
        value=value,
        unit=unit,
        spread=spread(samples),
        limit_name=limit_name,
        limit_value=median(limits),
        ratio=ratio,
        goal=goal,
        reached=goal.is_reached(value, ratio),
        rounds=len(samples),
        notes=notes or {},
    )
