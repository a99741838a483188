"""Filters that skip parts of the log: never more than Spark's own filter would."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ringlog.model import TopicPartition
from spark_bridge.filters import Bounds, bounds_of


@dataclass(frozen=True)
class EqualTo:
    attribute: tuple[str, ...]
    value: Any


class In(EqualTo):
    """Of several values."""


class GreaterThan(EqualTo):
    """Strictly."""


class GreaterThanOrEqual(EqualTo):
    """Or the same."""


class LessThan(EqualTo):
    """Strictly."""


class LessThanOrEqual(EqualTo):
    """Or the same."""


class IsNotNull(EqualTo):
    """Sets no bound."""


AT = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
AT_MS = 1_767_323_045_678


def test_offsets_are_bounded_on_both_sides():
    bounds = bounds_of([GreaterThan(("offset",), 10), LessThanOrEqual(("offset",), 20)])
    assert (bounds.offset_min, bounds.offset_end) == (11, 21)
    assert bounds_of([EqualTo(("offset",), 7)]) == Bounds(offset_min=7, offset_end=8)
    bounds = bounds_of([GreaterThanOrEqual(("offset",), 10), LessThan(("offset",), 20)])
    assert (bounds.offset_min, bounds.offset_end) == (10, 20)
    assert bounds_of([In(("offset",), (30, 10, 20))]) == Bounds(offset_min=10, offset_end=31)


def test_partitions_and_topics_are_chosen():
    bounds = bounds_of([In(("partition",), (0, 2)), EqualTo(("topic",), "a"), In(("partition",), (2, 3))])
    assert bounds.admits(TopicPartition("a", 2))
    assert not bounds.admits(TopicPartition("a", 0))
    assert not bounds.admits(TopicPartition("b", 2))


def test_a_lower_bound_of_time_keeps_its_millisecond():
    assert bounds_of([GreaterThan(("timestamp",), AT)]).time_min_ms == AT_MS
    assert bounds_of([EqualTo(("timestamp",), AT.replace(tzinfo=None))]).time_min_ms == AT_MS
    later = AT.replace(year=2027)
    bounds = bounds_of([GreaterThan(("timestamp",), later), GreaterThanOrEqual(("timestamp",), AT)])
    assert bounds.time_min_ms == int(later.timestamp() * 1000)


def test_an_upper_bound_of_time_skips_nothing():
    assert bounds_of([LessThan(("timestamp",), AT)]) == Bounds()


def test_filters_that_set_no_bound_are_passed_over():
    some = [IsNotNull(("offset",), None), EqualTo(("value", "offset"), 5), EqualTo(("offset",), None)]
    assert bounds_of(some) == Bounds()
