"""Three controllers as real processes on loopback: elections, failover and restarts lose no metadata."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


class Controller:
    """One of the three."""

    def __init__(self, folder: Path, node_id: int, endpoints: str) -> None:
        self.node_id = node_id
        self.data_dir = folder / f"node-{node_id}"
        self._endpoints = endpoints
        self.events: list[dict[str, object]] = []
        self.data_dir.mkdir(exist_ok=True)
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.support.controller_child"]
        self.process = subprocess.Popen(
            [*command, str(self.data_dir), str(self.node_id), self._endpoints],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.leader: object = None
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if "leader" in event and process is self.process:
                self.leader = event["leader"]
            self.events.append(event)

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.leader = None

    def dump(self) -> dict[str, object]:
        before = len(self.events)
        self.tell("dump")
        return wait_for(lambda: next((e for e in self.events[before:] if "dump" in e), None))

    def _about(self, name: str, since: int) -> dict[str, object] | None:
        """What became of a topic."""
        return next((e for e in self.events[since:] if name in (e.get("created"), e.get("failed"))), None)

    def create(self, name: str, factor: int = 3) -> None:
        """Create a topic, again and again until that was done or the topic is there."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            before = len(self.events)
            self.tell(f"create {name} {factor}")
            event = wait_for(partial(self._about, name, before))
            if "created" in event or event["code"] == "TOPIC_EXISTS":
                return
            assert event["retriable"], event
            time.sleep(0.1)
        raise AssertionError(f"{name} could not be created")


T = TypeVar("T")


def wait_for(look: Callable[[], T | None]) -> T:
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def free_endpoints(count: int) -> str:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ",".join(f"{node_id}=tcp://127.0.0.1:{port}" for node_id, port in enumerate(ports, 1))


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Controller]]:
    endpoints = free_endpoints(3)
    controllers = [Controller(tmp_path, node_id, endpoints) for node_id in (1, 2, 3)]
    yield controllers
    for controller in controllers:
        if controller.process.poll() is None:
            controller.kill()


def leader_of(controllers: list[Controller]) -> Controller:
    """The one that all others follow."""

    def agreed() -> Controller | None:
        leaders = {controller.leader for controller in controllers}
        if len(leaders) != 1 or None in leaders:
            return None
        return next((c for c in controllers if c.node_id in leaders), None)

    return wait_for(agreed)


def same_everywhere(controllers: list[Controller], topics: set[str]) -> None:
    """All of them come to have the same metadata, with these topics in it."""

    def equal() -> bool:
        dumps = [controller.dump() for controller in controllers]
        return len(
            {json.dumps([d["dump"], d["version"], d["brokers"]]) for d in dumps}
        ) == 1 and topics <= set(
            dumps[0]["dump"]  # type: ignore[call-overload]
        )

    wait_for(equal)


def test_killing_the_leader_loses_no_metadata_and_a_new_one_takes_over(three: list[Controller]):
    made: set[str] = set()
    for kill in range(2):
        leader = leader_of(three)
        followers = [controller for controller in three if controller is not leader]
        for number in range(3):
            name = f"before-{kill}-{number}"
            three[number].create(name, 1)
            made.add(name)
        leader.kill()
        for number in range(3):
            name = f"during-{kill}-{number}"
            followers[number % 2].create(name, 1)
            made.add(name)
        leader.start()
    leader_of(three)
    same_everywhere(three, made)


def test_everybody_is_killed_at_once_and_nothing_committed_is_lost(three: list[Controller]):
    leader_of(three)
    for number in range(3):
        three[number].create(f"t{number}", 3)
    for controller in three:
        controller.kill()
    for controller in three:
        controller.start()
    leader_of(three)
    same_everywhere(three, {"t0", "t1", "t2"})


def test_a_wiped_node_comes_back_as_a_newcomer_and_then_votes_again(three: list[Controller]):
    leader = leader_of(three)
    leader.create("kept", 3)
    victim = next(controller for controller in three if controller is not leader)
    old = set(wait_for(lambda: (v := leader.dump()["voters"]) and all("*" not in x for x in v) and v))  # type: ignore
    victim.kill()
    (victim.data_dir / "quorum.log").unlink()
    victim.start()
    wait_for(lambda: set(leader_of(three).dump()["voters"]) != old)  # type: ignore[call-overload]
    same_everywhere(three, {"kept"})


def test_a_node_of_another_cluster_is_kept_apart(three: list[Controller], tmp_path: Path):
    leader_of(three)
    same_everywhere(three, set())
    other = tmp_path / "other"
    other.mkdir()
    endpoints = free_endpoints(3)
    strangers = [Controller(other, node_id, endpoints) for node_id in (1, 2, 3)]
    try:
        leader_of(strangers)
        same_everywhere(strangers, set())
        assert strangers[0].dump()["cluster"] != three[0].dump()["cluster"]
        strangers[0].kill()
        strangers[0]._endpoints = three[0]._endpoints
        three[0].kill()
        strangers[0].start()
        wait_for(lambda: int(str(three[1].dump()["refused"])) > 0)
        three[1].create("apart", 1)
        assert "apart" not in strangers[0].dump()["dump"]  # type: ignore[operator]
    finally:
        for stranger in strangers:
            if stranger.process.poll() is None:
                stranger.kill()
