"""Filters of a batch read that let it skip parts of the log: on topic, partition, offset and timestamp. Pure.

Spark applies every filter again, so what is kept here may be too much, never too little. An upper bound on timestamps
skips nothing: producers choose them, and an older one may stand behind a younger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ringlog.model import TopicPartition
from spark_bridge.options import Offsets

_OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a query can see."""

    topics: frozenset[Any] | None = None
    partitions: frozenset[Any] | None = None
    """None: all."""
    offset_min: int = 0
    offset_end: int = _OFFSET_MAX
    time_min_ms: int | None = None

    def admits(self, tp: TopicPartition) -> bool:
        return (self.topics is None or tp.topic in self.topics) and (
            self.partitions is None or tp.partition in self.partitions
        )

    def start(self, offsets: Offsets) -> Offsets:
        return {tp: max(at, self.offset_min) for tp, at in offsets.items()}

    def end(self, offsets: Offsets) -> Offsets:
        return {tp: min(at, self.offset_end) for tp, at in offsets.items()}


def bounds_of(filters: Iterable[Any]) -> Bounds:
    """The bounds that all of these filters together set; those that set none are passed over.

    They are told apart by the names of their classes, so that this needs no Spark.
    """
    bounds = Bounds()
    for one in filters:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        kind = type(one).__name__
        if len(path) == 1 and kind in _KINDS:
            values = one.value if kind == "In" else (one.value,)
            bounds = _narrowed(
                bounds, path[0].lower(), kind, [value for value in values if value is not None]
            )
    return bounds


_KINDS = ("EqualTo", "In", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")


def _narrowed(bounds: Bounds, column: str, kind: str, values: list[Any]) -> Bounds:
    if not values:
        return bounds
    low, high = min(values), max(values)
    equal = kind in ("EqualTo", "In")
    if column == "topic" and equal:
        return replace(bounds, topics=_both(bounds.topics, values))
    if column == "partition" and equal:
        return replace(bounds, partitions=_both(bounds.partitions, values))
    if column == "offset":
        if equal or kind.startswith("Greater"):
            first = math.floor(low) + (kind == "GreaterThan")
            bounds = replace(bounds, offset_min=max(bounds.offset_min, first))
        if equal or kind.startswith("Less"):
            end = math.ceil(high) + (kind != "LessThan")
            bounds = replace(bounds, offset_end=min(bounds.offset_end, end))
    if column == "timestamp" and isinstance(low, datetime) and (equal or kind.startswith("Greater")):
        # Records have milliseconds: those of the one that the bound lies in are kept, and Spark looks closer.
        time_ms = _ms(low)
        known = bounds.time_min_ms
        return replace(bounds, time_min_ms=time_ms if known is None else max(known, time_ms))
    return bounds


def _both(known: frozenset[Any] | None, values: list[Any]) -> frozenset[Any]:
    return frozenset(values) if known is None else known & frozenset(values)


def _ms(at: datetime) -> int:
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return max(0, math.floor(aware.timestamp() * 1000))
