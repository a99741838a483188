"""Nodes on loopback for measurements: a cluster of three, and one by itself beside it; killed and started again."""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ringlog.client.admin import Admin
from ringlog.errors import NodeFailed, RinglogError
from ringlog.limits import MIB
from ringlog.node.identity import read_info

NODES = (1, 2, 3)
PATIENCE_S = 60.0
_TAIL_BYTES = 128 * MIB
_topics = itertools.count()
_given: set[int] = set()
"""Ports that were free, and are given away: a node may not be there yet."""

T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T | None], every_s: float = 0.01) -> T:
    """The first true answer."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        found = look()
        if found:
            return found
        time.sleep(every_s)
    raise NodeFailed(f"{what}: not within {PATIENCE_S:.0f} s")


class BenchNode:
    """One node, in processes of its own."""

    def __init__(self, directory: str, *options: str) -> None:
        self.data_dir = directory
        self.port = free_ports()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Begin; `wait_ready` says when it answers."""
        os.makedirs(self.data_dir, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "ringlog.node",
            "--data-dir",
            self.data_dir,
            "--shards",
            "1",
            "--no-pin",
        ]
        command += ["--listen", f"tcp://127.0.0.1:{self.port}", "--tail-bytes-per-shard", str(_TAIL_BYTES)]
        with open(f"{self.data_dir}.log", "ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._options, "--die-with", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        process = self._process
        assert process is not None

        def ready() -> bool:
            if process.poll() is not None:
                with open(f"{self.data_dir}.log", encoding="utf-8", errors="replace") as log:
                    said = log.read()[-2000:]
                raise NodeFailed(f"a node ended with {process.returncode}: {said}")
            info = read_info(self.data_dir)
            return info is not None and info.pid == process.pid

        wait_for("a node that is ready", ready)

    def kill(self) -> None:
        """kill -9 of all its processes at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()


class BenchCluster:
    """Three nodes that are one cluster."""

    def __init__(self, directory: str) -> None:
        members = ",".join(f"{node_id}@127.0.0.1:{free_ports()}" for node_id in NODES)
        self.nodes = {
            node_id: BenchNode(f"{directory}/node-{node_id}", "--node-id", str(node_id), "--cluster", members)
            for node_id in NODES
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            node.wait_ready()

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()


@contextmanager
def running(kind: BenchCluster | BenchNode) -> Iterator[None]:
    """Started, and stopped at the end of the block."""
    try:
        kind.start()
        if isinstance(kind, BenchNode):
            kind.wait_ready()
        yield
    finally:
        kind.stop()


@contextmanager
def topic_on(bootstrap: str, partitions: int, factor: int) -> Iterator[str]:
    """A new topic, deleted at the end of the block."""
    name = f"bench-{next(_topics)}"
    with Admin(bootstrap) as admin:
        config = {"min.insync.replicas": "2"} if factor > 1 else {}
        admin.create_topic(name, num_partitions=partitions, replication_factor=factor, config=config)
        wait_for("a topic with all its replicas in sync", lambda: in_sync(admin, name))
        yield name
        admin.delete_topic(name)


def in_sync(admin: Admin, topic: str, *, preferred: bool = False) -> bool:
    """Whether every partition is led, `preferred`: by who shall lead it, and all its replicas are in sync."""
    try:
        found = admin.describe_topic(topic)
    except RinglogError:
        return False  # a node that has not heard of it yet
    return all(
        one.leader != -1
        and len(one.isr) == len(one.replicas)
        and (not preferred or one.leader == one.replicas[0])
        for one in found.partitions
    )


def free_ports() -> int:
    """A TCP port that is free together with the next one, and was not given before. None that the system gives to those
    who connect: a node that is started again must find its own free."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000, 2)
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port
