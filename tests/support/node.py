"""A real node in processes of its own: started on a free port, found by its parts, killed, paused, stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import psutil

from perf.cluster.nodes import free_ports
from ringlog.errors import RinglogError
from ringlog.node.metrics import prometheus_text
from tests.support.checkers.leaks import LeakWatch
from tests.support.patience import Patience, stretched
from tests.support.raw_client import RawClient

READY_WITHIN_S = 5.0
"""A node is ready in 1.5 s; a new one after a crash scans first, and waits for what is still leaving."""
STOPPED_WITHIN_S = 15.0
ROLES = ("shard", "net", "controller", "peer")

T = TypeVar("T")


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(what: str, condition: Callable[[], T], within_s: float, every_s: float = 0.02) -> T:
    """The first true answer of `condition`; AssertionError when there is none in time.

    >>> wait_for("an answer", lambda: 42, within_s=1)
    42
    """
    patience = Patience(within_s)
    while not (answer := condition()):
        assert not patience.is_over, f"{what}: not within {within_s:.3g} s"
        time.sleep(every_s)
    return answer


class NodeProcess:
    """One node and its data directory. Everything it prints goes to `log_path`."""

    def __init__(
        self,
        data_dir: str,
        *,
        shards: int = 2,
        options: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        log_path: str | None = None,
        host: str = "127.0.0.1",
        program: Sequence[str] = (sys.executable, "-m", "ringlog.node"),
    ) -> None:
        self.data_dir = data_dir
        self.shards = shards
        self.host = host
        self.port = free_ports()
        """The next one is free, too: a second network process listens there."""
        self.log_path = log_path or f"{data_dir}.node.log"
        self.watch = LeakWatch(data_dir)
        self._options = options
        self._program = program
        """What is started, with the options of a node."""
        self._environment = dict(environment or {})
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"tcp://{self.bootstrap}"

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._supervisor is not None, "the node was started"
        return self._supervisor.pid

    # -- start and stop ------------------------------------------------------------------------------------

    def start(self, wait: bool = True) -> NodeProcess:
        """Start it and, with `wait`, return when it answers."""
        command = [*self._program, "--data-dir", self.data_dir]
        command += ["--listen", self.endpoint, "--shards", str(self.shards), *self._options]
        with open(self.log_path, "ab") as log:
            self._supervisor = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment, **self.watch.environment()},
                start_new_session=True,
            )
        if wait:
            self.wait_ready()
            self.watch.observe()
        return self

    def wait_ready(self) -> None:
        """Return when the node answers and all its processes are known; its log is in the error if not."""
        try:
            wait_for("a node that answers", self._is_ready, stretched(READY_WITHIN_S))
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.log_tail()}") from None

    def _is_ready(self) -> bool:
        assert self._supervisor is not None
        code = self._supervisor.poll()
        assert code is None, f"the node ended with {code}"
        if len(self.processes()) < self.shards + 2:
            return False
        with RawClient(self.endpoint, timeout_s=0.5) as client:
            try:
                client.metadata([])
            except RinglogError:
                return False
        return True

    def stop(self) -> int:
        """SIGTERM, and wait until it has drained and ended; its exit code."""
        assert self._supervisor is not None
        self.watch.observe()
        if self._supervisor.poll() is None:
            self._supervisor.terminate()
        try:
            return self._supervisor.wait(stretched(STOPPED_WITHIN_S))
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"still running {STOPPED_WITHIN_S} s after SIGTERM\n{self.log_tail()}"
            ) from None

    def kill_supervisor(self) -> None:
        """kill -9 of the supervisor alone."""
        assert self._supervisor is not None
        self.watch.observe()
        self._supervisor.kill()
        self._supervisor.wait()

    def destroy(self) -> None:
        """End all that is left, by force: the last thing of a test, whatever happened in it."""
        self.watch.observe()
        if self._supervisor is not None and self._supervisor.poll() is None:
            self._supervisor.kill()
            self._supervisor.wait()
        for process in self.watch.processes():
            _signal(process.pid, signal.SIGKILL)
        wait_for("the end of all processes", lambda: not self.watch.processes(), stretched(5))
        for path in self.watch.shared_memory:
            if os.path.exists(path):
                os.unlink(path)

    def __enter__(self) -> NodeProcess:
        try:
            return self.start()
        except BaseException:
            self.destroy()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            sys.stderr.write(self.log_tail())
        self.destroy()

    # -- its parts -----------------------------------------------------------------------------------------

    def description(self) -> dict[str, Any]:
        """What the node says of itself in its data directory; empty when it has not said anything yet."""
        try:
            with open(os.path.join(self.data_dir, "node.json"), "rb") as file:
                found: dict[str, Any] = json.load(file)
        except (OSError, ValueError):
            return {}
        return found if found.get("pid") == self.pid else {}

    def processes(self) -> dict[tuple[str, int], int]:
        """The pids of the living parts by (role, index)."""
        rows = self.description().get("processes", [])
        found = {(row["role"], row.get("index", 0)): row["pid"] for row in rows if row.get("pid")}
        return {key: pid for key, pid in found.items() if key[0] in ROLES and _is_alive(pid)}

    def pid_of(self, role: str, index: int = 0) -> int:
        """The pid of a part that must live by now."""
        return wait_for(f"{role} {index}", lambda: self.processes().get((role, index), 0), stretched(5))

    def kill(self, role: str, index: int = 0) -> int:
        """kill -9 of one part; the pid that it had."""
        pid = self.pid_of(role, index)
        self.watch.observe()
        _signal(pid, signal.SIGKILL)
        return pid

    def wait_replaced(self, role: str, index: int, old_pid: int) -> int:
        """The pid of the process that took the place of one that died."""
        return wait_for(
            f"a new {role} {index}",
            lambda: pid if (pid := self.processes().get((role, index), 0)) != old_pid else 0,
            stretched(3),
        )

    def pause(self, role: str, index: int = 0) -> int:
        """SIGSTOP one part; the pid to give to `resume`."""
        pid = self.pid_of(role, index)
        _signal(pid, signal.SIGSTOP)
        return pid

    def resume(self, pid: int) -> None:
        _signal(pid, signal.SIGCONT)

    def metric(self, name: str, role: str) -> int:
        """A counter or gauge of its first process of a role."""
        line = next(
            line
            for line in prometheus_text(self.data_dir).splitlines()
            if line.startswith(f'ringlog_{name}{{role="{role}"')
        )
        return int(line.rpartition(" ")[2])

    def resident_bytes(self) -> dict[int, int]:
        """The memory of each process that is its own: resident, without what it shares."""
        found: dict[int, int] = {}
        for process in self.watch.processes():
            try:
                memory = process.memory_info()
            except psutil.Error:
                continue
            found[process.pid] = memory.rss - memory.shared
        return found

    def log_tail(self, lines: int = 60) -> str:
        """The end of what the node printed."""
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                tail = log.readlines()[-lines:]
        except OSError:
            tail = []
        return f"--- the node's log, {self.log_path}:\n{''.join(tail)}---\n"


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process of the node; no error when it is gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
