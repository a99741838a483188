"""Seeds: runs a scenario over many of them, and says how to see a failing one again.

python -m tests.sim quorum --seed 17            # one seed, with the story of its faults
python -m tests.sim quorum --seeds 0-999        # many
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ringlog.errors import InvariantBroken


class CheckFailed(AssertionError):
    """A checker found something that must never be."""


Scenario = Callable[[int], list[str]]
"""Runs one seed and returns the story of its faults; raises CheckFailed, which then carries the story."""


def failing_with_story(story: list[str], error: BaseException) -> CheckFailed:
    """The error of a run, with what had been done to the cluster."""
    return CheckFailed("\n".join([str(error), "what was done to the cluster:", *story[-60:]]))


def run_seeds(name: str, scenario: Scenario, seeds: Iterable[int], *, within_s: float = 1e9) -> int:
    """Run seeds until the time is up; returns how many there were. A failure names the command that replays it."""
    until_s = time.monotonic() + within_s
    ran = 0
    for seed in seeds:
        try:
            scenario(seed)
        except Exception as error:
            raise CheckFailed(
                f"seed {seed} of {name} failed; see it again with\n"
                f"    python -m tests.sim {name} --seed {seed}\n{type(error).__name__}: {error}"
            ) from error
        ran += 1
        if time.monotonic() > until_s:
            break
    return ran


def first_failing(scenario: Scenario, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first seed that a checker rejects, and why: how long it takes to catch a mutant. Other errors are raised."""
    for seed in seeds:
        try:
            scenario(seed)
        except (CheckFailed, InvariantBroken) as error:
            return seed, str(error)
    return None
