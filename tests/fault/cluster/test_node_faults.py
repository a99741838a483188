"""Nodes of a cluster die, stand still, come back and lose their disks under load: nothing acknowledged is lost."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.support.amounts import cases, chance
from tests.support.cluster import BACK_WITHIN_S, NODES, ClusterTrial
from tests.support.node import wait_for
from tests.support.patience import stretched

WRITABLE_WITHIN_S = 20.0
"""How long it takes is measured by `python -m perf cluster`; here it must come about, also on a slow machine."""
VICTIMS = ("leader", "follower", "controller")
LOAD = {"rate": 400, "producers": 1, "consumers": 1}


@pytest.mark.timeout(3600)
def test_nodes_that_are_killed_are_replaced_and_are_soon_back_in_sync(tmp_path: Path):
    rng = chance("killed")
    with ClusterTrial(tmp_path) as trial:
        with trial.load(**LOAD) as load:
            load.wait_warm(15)
            for number in cases(short=3, full=150):
                time.sleep(rng.uniform(0.0, 0.3))
                node_id = _choose(trial, VICTIMS[number % 3], rng)
                killed_at = time.monotonic()
                trial.nodes[node_id].kill_all()
                load.wait_writable(killed_at, stretched(WRITABLE_WITHIN_S))
                trial.start(node_id)
                trial.wait_in_sync(within_s=BACK_WITHIN_S)
        trial.judge(records_min=50)


def _choose(trial: ClusterTrial, victim: str, rng: random.Random) -> int:
    if victim == "controller":
        return trial.controller()
    partition = rng.choice(trial.topic())
    if victim == "leader":
        return partition.leader_node
    return rng.choice([node for node in partition.replicas if node != partition.leader_node])


@pytest.mark.timeout(3600)
def test_a_leader_that_stands_still_for_longer_than_its_session_is_deposed_and_does_no_harm(tmp_path: Path):
    rng = chance("frozen")
    with ClusterTrial(tmp_path) as trial:
        with trial.load(**LOAD) as load:
            load.wait_warm(15)
            for _ in cases(short=1, full=30):
                node_id = rng.choice(NODES)
                epochs = {one.index: one.leader_epoch for one in trial.topic()}
                led = [one.index for one in trial.topic() if one.leader_node == node_id]
                stopped_at = time.monotonic()
                trial.nodes[node_id].freeze()
                try:
                    wait_for("other leaders", lambda: _is_deposed(trial, node_id), stretched(20))  # noqa: B023
                    load.wait_writable(stopped_at, stretched(WRITABLE_WITHIN_S))
                finally:
                    trial.nodes[node_id].thaw()
                trial.wait_in_sync()
                after = {one.index: one.leader_epoch for one in trial.topic()}
                assert all(after[index] > epochs[index] for index in led)
        trial.judge(records_min=50)


def _is_deposed(trial: ClusterTrial, node_id: int) -> bool:
    partitions = trial.topic(avoid=[node_id])
    return bool(partitions) and all(one.leader_node not in (node_id, -1) for one in partitions)


@pytest.mark.timeout(3600)
def test_a_rolling_restart_loses_nothing_and_every_partition_stays_writable(tmp_path: Path):
    with ClusterTrial(tmp_path) as trial:
        with trial.load(**LOAD) as load:
            load.wait_warm(15)
            for _ in cases(short=1, full=10):
                for node_id in NODES:
                    stopped_at = time.monotonic()
                    trial.stop(node_id)
                    load.wait_writable(stopped_at, stretched(WRITABLE_WITHIN_S))
                    trial.start(node_id)
                    trial.wait_in_sync()
        assert not any(producer.errors for producer in load.producers)
        trial.judge(records_min=50)


@pytest.mark.timeout(3600)
def test_a_node_whose_disk_was_wiped_comes_back_with_everything(tmp_path: Path):
    rng = chance("wiped")
    with ClusterTrial(tmp_path) as trial:
        with trial.load(**LOAD) as load:
            load.wait_warm(15)
            for _ in cases(short=1, full=20):
                node_id = rng.choice(NODES)
                killed_at = time.monotonic()
                trial.nodes[node_id].kill_all()
                trial.nodes[node_id].wipe()
                load.wait_writable(killed_at, stretched(WRITABLE_WITHIN_S))
                trial.start(node_id)
                trial.wait_in_sync()
        trial.judge(records_min=50)


@pytest.mark.timeout(3600)
def test_all_nodes_are_killed_at_once_and_what_was_acknowledged_is_there(tmp_path: Path):
    with ClusterTrial(tmp_path) as trial:
        with trial.load(**LOAD) as load:
            load.wait_warm(15)
            for _ in cases(short=1, full=20):
                for node in trial.nodes.values():
                    node.kill_all()
                started_at = time.monotonic()
                trial.start(*NODES)
                load.wait_writable(started_at, stretched(WRITABLE_WITHIN_S))
                trial.wait_in_sync()
        trial.judge(records_min=50)
