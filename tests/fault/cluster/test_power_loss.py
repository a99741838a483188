"""Nodes of a cluster lose their power: what was not flushed is dropped from their disks between kill and restart."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.sim.replicas import replicas
from tests.support.amounts import amount, cases, chance
from tests.support.cluster import NODES, ClusterTrial
from tests.support.patience import stretched
from tests.support.volatile_device import SECTOR_BYTES, VolatileImage
from tests.support.volatile_disk import VolatileDisk, why_not

WRITABLE_WITHIN_S = 30.0
LOAD = {"rate": 400, "producers": 1, "consumers": 1}
SIMULATED_SEEDS = 10


@pytest.mark.timeout(7200)
def test_nodes_that_lose_power_one_or_all_at_once_lose_nothing_acknowledged(tmp_path: Path):
    missing = why_not()
    if missing:
        print(f"no disks that can lose power here ({missing}): the same is simulated, with the real replicas")
        for seed in range(SIMULATED_SEEDS):
            replicas(seed, kinds=("power",))
        return
    rng = chance("power")
    kinds = ["one", "two", "all", "one", "all"] if amount(0, 1) else ["one", "all"]
    rounds = [kinds[number % len(kinds)] for number in cases(short=2, full=100)]
    with _disks(tmp_path) as disks, ClusterTrial(tmp_path) as trial:
        with trial.load(**LOAD) as load:
            load.wait_warm(15)
            for who in rounds:
                time.sleep(rng.uniform(0.1, 0.5))
                leader = trial.leader_of(rng.randrange(trial.partitions))
                victims = _victims(who, leader, rng)
                for node_id in victims:
                    trial.nodes[node_id].kill_all()
                lost_at = time.monotonic()
                told = [disks[node_id].lose_power(rng) for node_id in victims]
                if who == "one":
                    load.wait_writable(lost_at, stretched(WRITABLE_WITHIN_S))
                trial.start(*victims)
                started_at = time.monotonic()
                load.wait_writable(started_at, stretched(WRITABLE_WITHIN_S))
                trial.wait_in_sync(within_s=WRITABLE_WITHIN_S)
                print(f"{who}: {victims}; sectors not flushed, and of these survived: {told}")
        trial.judge(records_min=50)


def _victims(who: str, leader: int, rng: random.Random) -> list[int]:
    others = rng.sample([node for node in NODES if node != leader], 2)
    return [leader, *others][: {"one": 1, "two": 2, "all": 3}[who]]


@contextmanager
def _disks(directory: Path) -> Iterator[dict[int, VolatileDisk]]:
    with ExitStack() as stack:
        disks = {}
        for node_id in NODES:
            disks[node_id] = VolatileDisk(directory / f"node-{node_id}")
            stack.callback(disks[node_id].close)
        yield disks


def test_a_volatile_image_keeps_what_was_flushed_and_of_the_rest_whole_sectors_at_most(tmp_path: Path):
    survived = 0
    for seed in range(20):
        image = VolatileImage(str(tmp_path / f"image-{seed}"), 64 * SECTOR_BYTES)
        image.write(0, b"f" * 8 * SECTOR_BYTES)
        image.flush()
        image.write(4 * SECTOR_BYTES, b"v" * 8 * SECTOR_BYTES)
        assert image.read(3 * SECTOR_BYTES + 7, SECTOR_BYTES) == b"f" * (SECTOR_BYTES - 7) + b"v" * 7
        image.off(random.Random(seed))
        image.write(0, b"x" * SECTOR_BYTES)
        image.on()
        sectors = [set(image.read(at * SECTOR_BYTES, SECTOR_BYTES)) for at in range(12)]
        assert sectors[:4] == [{ord("f")}] * 4
        assert all(len(one) == 1 and one <= {ord("f"), ord("v"), 0} for one in sectors[4:])
        survived += sum(one == {ord("v")} for one in sectors)
    assert 0 < survived < 20 * 8


def test_a_volatile_disk_keeps_files_that_were_flushed_and_forgets_the_others(tmp_path: Path):
    missing = why_not()
    if missing:
        print(
            f"no disks that can lose power here ({missing}): only their content is tried, by the test before"
        )
        return
    with ExitStack() as stack:
        disk = VolatileDisk(tmp_path / "disk")
        stack.callback(disk.close)
        kept, forgotten = disk.path / "kept", disk.path / "forgotten"
        with kept.open("wb", buffering=0) as file:
            file.write(b"flushed")
            os.fsync(file.fileno())
            file.write(b", and not flushed")
        forgotten.write_bytes(b"never flushed")
        disk.lose_power(random.Random(0))
        assert kept.read_bytes() == b"flushed"
        assert not forgotten.exists() or not forgotten.read_bytes()
