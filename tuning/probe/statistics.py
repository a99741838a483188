"""Medians and percentiles of a sample. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that `share` of all do not exceed.

    >>> percentile([3.0, 1.0, 2.0, 4.0], 0.5), percentile([1.0], 0.99)
    (2.0, 1.0)
    """
    ordered = sorted(samples)
    return ordered[max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))]
