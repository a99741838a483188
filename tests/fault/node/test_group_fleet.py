"""Fleets of real consumers that are killed, paused, stopped and joined under load: every record is read by somebody."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

import ringlog
from ringlog.errors import RinglogError
from tests.support.amounts import amount, cases
from tests.support.node import NodeProcess
from tests.support.patience import stretched

ROOT = Path(__file__).resolve().parents[3]
POLLED = 50
"""Records that a member of the fleet may have polled and not committed."""


class Fleet:
    """Consumer processes of one group, and what they have printed."""

    def __init__(self, bootstrap: str, size: int) -> None:
        self._command = [sys.executable, "-m", "tests.support.group_child", bootstrap, "fleet", "t", "600"]
        self.living: list[subprocess.Popen[bytes]] = []
        self._files: list[Path] = []
        self._printed: dict[subprocess.Popen[bytes], Path] = {}
        self.killed: set[Path] = set()
        """What those printed who were killed."""
        self._size = size

    def grow(self, directory: Path) -> None:
        """A process joins."""
        path = directory / f"consumer-{len(self._files)}"
        self._files.append(path)
        with open(path, "wb") as file:
            child = subprocess.Popen(self._command, stdout=file, cwd=ROOT)
        self.living.append(child)
        self._printed[child] = path

    def disturb(self, chance: random.Random, directory: Path) -> None:
        """Something happens to one of them, and the fleet has its size again."""
        victim = chance.choice(self.living)
        match chance.choice(("kill", "kill", "pause", "stop")):
            case "kill":
                victim.kill()
                self._bury(victim)
                self.killed.add(self._printed[victim])
            case "pause":
                victim.send_signal(signal.SIGSTOP)
                time.sleep(chance.uniform(0.2, 1.5))
                victim.send_signal(signal.SIGCONT)
            case "stop":
                victim.terminate()
                self._bury(victim)
                # One that was just started may die of the signal before it has read anything.
                unborn = victim.returncode == -signal.SIGTERM and not self._printed[victim].stat().st_size
                assert victim.returncode == 0 or unborn
        while len(self.living) < self._size:
            self.grow(directory)

    def _bury(self, one: subprocess.Popen[bytes]) -> None:
        one.wait(stretched(20))
        self.living.remove(one)

    def end(self) -> None:
        for one in self.living:
            one.terminate()
        for one in list(self.living):
            self._bury(one)

    def destroy(self) -> None:
        for one in self.living:
            one.kill()
            one.wait()

    def readings(self) -> dict[str, list[bool]]:
        """For each record, as often as it was read: whether the reader lived to commit it."""
        found: dict[str, list[bool]] = defaultdict(list)
        for path in self._files:
            lines = path.read_text().split("\n")[:-1]  # the last one may have been cut by a kill
            committed = len(lines) - (POLLED if path in self.killed else 0)
            for number, line in enumerate(lines):
                found[line].append(number < committed)
        return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", cases(1, 5))
def test_a_fleet_with_deaths_reads_every_record(tmp_path, seed):
    chance = random.Random(seed)
    partitions = amount(8, 32)
    with NodeProcess(str(tmp_path / "node"), shards=2) as node:
        with ringlog.Admin(bootstrap=node.bootstrap) as admin:
            admin.create_topic("t", partitions)
        fleet = Fleet(node.bootstrap, amount(3, 8))
        produced = 0
        try:
            with ringlog.Producer(bootstrap=node.bootstrap) as producer:
                for _ in range(amount(3, 8)):
                    fleet.grow(tmp_path)
                until = time.monotonic() + amount(6, 60)
                while time.monotonic() < until:
                    pause_until = time.monotonic() + chance.uniform(0.5, 2.0)
                    while time.monotonic() < pause_until:
                        for _ in range(partitions * 10):
                            producer.produce("t", b"x" * 100, partition=produced % partitions)
                            produced += 1
                        time.sleep(0.02)
                    fleet.disturb(chance, tmp_path)
                producer.flush()
            _wait_committed(node.bootstrap, partitions, produced)
            fleet.end()
        finally:
            fleet.destroy()
    readings = fleet.readings()
    assert readings.keys() == {f"{number % partitions} {number // partitions}" for number in range(produced)}
    # Exactly once where no one died: all but one of a record's readers were killed before they could commit it.
    twice = {record: committed for record, committed in readings.items() if sum(committed) > 1}
    assert not twice, twice
    again = {record: committed for record, committed in readings.items() if len(committed) > 1}
    assert len(again) <= POLLED * len(fleet.killed), again


def _wait_committed(bootstrap: str, partitions: int, produced: int) -> None:
    """The survivors take over what the dead had, within moments, and come to the end."""
    until = time.monotonic() + stretched(20)
    with ringlog.Admin(bootstrap=bootstrap) as admin:
        while True:
            described = None
            try:
                described = admin.describe_group("fleet")
            except RinglogError as error:
                assert error.retriable, error
            if described is not None and sum(p.committed or 0 for p in described.partitions) == produced:
                assert described.lag == 0
                return
            assert time.monotonic() < until, described
            time.sleep(0.1)
