"""The quorum of controllers in the simulator: its invariants hold through every storm, and no mutant gets through."""

from __future__ import annotations

import pytest

from tests.sim.faults import KINDS
from tests.sim.quorum import quorum, quorum_brisk, quorum_short
from tests.sim.quorum_mutants import MUTANTS, SEEN_AT, STORMS
from tests.sim.quorum_node import QuorumNode
from tests.sim.replay import first_failing, run_seeds
from tests.support.amounts import amount

SEEDS = amount(30, 5_000)
SHORT_SEEDS = amount(750, 20_000)
SECONDS = amount(15, 1_800)
MUTANT_SEEDS_MAX = 1_000


def test_every_seed_keeps_the_invariants_of_the_quorum():
    ran = run_seeds("quorum", quorum, range(SEEDS), within_s=SECONDS)
    assert ran >= 3, "the simulator has become too slow to show anything"


def test_every_seed_keeps_them_when_faults_come_thick_and_fast():
    ran = run_seeds("quorum_brisk", quorum_brisk, range(SEEDS), within_s=SECONDS / 2)
    assert ran >= 3, "the simulator has become too slow to show anything"


@pytest.mark.parametrize("part", range(2))
def test_every_seed_keeps_them_in_very_many_short_storms(part):
    first = 1_000_000 * part
    ran = run_seeds("quorum_short", quorum_short, range(first, first + SHORT_SEEDS), within_s=SECONDS)
    assert ran >= 30, "the simulator has become too slow to show anything"


def test_the_same_seed_is_the_same_run():
    assert quorum(7) == quorum(7)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_caught_within_a_thousand_seeds(mutant: type[QuorumNode]):
    def run(seed: int) -> list[str]:
        return quorum(seed, mutant, kinds=STORMS.get(mutant, KINDS), brisk=mutant in STORMS)

    caught = first_failing(run, [SEEN_AT[mutant], *range(MUTANT_SEEDS_MAX)])
    assert caught is not None, f"{mutant.__doc__} And nobody noticed"
