"""A shard process stands still while its node lives: others lead what it led, and it does no harm when it wakes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.amounts import cases, chance
from tests.support.cluster import NODES, ClusterTrial
from tests.support.load import Load
from tests.support.node import wait_for
from tests.support.patience import stretched

WRITABLE_WITHIN_S = 6.0
"""A session of one second, a change of leaders and clients that hear of it; with patience for a slow machine. Without a
change of leaders it would take as long as the shard sleeps."""
SHARDS = 2


@pytest.mark.timeout(3600)
def test_a_shard_that_stands_still_by_itself_is_deposed_and_does_no_harm_when_it_wakes(tmp_path: Path):
    rng = chance("stuck shard")
    with ClusterTrial(tmp_path, partitions=6, shards=SHARDS) as trial:
        with trial.load(rate=400, producers=1) as load:
            load.wait_warm(15)
            for _ in cases(short=2, full=60):
                node = trial.nodes[rng.choice(NODES)]
                led = {
                    one.index: one.leader_epoch for one in trial.topic() if one.leader_node == node.node_id
                }
                stopped_at = time.monotonic()
                pid = node.pause("shard", rng.randrange(SHARDS))
                try:
                    load.wait_writable(stopped_at, stretched(WRITABLE_WITHIN_S))
                    at = dict(load.consumers[0].next_offsets)
                    wait_for("what is written is read", lambda: _goes_on(load, at), stretched(5))  # noqa: B023
                    kept = [one.index for one in trial.topic() if one.leader_node == node.node_id]
                    assert len(kept) < len(led), "the other shard leads on, this one does not"
                finally:
                    node.resume(pid)
                trial.wait_in_sync()
                wait_for("its partitions", lambda: _leads(trial, node.node_id, set(led)), stretched(10))  # noqa: B023
                assert node.pid_of("shard", 0) and not any(p.errors for p in load.producers)
        trial.judge(records_min=50)


def _goes_on(load: Load, at: dict[int, int]) -> bool:
    """The reader has more of every partition than then."""
    return all(load.consumers[0].next_offsets[partition] > offset for partition, offset in at.items())


def _leads(trial: ClusterTrial, node_id: int, led: set[int]) -> bool:
    """It was deposed for as long as it stood still, not for ever."""
    return led <= {one.index for one in trial.topic() if one.leader_node == node_id}
