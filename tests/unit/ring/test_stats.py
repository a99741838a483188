"""The stats page: buckets hold what they say, quantiles are near, and readers see what was shown."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.ring.stats import BUCKETS, LoopClock, Stats, StatsPage, bucket_of, bucket_top, quantile


@pytest.fixture
def page() -> StatsPage:
    return StatsPage(memoryview(bytearray(StatsPage.bytes_needed(2))), 2)


@given(st.floats(0, 1e11))
def test_a_value_lies_in_its_bucket(value):
    bucket = bucket_of(value)
    assert 0 <= bucket < BUCKETS
    assert value <= bucket_top(bucket) * 1.000001 or bucket == BUCKETS - 1
    assert bucket == 0 or bucket_top(bucket - 1) <= value * 1.000001


@pytest.mark.parametrize("value", [0, 1, 2, 3, 100, 2**20, 10**11, 10**13])
def test_what_is_observed_is_counted_in_its_bucket(page, value):
    stats = Stats(page, 0)
    stats.observe("fetch_us", value, count=3)
    stats.show()
    assert page.rows[0]["fetch_us"][bucket_of(value)] == page.rows[0]["fetch_us"].sum() == 3


@given(st.lists(st.floats(1, 1e9), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_quantile_is_right_within_a_bucket(values, q):
    counts = np.zeros(BUCKETS, np.uint64)
    for value in values:
        counts[bucket_of(value)] += 1
    exact = sorted(values)[max(1, int(np.ceil(q * len(values)))) - 1]
    found = quantile(counts, q)
    assert exact * 0.999 <= found <= exact * 1.2


def test_nothing_has_no_quantile():
    assert quantile(np.zeros(BUCKETS, np.uint64), 0.5) is None


def test_readers_see_counters_when_they_are_shown(page):
    stats = Stats(page, 1)
    stats.counts["requests"] += 7
    stats.observe("produce_us", 100)
    assert page.rows[1]["requests"] == 0
    stats.show()
    assert (page.rows[1]["requests"], page.rows[1]["produce_us"].sum(), page.rows[0]["requests"]) == (7, 1, 0)


def test_a_new_incarnation_begins_at_0(page):
    first = Stats(page, 0)
    first.counts["requests"] = 9
    first.show()
    Stats(page, 0)
    assert page.rows[0]["requests"] == 0


def test_a_loop_is_busy_from_its_wake_to_its_sleep(page):
    stats = Stats(page, 0)
    clock = LoopClock(stats)
    clock.work(100)
    clock.work(130)  # no sleep between
    clock.rest(150)
    clock.work(1000)
    clock.rest(1005)
    assert (stats.counts["loops"], stats.counts["busy_us"]) == (3, 55)
