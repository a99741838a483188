"""The processes that carry replication die under load, and the largest batch there is goes through them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ringlog.controller.topic_config import MESSAGE_BYTES_MAX
from ringlog.limits import KIB, MIB
from ringlog.records.encode import encode
from tests.support.amounts import cases, chance
from tests.support.cluster import NODES, ClusterTrial
from tests.support.patience import stretched
from tests.support.raw_client import RawClient

WRITABLE_WITHIN_S = 20.0


@pytest.mark.timeout(3600)
def test_peer_processes_and_shards_that_are_killed_hold_up_nothing_for_long(tmp_path: Path):
    rng = chance("peers")
    with ClusterTrial(tmp_path, options=("--tail-bytes-per-shard", str(48 * MIB))) as trial:
        _replicate_the_largest_batch(trial)
        with trial.load(rate=300, producers=1, value_bytes_max=64 * KIB) as load:
            load.wait_warm(15)
            for number in cases(short=4, full=200):
                time.sleep(rng.uniform(0.0, 0.2))
                node = trial.nodes[rng.choice(NODES)]
                role = ("peer", "shard")[number % 2]
                killed_at = time.monotonic()
                old_pid = node.kill(role)
                load.wait_writable(killed_at, stretched(WRITABLE_WITHIN_S))
                node.wait_replaced(role, 0, old_pid)
            trial.wait_in_sync()
        assert any(node.metric("near_bytes_in_total", "peer") for node in trial.nodes.values())
        trial.judge(records_min=50)


def _replicate_the_largest_batch(trial: ClusterTrial) -> None:
    """It must fit every frame, ring and memory on its way to the followers, or its partition would stand still."""
    trial.create_topic(
        "large", 1, **{"max.message.bytes": str(MESSAGE_BYTES_MAX), "min.insync.replicas": "3"}
    )
    (one,) = trial.topic("large")
    # A record's length takes a few bytes more when it is large.
    overhead = len(encode([b""], timestamps=1)) + 8
    batch = bytes(encode([os.urandom(MESSAGE_BYTES_MAX - overhead)], timestamps=1))
    assert MESSAGE_BYTES_MAX - 16 <= len(batch) <= MESSAGE_BYTES_MAX
    with RawClient(trial.nodes[one.leader_node].endpoint, timeout_s=stretched(20)) as client:
        for expected in range(2):
            assert client.produce_bytes(one.partition, batch).base_offset == expected
