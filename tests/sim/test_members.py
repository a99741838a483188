"""The voters of a quorum change in the middle of a storm: its invariants hold, and the change comes about."""

from __future__ import annotations

from tests.sim.members import members
from tests.sim.quorum_mutants import CommitsWithoutMajority
from tests.sim.replay import first_failing, run_seeds
from tests.support.amounts import amount


def test_every_seed_keeps_the_invariants_while_nodes_join_and_leave():
    ran = run_seeds("members", members, range(amount(40, 2_000)), within_s=amount(8, 900))
    assert ran >= 2, "the simulator has become too slow to show anything"


def test_commits_without_a_majority_are_caught_here_too():
    assert first_failing(lambda seed: members(seed, CommitsWithoutMajority), range(1_000)) is not None
