"""A follower whose disk is too slow: it holds up nobody for longer than replicas may lag, and comes back."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.support.amounts import amount, cases, chance
from tests.support.cluster import ClusterTrial
from tests.support.load import Load
from tests.support.node import wait_for
from tests.support.patience import stretched

LAG_MS = 1_000
HELD_UP_S = LAG_MS / 1000 + 1.5
"""How long a write may take while a follower lags: until the leader looks, and the controller has agreed."""
LOAD = {"rate": 400, "producers": 1, "consumers": 1}


@pytest.mark.timeout(3600)
def test_a_follower_with_a_slow_disk_leaves_the_replicas_in_sync_or_slows_nobody_and_comes_back(
    tmp_path: Path,
):
    rng = chance("slow follower")
    config = tmp_path / "node.toml"
    config.write_text(f"replica_lag_time_max_ms = {LAG_MS}\n")
    options = ("--tail-bytes-per-shard", str(32 << 20), "--config", str(config))
    # One partition: what a node leads stands still with its shard, and that is not what is looked at here.
    with ClusterTrial(tmp_path, partitions=1, options=options) as trial:
        with trial.load(**LOAD) as load:
            load.wait_warm(15)
            for number in cases(short=2, full=60):
                (one,) = trial.topic()
                victim = rng.choice([node for node in one.replicas if node != one.leader_node])
                if number % 2:
                    _stall(trial, load, victim)
                else:
                    _stutter(trial, load, victim, rng)
                trial.wait_in_sync()
        assert not any(producer.errors for producer in load.producers)
        trial.judge(records_min=50)


def _stall(trial: ClusterTrial, load: Load, victim: int) -> None:
    """The disk takes nothing at all: the follower must be out of sync in time, and writes go on without it."""
    node, stopped_at = trial.nodes[victim], time.monotonic()
    pid = node.pause("shard")
    try:
        load.wait_writable(stopped_at, stretched(HELD_UP_S))
        assert victim not in trial.topic()[0].isr, "somebody acknowledged what an in-sync replica cannot hold"
        # A moment later no write waits for it any more.
        load.wait_writable(time.monotonic(), stretched(LAG_MS / 1000 / 2))
    finally:
        node.resume(pid)


def _stutter(trial: ClusterTrial, load: Load, victim: int, rng: random.Random) -> None:
    """The disk takes something now and then: whether the follower stays in sync or not, no write waits for long."""
    node, until = trial.nodes[victim], time.monotonic() + amount(3, 20)
    while time.monotonic() < until:
        asked_at = time.monotonic()
        pid = node.pause("shard")
        try:
            time.sleep(rng.uniform(0.1, 0.6))
        finally:
            node.resume(pid)
        time.sleep(rng.uniform(0.01, 0.1))
        load.wait_writable(asked_at, stretched(HELD_UP_S))
    wait_for("a leader", lambda: trial.topic()[0].leader_node > 0, stretched(5))
