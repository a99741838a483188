"""Medians, percentiles, spread and paired ratios, against values worked out by hand."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf.stats import median, paired_ratio, percentile, spread

samples = st.lists(st.floats(min_value=0.001, max_value=1e9), min_size=1, max_size=50)


@given(samples)
def test_median_is_that_of_the_standard_library(values):
    assert median(values) == pytest.approx(statistics.median(values))


@given(samples)
def test_percentiles_run_from_the_smallest_sample_to_the_largest(values):
    found = [percentile(values, percent) for percent in (0, 10, 50, 90, 100)]
    assert found[0] == min(values)
    assert found[-1] == max(values)
    assert found == sorted(found)


def test_percentile_lies_between_its_two_neighbours():
    assert percentile([40.0, 10.0, 30.0, 20.0], 25) == 17.5


def test_no_samples_are_refused():
    with pytest.raises(ValueError, match="no samples"):
        median([])


@pytest.mark.parametrize("percent", [-1, 101])
def test_a_percentile_outside_of_0_to_100_is_refused(percent):
    with pytest.raises(ValueError, match="between 0 and 100"):
        percentile([1.0], percent)


def test_spread_of_one_outlier_is_small():
    assert spread([10.0] * 9 + [1000.0]) == 0.0


def test_spread_around_zero_is_refused():
    with pytest.raises(ValueError, match="zero"):
        spread([0.0, 0.0])


def test_paired_ratio_forgives_a_slow_moment_that_hit_both():
    assert paired_ratio([8.0, 0.8, 8.0], [10.0, 1.0, 10.0]) == pytest.approx(0.8)


def test_paired_ratio_refuses_samples_without_a_partner():
    with pytest.raises(ValueError):
        paired_ratio([1.0, 2.0], [1.0])
