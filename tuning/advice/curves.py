"""Reads what was measured as curves: rates by size and by depth, and where they stop to rise. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ringlog.limits import KIB
from tuning.probe.measured import DSYNC, FRESH, Measured, WritePoint

DEPTH_SIZE_BYTES = 64 * KIB
"""The size at which depths are compared: what a busy partition of many writes at once."""


def writes(
    measured: Measured,
    *,
    method: str = DSYNC,
    space: str = FRESH,
    size_bytes: int | None = None,
    depth: int | None = None,
) -> list[WritePoint]:
    """The points with given properties."""
    return [
        point
        for point in measured.writes
        if point.method == method
        and point.space == space
        and size_bytes in (None, point.size_bytes)
        and depth in (None, point.depth)
    ]


def write_rate(measured: Measured) -> float:
    """Bytes per second of durable writes at best; 0: not measured."""
    return max((point.bytes_per_s for point in writes(measured)), default=0.0)


def write_latency_us(measured: Measured) -> float:
    """The median of one small durable write at a time; 0: not measured."""
    alone = list(writes(measured, depth=1))
    return min(alone, key=lambda point: point.size_bytes).p50_us if alone else 0.0


def rates_by_size(measured: Measured, depth: int = 1) -> dict[int, float]:
    """Bytes per second by size of write."""
    return {point.size_bytes: point.bytes_per_s for point in writes(measured, depth=depth)}


def rates_by_depth(measured: Measured, size_bytes: int = DEPTH_SIZE_BYTES) -> dict[int, float]:
    """Bytes per second by number of writes in flight."""
    return {point.depth: point.bytes_per_s for point in writes(measured, size_bytes=size_bytes)}


def knee(rates: Mapping[int, float], share: float) -> int | None:
    """The smallest at which a share of the best rate is reached; None when there are fewer than two.

    >>> knee({1: 10.0, 4: 80.0, 16: 96.0, 64: 100.0}, 0.9), knee({1: 10.0}, 0.9)
    (16, None)
    """
    if len(rates) < 2:
        return None
    best = max(rates.values())
    return min(at for at, rate in rates.items() if rate >= best * share)
