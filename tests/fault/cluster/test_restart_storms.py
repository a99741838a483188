"""Nodes that are killed and started again and again, in any order, under load: nothing acknowledged is lost."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.support.amounts import cases, chance
from tests.support.cluster import NODES, ClusterTrial
from tests.support.patience import stretched

WRITABLE_WITHIN_S = 20.0
LOAD = {"rate": 400, "producers": 1, "consumers": 1}


@pytest.mark.timeout(3600)
def test_a_storm_of_restarts_one_node_at_a_time_and_sometimes_two_loses_nothing(tmp_path: Path):
    rng = chance("restarts")
    with ClusterTrial(tmp_path) as trial:
        with trial.load(**LOAD) as load:
            load.wait_warm(15)
            for number in cases(short=5, full=200):
                # Two of three are a majority: nothing can be decided or acknowledged until one of them is back.
                _restart(trial, rng.sample(NODES, 2 if number % 5 == 4 else 1), rng)
            load.wait_writable(time.monotonic(), stretched(WRITABLE_WITHIN_S))
            trial.wait_in_sync()
        trial.judge(records_min=50)


def _restart(trial: ClusterTrial, victims: list[int], rng: random.Random) -> None:
    """Kill nodes, or stop one in order, and start them again, whatever state the others are in. They answer when this
    returns; nobody waits until they are in sync."""
    if len(victims) == 1 and rng.random() < 0.2:
        trial.stop(*victims)
    else:
        for node_id in victims:
            trial.nodes[node_id].kill_all()
            time.sleep(rng.uniform(0.0, 0.1))
    time.sleep(rng.uniform(0.0, 0.4))
    rng.shuffle(victims)
    trial.start(*victims)
    time.sleep(rng.uniform(0.0, 0.3))
