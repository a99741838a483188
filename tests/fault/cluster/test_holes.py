"""Sealed segments rot or are gone, on a leader and on followers, under load: readers get all, and all are equal."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

import ringlog
from ringlog.model import TopicPartition
from ringlog.node.control import status
from ringlog.records.scan import scan
from tests.support.amounts import cases, chance
from tests.support.checkers.disk import partition_dirs
from tests.support.cluster import IN_SYNC_WITHIN_S, NODES, TOPIC, ClusterTrial
from tests.support.node import wait_for
from tests.support.patience import Patience, stretched

LOAD = {"rate": 400, "producers": 1, "consumers": 1}
SEGMENT_MS = "400"
_SEGMENT = re.compile(r"\d{20}\.log")


@pytest.mark.timeout(3600)
def test_what_rots_on_a_leader_and_is_missing_on_followers_is_fetched_again_from_the_others(tmp_path: Path):
    rng = chance("holes")
    with ClusterTrial(tmp_path, **{"segment.ms": SEGMENT_MS}) as trial:
        with trial.load(**LOAD) as load:
            load.wait_warm(15)
            for _ in cases(short=1, full=20):
                _lose_files(trial, rng)
                _rot_on_leader(trial, rng)
                trial.wait_in_sync()
        # Last: who looks at a node's counters keeps them from being swept after a kill.
        wrong = [line for node in trial.nodes.values() for line in status(node.data_dir).wrong]
        assert not [line for line in wrong if "lack records" in line]
        trial.judge(records_min=50)


def _sealed(trial: ClusterTrial, node_id: int, index: int) -> list[str]:
    """The segments of a node's replica, but for the last two, which may still be written to."""
    path = partition_dirs(trial.nodes[node_id].data_dir)[f"{TOPIC}-{index}"]
    return [os.path.join(path, name) for name in sorted(filter(_SEGMENT.fullmatch, os.listdir(path)))][:-2]


def _wait_sealed(trial: ClusterTrial, node_id: int, index: int) -> None:
    wait_for("sealed segments", lambda: len(_sealed(trial, node_id, index)) >= 4, stretched(30))


def _lose_files(trial: ClusterTrial, rng: random.Random) -> None:
    """A node is stopped, or killed, and a segment of each of its replicas is not there when it comes back."""
    node_id = rng.choice(NODES)
    for index in range(trial.partitions):
        _wait_sealed(trial, node_id, index)
    if rng.random() < 0.5:
        trial.stop(node_id)
    else:
        trial.nodes[node_id].kill_all()
    lost = [rng.choice(_sealed(trial, node_id, index)) for index in range(trial.partitions)]
    for path in lost:
        os.remove(path)
    trial.start(node_id)
    trial.wait_in_sync()
    for index in range(trial.partitions):
        _must_be_whole(trial, node_id, index)


def _rot_on_leader(trial: ClusterTrial, rng: random.Random) -> None:
    """A byte rots under a leader, and a consumer that comes by is sent to another one that has the records."""
    index = rng.randrange(trial.partitions)
    node_id = trial.topic()[index].replicas[0]
    _wait_sealed(trial, node_id, index)
    trial.stop(node_id)  # nothing of what it has now is in memory afterwards
    on_disk = _sealed(trial, node_id, index)
    trial.start(node_id)
    trial.wait_in_sync()
    wait_for("its leader", lambda: trial.leader_of(index) == node_id, stretched(IN_SYNC_WITHIN_S))
    path = rng.choice(on_disk)
    _flip_a_byte(path, rng)
    epoch = trial.topic()[index].leader_epoch
    _read_everything(trial, index)
    wait_for("another epoch", lambda: trial.topic()[index].leader_epoch > epoch, stretched(IN_SYNC_WITHIN_S))
    wait_for("the rotten file aside", lambda: os.path.exists(f"{path}.bad"), stretched(IN_SYNC_WITHIN_S))
    trial.wait_in_sync()
    _must_be_whole(trial, node_id, index)


def _flip_a_byte(path: str, rng: random.Random) -> None:
    """Of a batch, behind its CRC: the offset and the epoch before it are not covered, and no reader misses an epoch."""
    data = bytearray(Path(path).read_bytes())
    batch = rng.choice(scan(memoryview(bytes(data)), level="headers").table)
    at = int(batch["position"]) + rng.randrange(21, int(batch["length"]))
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(bytes([data[at] ^ 0x10]))


def _read_everything(trial: ClusterTrial, index: int) -> None:
    """A new consumer gets every record that was there when it came, and no error."""
    one = TopicPartition(TOPIC, index)
    with ringlog.Consumer(trial.bootstrap, auto_offset_reset="earliest") as consumer:
        (end,) = consumer.end_offsets([one]).values()
        consumer.assign([one])
        offsets: list[int] = []
        patience = Patience(stretched(30))
        while len(offsets) < end:
            assert not patience.is_over, f"{len(offsets)} of {end} records"
            offsets += [record.offset for record in consumer.poll(100)]
    assert offsets[:end] == list(range(end))


def _must_be_whole(trial: ClusterTrial, node_id: int, index: int) -> None:
    """What was only kept until the records were there again is deleted."""
    path = partition_dirs(trial.nodes[node_id].data_dir)[f"{TOPIC}-{index}"]
    wait_for(
        "no spare files",
        lambda: not [name for name in os.listdir(path) if name.endswith(".spare")],
        stretched(IN_SYNC_WITHIN_S),
    )
