"""Statistics over a handful of noisy samples. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(samples: Sequence[float], percent: float) -> float:
    """The sample below which `percent` of all lie, interpolated between the two nearest.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50), percentile([5.0], 99)
    (2.5, 5.0)
    """
    if not samples:
        raise ValueError("no samples: there is nothing to take a percentile of")
    if not 0 <= percent <= 100:
        raise ValueError(f"a percentile lies between 0 and 100, not at {percent}")
    ordered = sorted(samples)
    at = (len(ordered) - 1) * percent / 100
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def median(samples: Sequence[float]) -> float:
    """The middle sample: one neighbour who burns CPU for a moment does not move it.

    >>> median([1.0, 900.0, 2.0])
    2.0
    """
    return percentile(samples, 50)


def spread(samples: Sequence[float]) -> float:
    """How far the middle half of the samples is apart, as a share of the median.

    >>> spread([10.0, 10.0, 10.0]), spread([8.0, 10.0, 12.0])
    (0.0, 0.2)
    """
    middle = median(samples)
    if middle == 0:
        raise ValueError("the spread around a median of zero has no meaning")
    return (percentile(samples, 75) - percentile(samples, 25)) / abs(middle)


def paired_ratio(samples: Sequence[float], limits: Sequence[float]) -> float:
    """The median of sample over limit, each pair measured side by side: a slow moment hits both of a pair.

    >>> paired_ratio([8.0, 4.0, 9.0], [10.0, 5.0, 10.0])
    0.8
    """
    return median([sample / limit for sample, limit in zip(samples, limits, strict=True)])
