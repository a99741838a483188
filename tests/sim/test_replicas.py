"""Replication survives every storm, and each of its known failures is caught."""

from __future__ import annotations

import time

import pytest

from tests.sim.replay import run_seeds
from tests.sim.replica_mutants import MUTANTS
from tests.sim.replicas import HOLE_KINDS, replicas, replicas_short, unclean
from tests.support.amounts import amount

SEEDS = 1_000
CATCH_S_MAX = 60.0
"""For one mutant; most take a second or two."""


@pytest.mark.parametrize("part", range(4))
def test_nothing_acknowledged_is_lost_and_replicas_agree_whatever_happens(part):
    first = 100_000 * part
    ran = run_seeds("replicas", replicas, range(first, first + amount(5, SEEDS)), within_s=amount(20, 3_000))
    assert ran > 0


@pytest.mark.parametrize("part", range(2))
def test_nothing_is_lost_in_very_many_short_storms(part):
    first = 1_000_000 * (part + 1)
    seeds = range(first, first + amount(150, 10 * SEEDS))
    ran = run_seeds("replicas_short", replicas_short, seeds, within_s=amount(20, 3_000))
    assert ran >= 10, "the simulator has become too slow to show anything"


def test_what_rots_or_is_missing_is_mended_from_the_others_whatever_else_happens():
    told = []

    def scenario(seed: int) -> list[str]:
        story = replicas_short(seed, HOLE_KINDS)
        told.append(any("is lost" in line for line in story))
        return story

    run_seeds("replicas_holes", scenario, range(amount(60, 5 * SEEDS)), within_s=amount(20, 1_500))
    assert sum(told) > len(told) // 6, "too few of them lose anything at all"


def test_an_unclean_election_takes_no_more_than_it_must():
    told = []

    def scenario(seed: int) -> list[str]:
        story = unclean(seed)
        told.append(any("unclean election" in line for line in story))
        return story

    run_seeds("unclean", scenario, range(amount(30, SEEDS)), within_s=amount(20, 1_500))
    # How many is no matter of the code: a busy machine runs fewer seeds, of which one in four has one.
    assert any(told), "none of them has an unclean election at all"


@pytest.mark.parametrize("name", MUTANTS)
def test_a_known_failure_is_caught(name):
    until_s = time.monotonic() + CATCH_S_MAX
    for seed in [MUTANTS[name].seen_at, *range(SEEDS)]:
        try:
            MUTANTS[name].scenario(seed)
        except AssertionError as caught:
            MUTANTS[name].without(seed)  # it is the failure that is caught, not the seed
            print(f"{name}: caught by seed {seed}: {str(caught).splitlines()[0]}")
            return
        assert time.monotonic() < until_s, f"not caught within {CATCH_S_MAX} s and {seed + 1} seeds"
    pytest.fail(f"not caught within {SEEDS} seeds")


def test_the_same_seed_tells_the_same_story():
    assert replicas(7) == replicas(7)
