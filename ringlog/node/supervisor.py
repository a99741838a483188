"""The supervisor: makes memory and doorbells, starts the processes of a node, restarts what dies, stops them all.

It forks rather than execs: a child is there in milliseconds, with the doorbells that the others know. So it has no
thread, no socket and no disk itself. When it dies, its children are killed by the kernel, and the next start
finds the lock free as soon as the last of them is gone.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable

from ringlog.config import NodeConfig
from ringlog.controller.commands import require_min_insync
from ringlog.controller.topic_config import node_defaults
from ringlog.disk.choose import open_disk, preload
from ringlog.errors import NodeFailed, RinglogError
from ringlog.log.removal import sweep_deleted
from ringlog.node.belonging import require_belongs
from ringlog.node.children import EXIT_MISMATCH, ChildSetup, run_child
from ringlog.node.clean_stop import leave_clean, take_clean
from ringlog.node.cluster_parts import NodeLife
from ringlog.node.free_ports import require_apart, require_free
from ringlog.node.identity import DataDirLock, NodeInfo, ProcessInfo
from ringlog.node.memory import NodeMemory
from ringlog.node.metrics_server import serve_metrics
from ringlog.node.reserve import ReserveFile
from ringlog.ring.board import ProcessState, Topology
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.link import create_link
from ringlog.ring.shm import SharedMemory, sweep

READY_PATIENCE_S = 60.0
"""How long a start waits: a crash leaves at most half a gigabyte to scan, and a slow disk takes its time."""
HAND_OVER_PATIENCE_S = 10.0
"""How long a stop waits until others lead what the node led."""
SAY_WAITING_S = 10.0
"""How often a node that is not ready for so long says so; its controller says whom it waits for."""
STOOD_STILL_S = 1.0
"""More than a look at the children can take while this process runs."""
STOP_PATIENCE_S = 20.0
WATCH_S = 0.25
"""Between two looks at the disk, while no child dies."""
RESTART_PAUSE_S = 0.5
"""Between two starts of a process that dies young."""
YOUNG_S = 2.0
_IPC_PATH_BYTES_MAX = 100
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_log = logging.getLogger(__name__)

OnReady = Callable[[NodeInfo], None]
Companion = Callable[[list[str], int], int]
"""Starts a process beside the node, which is no part of it: given where the node listens, and the pid of its parent,
with which it must end, it returns its pid."""


class Supervisor:
    """One node, from its start to its stop."""

    def __init__(self, config: NodeConfig, lock: DataDirLock | None = None) -> None:
        """`lock`: that of its data directory, when it is held already."""
        defaults = node_defaults(config.topic_defaults)  # refused now, or every shard would end with it
        if not config.cluster:
            require_min_insync(defaults, 1)
        self.config = config
        self.topology = Topology(
            nets=config.nets, shards=config.shard_count, peers=1 if config.cluster else 0
        )
        self._lock = lock or DataDirLock(config.data_dir)
        self._reserve = ReserveFile(config.data_dir)
        self._pids: dict[int, int] = {}
        """Process number of each living child, by its pid."""
        self._born_s: dict[int, float] = {}
        self._restarts = dict.fromkeys(range(self.topology.process_count), 0)
        self._postponed: dict[int, float] = {}
        """Processes that died young, and when to start them again."""
        self._ports: set[int] = set()
        """That were free, and are given away."""
        self._links: dict[int, SharedMemory] = {}
        self._generation = 0
        self._started_ms = time.time_ns() // 1_000_000
        self._metrics_pid: int | None = None
        self._metrics_due_s: float | None = None
        self._companion: Companion | None = None
        self._companion_pid: int | None = None
        self._companion_due_s: float | None = None
        self._stop_asked = False
        self.ready = False

    def run(self, on_ready: OnReady = lambda info: None, companion: Companion | None = None) -> int:
        """Run the node until a signal stops it; the exit code."""
        self._lock.take()
        try:
            require_belongs(self.config)
            by_net = [self._choose_endpoints(net) for net in range(self.topology.nets)]
            self.endpoints = [endpoint for endpoints in by_net for endpoint in endpoints]
            listens = self._listens()
            require_apart(listens)
            require_free(listens)
            sweep()
            self.memory = NodeMemory(self.config, self.topology)
        except BaseException:
            self._lock.abandon()
            raise
        self._reserve.tick()
        sweep_deleted(open_disk("plain"), self.config.data_dir)
        preload()
        self._bells = [Doorbell.create() for _ in range(self.topology.process_count)]
        cores = sorted(os.sched_getaffinity(0))
        life = NodeLife(secrets.token_hex(8), take_clean(self.config.data_dir))
        self._setup = ChildSetup(self.config, self.topology, self.memory, self._bells, by_net, cores, life)
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        gc.collect()
        gc.freeze()
        try:
            for link in range(len(self.topology.links)):
                self._make_link(link)
            self.memory.board.bump()
            for process in range(self.topology.process_count):
                self._start(process)
            if self.config.metrics_listen:
                self._start_metrics()
            self._wait_ready()
            if self.ready:
                self._companion, self._companion_due_s = companion, time.monotonic()
                on_ready(self._write_info())
            while not self._stop_asked:
                self._watch(WATCH_S)
            return 0
        finally:
            self._stop_all()
            if not self.ready:
                self._reserve.give_back()
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)

    # -- starting ----------------------------------------------------------------------------------------------

    def _choose_endpoints(self, net: int) -> list[str]:
        """Where a network process listens: the address of the config, the following ports for those after the first."""
        listen = self.config.listen
        suffix = f"-{net}" if net else ""
        if listen.startswith("ipc://"):
            return [listen + suffix]
        host, _, port = listen.rpartition(":")
        listen = f"{host}:{int(port) + net}" if port != "0" else f"{host}:{self._free_port(listen)}"
        path = os.path.join(self.config.data_dir, f"net{suffix}.sock")
        if len(path) > _IPC_PATH_BYTES_MAX:
            return [listen]
        return [listen, f"ipc://{path}"]

    def _listens(self) -> list[tuple[str, str]]:
        """Every address that a process of the node will listen at, with the option that names it."""
        config = self.config
        found = [(endpoint, "--listen") for endpoint in self.endpoints]
        if config.metrics_listen:
            found.append((f"tcp://{config.metrics_listen}", "--metrics-listen"))
        if config.cluster:
            found += [
                (config.cluster_members[config.node_id], "--cluster"),
                (config.peer_listen, "--cluster"),
            ]
        return found

    def _free_port(self, listen: str) -> int:
        """A port that is free now and not given to another network process, for those who do not care which."""
        host = listen.removeprefix("tcp://").rpartition(":")[0].strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        while True:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((host, 0))
                port = int(probe.getsockname()[1])
            if port not in self._ports:
                self._ports.add(port)
                return port

    def _make_link(self, link: int) -> None:
        """A new generation of a link; whoever was at an end of the old one will find it gone."""
        old = self._links.pop(link, None)
        if old is not None:
            old.unlink()
            old.close()
        spec = self.topology.links[link]
        self._generation += 1
        label = f"{self.topology.label(spec.front)}.{self.topology.label(spec.back)}"
        made = create_link(
            label,
            request_bytes=spec.request_bytes,
            reply_bytes=spec.reply_bytes,
            generation=self._generation,
        )
        self._links[link] = made
        self.memory.board.publish_link(link, made.name, self._generation)

    def _start(self, process: int) -> None:
        board = self.memory.board
        board.processes[process]["incarnation"] += 1
        board.set_state(process, ProcessState.STARTING)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._become_child()
                code = run_child(self._setup, process, parent)
            except BaseException:
                _log.exception("%s failed", self.topology.label(process))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        self._pids[pid] = process
        self._born_s[process] = time.monotonic()
        board.processes[process]["pid"] = pid

    def _become_child(self) -> None:
        """Let go of what is the supervisor's alone: a link that it replaces must not live on in here."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for memory in self._links.values():
            memory.close()

    def _start_metrics(self) -> None:
        listen = self.config.metrics_listen
        assert listen is not None
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._become_child()
                code = serve_metrics(listen, self.config.data_dir, os.getppid())
            except RinglogError as error:
                _log.error("%s", error)
            except BaseException:
                _log.exception("metrics failed")
            finally:
                os._exit(code)
        self._metrics_pid = pid

    def _wait_ready(self) -> None:
        waited_s = said_s = 0.0
        board = self.memory.board
        while not self._stop_asked:
            if all(board.state(p) is ProcessState.READY for p in range(self.topology.process_count)):
                self.ready = True
                return
            if (
                waited_s > READY_PATIENCE_S and not self.config.cluster
            ):  # there, it waits for other nodes, too
                raise NodeFailed(f"not ready after {READY_PATIENCE_S:.0f} s; the log above says why")
            began_s = time.monotonic()
            self._watch(0.01)
            # A machine that stood still, as a paused virtual one does, says nothing about the children.
            waited_s += min(time.monotonic() - began_s, STOOD_STILL_S)
            if self.config.cluster and waited_s > said_s + SAY_WAITING_S:
                said_s = waited_s
                _log.warning("node %d is not in its cluster yet", self.config.node_id)

    def _write_info(self) -> NodeInfo:
        board = self.memory.board
        processes = []
        for process in range(self.topology.process_count):
            role, index = self.topology.role(process)
            pid = int(board.processes[process]["pid"])
            state = board.state(process).name.lower()
            processes.append(ProcessInfo(role, index, pid, state, self._restarts[process]))
        info = NodeInfo(
            pid=os.getpid(),
            endpoints=self.endpoints,
            shards=self.topology.shards,
            nets=self.topology.nets,
            started_ms=self._started_ms,
            board=self.memory.board_memory.name,
            stats=self.memory.stats_memory.name,
            metrics_endpoint=self.config.metrics_listen,
            processes=processes,
            peers=self.topology.peers,
        )
        self._lock.write_info(info)
        return info

    # -- watching ----------------------------------------------------------------------------------------------

    def _watch(self, patience_s: float) -> None:
        """Wait for a signal, bury the dead, and start their successors."""
        found = signal.sigtimedwait(_SIGNALS, patience_s)
        if found is not None and found.si_signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._stop_asked = True
            return
        changed = self._reap()
        self._reserve.tick()
        now_s = time.monotonic()
        if self._metrics_due_s is not None and self._metrics_due_s <= now_s:
            self._metrics_due_s = None
            self._start_metrics()
        if (
            self._companion is not None
            and self._companion_due_s is not None
            and self._companion_due_s <= now_s
        ):
            self._companion_due_s = None
            self._companion_pid = self._companion(self.endpoints, os.getpid())
        for process in [p for p, at in self._postponed.items() if at <= now_s]:
            del self._postponed[process]
            self._replace(process)
            changed = True
        if changed and self.ready:
            self._write_info()

    def _reap(self) -> bool:
        """Replace every child that died; True when one did."""
        changed = False
        while self._pids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == self._metrics_pid:
                self._metrics_pid = None
                if not self.ready:
                    raise NodeFailed("the metrics server could not start; the lines above say why")
                self._metrics_due_s = time.monotonic() + RESTART_PAUSE_S
                continue
            if pid == self._companion_pid:
                self._companion_pid = None
                self._companion_due_s = time.monotonic() + RESTART_PAUSE_S
                continue
            process = self._pids.pop(pid, None)
            if process is None:
                continue
            changed = True
            self._bury(process, status)
        return changed

    def _bury(self, process: int, status: int) -> None:
        label = self.topology.label(process)
        code = os.waitstatus_to_exitcode(status)
        why = f"signal {-code}" if code < 0 else f"exit code {code}"
        if not self.ready and code == 2:
            raise NodeFailed(f"{label} could not start; the line above says why")
        if code == EXIT_MISMATCH:
            raise NodeFailed(
                f"{label} found that this node cannot be in the cluster; the line above says why"
            )
        _log.warning("%s died (%s): it is started anew", label, why)
        self._restarts[process] += 1
        self.memory.board.set_state(process, ProcessState.NONE)
        killed = code == -signal.SIGKILL  # by somebody, not by a fault of its own that it would repeat
        if not killed and time.monotonic() - self._born_s[process] < YOUNG_S:
            self._postponed[process] = time.monotonic() + RESTART_PAUSE_S
        else:
            self._replace(process)

    def _replace(self, process: int) -> None:
        """New rings first, so that nobody mistakes the new incarnation for the old; then the process."""
        for link in self.topology.links_of(process):
            self._make_link(link)
        self.memory.board.bump()
        self._start(process)
        for bell in self._bells:
            bell.ring()

    # -- stopping ----------------------------------------------------------------------------------------------

    def _stop_all(self) -> None:
        """Clients first, so that what is under way is answered; then the shards, then the controller. In a cluster,
        before all that, others take over what this node leads."""
        self.memory.board.start_stopping()
        if self.config.cluster and self.ready:
            self._hand_over()
        if self._metrics_pid is not None:
            os.kill(self._metrics_pid, signal.SIGKILL)
            os.waitpid(self._metrics_pid, 0)
        if self._companion_pid is not None:
            os.kill(self._companion_pid, signal.SIGTERM)
        clean = self.ready
        for role in ("net", "peer", "shard", "controller"):
            clean = self._stop_role(role) and clean
        if self.config.cluster and clean:
            leave_clean(self.config.data_dir)
        for memory in self._links.values():
            memory.unlink()
        self.memory.unlink()
        for endpoint in self.endpoints:
            if endpoint.startswith("ipc://") and os.path.exists(endpoint[6:]):
                os.unlink(endpoint[6:])
        self._lock.leave()

    def _hand_over(self) -> None:
        """Give the controller time to have this node's leaderships moved; clients go on being served meanwhile."""
        board, until_s = self.memory.board, time.monotonic() + HAND_OVER_PATIENCE_S
        self._bells[self.topology.CONTROLLER].ring()
        while board.state(self.topology.CONTROLLER) is not ProcessState.LEFT:
            if time.monotonic() > until_s:
                _log.warning(
                    "leaderships were not moved within %.0f s: the node stops now", HAND_OVER_PATIENCE_S
                )
                return
            self._reap()
            signal.sigtimedwait(_SIGNALS, 0.02)

    def _stop_role(self, role: str) -> bool:
        """Stop all processes of a role; whether all of them were there, and ended in order."""

        def living() -> list[int]:
            return [pid for pid, process in self._pids.items() if self.topology.role(process)[0] == role]

        for pid in living():
            os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + STOP_PATIENCE_S
        killed = False
        clean = not any(self.topology.role(process)[0] == role for process in self._postponed)
        while living():
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                if self._pids.pop(pid, None) is not None:
                    clean = clean and status == 0
            elif time.monotonic() > until and not killed:
                killed = True
                _log.error("%s does not stop: it is killed, and recovers at the next start", role)
                for left in living():
                    os.kill(left, signal.SIGKILL)
            else:
                signal.sigtimedwait(_SIGNALS, 0.05)
        return clean


def run(config: NodeConfig, on_ready: OnReady = lambda info: None, companion: Companion | None = None) -> int:
    """Run a node in this process until SIGTERM or Ctrl-C; the exit code. A companion is started when the node is ready,
    and again whenever it dies."""
    return Supervisor(config).run(on_ready, companion)
