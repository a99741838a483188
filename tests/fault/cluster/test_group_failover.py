"""The node that keeps a consumer group dies while its members commit: no commit goes back, and the group goes on."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ringlog
from ringlog.errors import RinglogError
from ringlog.net.group_messages import OFFSETS_TOPIC
from ringlog.records.partitioner import partition_for
from tests.support.amounts import cases, chance
from tests.support.cluster import TOPIC, ClusterTrial
from tests.support.node import wait_for
from tests.support.patience import stretched

ROOT = Path(__file__).resolve().parents[3]
GROUP = "readers"
MEMBERS = 2
LOAD = {"rate": 400, "producers": 1, "consumers": 0}


class Watch(threading.Thread):
    """Asks for the offsets of the group again and again: none may be lower than it was."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="watch", daemon=True)
        self._address = bootstrap
        self._over = threading.Event()
        self.offsets: dict[int, int] = {}
        self.seen: dict[int, set[int]] = defaultdict(set)
        """All offsets that each partition was ever at."""
        self.went_back: list[str] = []

    def run(self) -> None:
        with ringlog.Admin(self._address) as admin:
            while not self._over.wait(0.05):
                try:
                    found = admin.group_offsets(GROUP, timeout=5)
                except RinglogError as error:
                    if not error.retriable and error.code != "UNKNOWN_GROUP":
                        self.went_back.append(f"{error.code}: {error}")
                    continue
                for place, at in found.items():
                    before = self.offsets.get(place.partition, 0)
                    if at.offset < before:
                        self.went_back.append(f"{place} was at {before}, and is at {at.offset}")
                    self.offsets[place.partition] = at.offset
                    self.seen[place.partition].add(at.offset)

    def stop(self) -> None:
        self._over.set()
        self.join(stretched(20))
        assert not self.is_alive()


@contextmanager
def members(bootstrap: str, directory: Path) -> Iterator[list[Path]]:
    """Processes of the group; what each prints goes to a file: a line for every record, before the commit."""
    command = [sys.executable, "-m", "tests.support.group_child", bootstrap, GROUP, TOPIC, "3600"]
    paths = [directory / f"member-{number}" for number in range(MEMBERS)]
    children = []
    for path in paths:
        with open(path, "wb") as file:
            children.append(subprocess.Popen(command, stdout=file, cwd=ROOT))
    try:
        yield paths
        assert [child.poll() for child in children] == [None] * MEMBERS, "a member gave up"
        for child in children:
            child.terminate()
        assert [child.wait(stretched(20)) for child in children] == [0] * MEMBERS
    finally:
        for child in children:
            child.kill()
            child.wait()


@pytest.mark.timeout(3600)
def test_the_node_that_keeps_a_group_is_killed_while_members_commit_and_no_commit_goes_back(tmp_path: Path):
    rng = chance("coordinator")
    home = partition_for(GROUP.encode(), 50)
    with ClusterTrial(tmp_path) as trial:
        watch = Watch(trial.bootstrap)
        with members(trial.bootstrap, tmp_path) as printed:
            with trial.load(**LOAD) as load:
                load.wait_warm(15)
                watch.start()
                _wait_for_commits(watch)
                for _ in cases(short=2, full=100):
                    time.sleep(rng.uniform(0.0, 0.5))
                    node_id = trial.leader_of(home, OFFSETS_TOPIC)
                    trial.nodes[node_id].kill_all()
                    _wait_for_commits(watch)
                    trial.start(node_id)
                    trial.wait_in_sync()
                    trial.wait_in_sync(OFFSETS_TOPIC)
            ends = _ends(trial)
            wait_for("all records committed", lambda: watch.offsets == ends, stretched(60))
        watch.stop()
        assert not watch.went_back, watch.went_back[:5]
        read = {
            (int(partition), int(offset))
            for path in printed
            for partition, offset in map(str.split, path.read_text().splitlines())
        }
        missing = {(p, offset) for p, end in ends.items() for offset in range(end)} - read
        assert not missing, f"nobody has read {sorted(missing)[:10]} and {len(missing)} in all"
        trial.judge(records_min=50)


def _wait_for_commits(watch: Watch) -> None:
    """Return when every partition was committed twice since: one commit may have been on its way."""
    before = {partition: len(watch.seen[partition]) for partition in range(3)}
    wait_for(
        "commits of every partition",
        lambda: all(len(watch.seen[partition]) >= before[partition] + 2 for partition in range(3)),
        stretched(30),
    )


def _ends(trial: ClusterTrial) -> dict[int, int]:
    with ringlog.Consumer(trial.bootstrap) as consumer:
        found = consumer.end_offsets([(TOPIC, index) for index in range(trial.partitions)])
    return {place.partition: end for place, end in found.items()}
