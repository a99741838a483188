"""`python -m tests.sim SCENARIO --seed N`: one seed with its story; `--seeds A-B`: many."""

from __future__ import annotations

import argparse

from tests.sim.replay import run_seeds
from tests.sim.scenarios import SCENARIOS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--seed", type=int, help="run this one, and print what was done to the cluster")
    parser.add_argument("--seeds", default="0-99", help="run these: FIRST-LAST")
    given = parser.parse_args()
    scenario = SCENARIOS[given.scenario]
    if given.seed is not None:
        print("\n".join(scenario(given.seed)))
        print(f"seed {given.seed}: all checks passed")
        return
    first, _, last = given.seeds.partition("-")
    ran = run_seeds(given.scenario, scenario, range(int(first), int(last or first) + 1))
    print(f"{ran} seeds: all checks passed")


main()
