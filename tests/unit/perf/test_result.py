"""Goals are judged by the figure or by its share of the limit, as each says."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from perf.machine import Machine, Storage
from perf.micro.report import Report, show
from perf.micro.result import Goal, result_of


def test_a_rate_below_its_goal_is_a_miss():
    result = result_of("x", "x", "GB/s", [3.0, 3.5, 3.9], "limit", [9.0, 9.0, 9.0], Goal.at_least(4, "GB/s"))
    assert not result.reached
    assert result.value == 3.5


def test_a_share_is_judged_by_pairs_and_not_by_the_medians():
    # The machine was slow in the first round only; every pair reached eight tenths.
    result = result_of(
        "x", "x", "GB/s", [0.8, 8.0, 8.0], "limit", [1.0, 10.0, 10.0], Goal.share_of_limit(0.8)
    )
    assert result.reached


def test_a_time_is_judged_by_its_bound_and_its_ratio_is_below_one():
    result = result_of("x", "x", "s", [0.5, 0.4, 0.6], "limit", [0.1, 0.1, 0.1], Goal.at_most(1, "s"))
    assert result.reached
    assert result.ratio == 0.2


@pytest.mark.parametrize(("samples", "shown"), [([4.0], False), ([4.0, 4.0], True)])
def test_the_spread_is_shown_of_several_rounds_only(samples, shown):
    limits = [10.0] * len(samples)
    result = result_of("x", "an example", "GB/s", samples, "memcpy", limits, Goal.share_of_limit(0.1))
    console = Console(file=io.StringIO(), width=200)
    machine = Machine(
        "A CPU", 2, 24.0, "6.1", "3.11", 0.0, Storage("ext4", "rw", "/dev/x", "disk", "write back")
    )
    show(Report("c", "tiny", "plain", machine, [result]), console)
    assert ("0%" in console.file.getvalue()) is shown
