"""kill -9 of each part of a node under load: writable again within 3 s, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringlog.errors import RinglogError, TopicExists
from ringlog.limits import MIB
from ringlog.net.framing import Api
from ringlog.net.messages import FetchPartition, FetchRequest, encode_body
from tests.support.amounts import amount, cases, chance
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.trial import TOPIC, Trial

CLIENTS = ["library", "plain"][: amount(short=1, full=2)]
"""Plain requests say whether it is the node or the library that fails."""
WRITABLE_WITHIN_S = 3.0
SHARDS = 2


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("clients", CLIENTS)
@pytest.mark.parametrize("role", ["shard", "net", "controller"])
def test_a_part_that_is_killed_comes_back_and_nothing_acknowledged_is_lost(
    tmp_path: Path, role: str, clients: str
):
    rng = chance(role)
    with Trial(tmp_path, shards=SHARDS) as trial:
        with trial.load(plain=clients == "plain") as load:
            load.wait_warm()
            for number in cases(short=3, full=200):
                time.sleep(rng.uniform(0.0, 0.3))
                index = rng.randrange(SHARDS) if role == "shard" else 0
                killed_at = time.monotonic()
                old_pid = trial.node.kill(role, index)
                load.wait_writable(killed_at, stretched(WRITABLE_WITHIN_S))
                trial.node.wait_replaced(role, index, old_pid)
                if role == "controller":
                    _create_topic(trial, f"made-after-{number}", killed_at + stretched(WRITABLE_WITHIN_S))
        trial.judge(records_min=100)


@pytest.mark.timeout(3600)
def test_several_parts_that_are_killed_at_once_come_back_and_nothing_is_left_of_them(tmp_path: Path):
    rng = chance("several")
    parts = [("shard", 0), ("shard", 1), ("net", 0), ("controller", 0)]
    with Trial(tmp_path, shards=SHARDS) as trial:
        with trial.load(rate=3000) as load:
            load.wait_warm()
            held, descriptors = len(trial.node.watch.held_shared_memory()), _descriptors(trial.node.pid)
            for _ in cases(short=3, full=200):
                time.sleep(rng.uniform(0.0, 0.3))
                killed_at = time.monotonic()
                for role, index in rng.sample(parts, rng.randint(2, 4)):
                    trial.node.kill(role, index)
                    time.sleep(rng.choice((0.0, 0.02, 0.1)))
                load.wait_writable(killed_at, stretched(2 * WRITABLE_WITHIN_S))
            # Rings of the dead are given back while the node runs on.
            wait_for("no more than at the start", lambda: _held(trial) <= held, stretched(3))
            assert _descriptors(trial.node.pid) <= descriptors
        trial.judge(records_min=100)


def _held(trial: Trial) -> int:
    return len(trial.node.watch.held_shared_memory())


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.timeout(3600)
def test_readers_of_old_records_get_the_right_ones_through_all_deaths(tmp_path: Path):
    rng = chance("cold")
    # Little memory and large records: most of what is read comes from the disk, and is lent to the network process.
    with Trial(tmp_path, options=("--tail-bytes-per-shard", str(16 * MIB))) as trial:
        with trial.load(rate=2000, consumers=0, name="before-", value_bytes_max=128 * 1024) as load:
            load.wait_warm()
            time.sleep(amount(short=2, full=10))
        with trial.load(rate=100, consumers=3) as load:
            load.wait_warm()
            for _ in cases(short=4, full=200):
                time.sleep(rng.uniform(0.0, 0.15))
                trial.node.kill(*rng.choice([("shard", 0), ("shard", 1), ("net", 0)]))
            load.wait_writable(time.monotonic(), stretched(2 * WRITABLE_WITHIN_S))
        trial.judge(records_min=100)


def _create_topic(trial: Trial, name: str, until: float) -> None:
    """Metadata can be changed again, too."""
    tried = False
    while True:
        try:
            with trial.client(timeout_s=1.0) as client:
                client.create_topic(name)
            return
        except RinglogError as error:
            if isinstance(error, TopicExists) and tried:
                return  # the controller that died had made it, and could not say so
            assert error.retriable, f"{error.code}: {error}"
            tried = True
            assert time.monotonic() < until, f"no topic can be created: {error.code}: {error}"
            time.sleep(0.02)


def test_partitions_of_the_other_shards_never_notice_a_death(tmp_path: Path):
    with Trial(tmp_path, shards=SHARDS) as trial, trial.client() as client:
        lanes = {one.partition: one.lane for one in client.metadata([TOPIC]).topics[0].partitions}
        assert len(set(lanes.values())) == SHARDS, "partitions are spread over the shards"
        for partition in lanes:
            client.produce(partition, [b"before"])
        old_pid = trial.node.kill("shard", 0)
        refused = set()
        for partition, lane in lanes.items():
            try:
                client.produce(partition, [b"meanwhile"])
            except RinglogError as error:
                assert error.retriable, f"{error.code}: {error}"
                refused.add(lane)
        assert len(refused) <= 1
        trial.node.wait_replaced("shard", 0, old_pid)


def test_requests_that_a_killed_shard_held_are_answered_at_once(tmp_path: Path):
    with Trial(tmp_path, shards=1, partitions=1) as trial, trial.client(timeout_s=10) as client:
        (partition,) = client.partition_ids(TOPIC)
        end = client.end_offset(partition)
        # A long poll at the end of the log: the shard holds it until somebody produces.
        body = encode_body(FetchRequest(0, 9_000, 1, 1 << 20, [FetchPartition(partition, end, 1 << 20)]))
        client.send(client.request_frame(Api.FETCH, body, partition=partition))
        time.sleep(0.2)
        asked_at = time.monotonic()
        trial.node.kill("shard", 0)
        reply = client.next_reply(timeout_s=5)
        assert reply is not None, "no answer at all"
        assert time.monotonic() - asked_at < stretched(1.0), "at once"


@pytest.mark.timeout(3600)
def test_a_client_that_is_killed_takes_nothing_with_it(tmp_path: Path):
    rng = chance("client")
    with Trial(tmp_path, shards=SHARDS) as trial:
        with trial.load(rate=500) as load:
            load.wait_warm()
            held = len(trial.node.watch.held_shared_memory())
            for number in cases(short=2, full=200):
                victim = _start_client(trial, f"victim{number}-")
                try:
                    assert victim.stdout is not None
                    said = victim.stdout.readline()
                    assert said == b"warm\n", f"it said {said!r}, and ended with {victim.poll()}"
                    time.sleep(rng.uniform(0.0, 0.3))
                finally:
                    killed_at = time.monotonic()
                    victim.kill()
                    victim.communicate()
                load.wait_writable(killed_at, stretched(WRITABLE_WITHIN_S))
            assert len(trial.node.watch.held_shared_memory()) == held
        trial.judge(records_min=100)


def _start_client(trial: Trial, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.support.load", "--bootstrap", trial.node.bootstrap]
    command += ["--recordings", trial.recordings, "--name", name]
    command += ["--topic", TOPIC, "--partitions", str(trial.partitions)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("clients", CLIENTS)
def test_without_its_supervisor_a_node_goes_and_a_new_start_is_writable(tmp_path: Path, clients: str):
    rng = chance("supervisor")
    with Trial(tmp_path, shards=SHARDS) as trial:
        with trial.load(plain=clients == "plain") as load:
            load.wait_warm()
            for _ in cases(short=2, full=200):
                time.sleep(rng.uniform(0.0, 0.3))
                trial.node.kill_supervisor()
                wait_for(
                    "the end of the children",
                    lambda: not trial.node.watch.processes(),
                    within_s=stretched(1.0),
                )
                started_at = time.monotonic()
                trial.node.start(wait=False)
                load.wait_writable(started_at, stretched(WRITABLE_WITHIN_S))
                trial.node.wait_ready()
        trial.judge(records_min=100)


def test_a_start_right_after_the_death_of_a_supervisor_waits_for_what_is_still_leaving(tmp_path: Path):
    with Trial(tmp_path, shards=SHARDS) as trial:
        trial.node.kill_supervisor()
        trial.node.start()
        with trial.client() as client:
            (partition, *_) = client.partition_ids(TOPIC)
            client.produce(partition, [b"again"])
        assert trial.node.stop() == 0
        assert trial.node.watch.leaks(within_s=1) == []
