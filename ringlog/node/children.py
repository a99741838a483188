"""What each process of a node runs after the fork: puts its parts together, works, and ends.

A child shares no socket, ring or disk with its parent: it makes them itself. It dies when the supervisor does.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import cast

from ringlog.config import NodeConfig, parse_cores
from ringlog.controller.topic_config import node_defaults
from ringlog.disk.choose import Preference, open_disk
from ringlog.disk.memory import aligned
from ringlog.errors import ClusterMismatch, NodeFailed, RinglogError
from ringlog.limits import FRAME_BYTES_MAX, MIB
from ringlog.log.bounds import ShardBounds
from ringlog.log.store import LogStore
from ringlog.net.host import host_id
from ringlog.net.metadata_desk import NodeFacts
from ringlog.net.peer_agent import PeerAgent
from ringlog.net.peer_socket import PeerSockets
from ringlog.net.router import RouterAgent, RouterSocket, keep_freed_memory, raise_descriptor_limit
from ringlog.net.service import NetService
from ringlog.net.shared_memory import map_shared
from ringlog.node.cluster_parts import NodeLife, cluster_agent
from ringlog.node.controller_agent import ControllerAgent
from ringlog.node.identity import NamesLock
from ringlog.node.memory import NodeMemory
from ringlog.node.metadata_log import MetadataLog
from ringlog.ring.board import Links, ProcessState, Topology
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.stats import Stats
from ringlog.shard.agent import ShardAgent
from ringlog.shard.near_batches import NearBatches

EXIT_MISMATCH = 3
"""Of a process that will never do better: the whole node must end."""
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_GC_THRESHOLD = (20_000, 20, 100)
"""Garbage in cycles is rare here, and looking for it costs latency: look less often than Python's 700 objects."""
_CONTROLLER_MEMORY_BYTES = 64 * MIB

_log = logging.getLogger(__name__)


class ChildSetup:
    """All that a child needs, made by the supervisor before it forks."""

    def __init__(
        self,
        config: NodeConfig,
        topology: Topology,
        memory: NodeMemory,
        bells: list[Doorbell],
        endpoints: list[list[str]],
        cores: list[int],
        life: NodeLife,
    ) -> None:
        self.config = config
        self.topology = topology
        self.memory = memory
        self.bells = bells
        self.endpoints = endpoints
        """Where the network processes listen."""
        self.cores = cores
        self.life = life

    def region_of(self, process: int) -> memoryview | None:
        """The buffers of a shard; other processes lend none."""
        role, index = self.topology.role(process)
        return self.memory.region(index) if role == "shard" else None


def run_child(setup: ChildSetup, process: int, parent_pid: int) -> int:
    """The life of a child; its exit code."""
    if not stop_with_parent(parent_pid, signal.SIGKILL):
        return 1
    label = setup.topology.label(process)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, f"rl-{label}".encode()[:15])
    logging.getLogger().handlers[0].setFormatter(
        logging.Formatter(f"%(asctime)s {label} %(levelname)s %(message)s")
    )
    stop = _StopFlag(setup.bells[process])
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLD)
    board = setup.memory.board
    board.processes[process]["started_ms"] = time.time_ns() // 1_000_000
    try:
        _build(setup, process, stop.is_set)()
    except ClusterMismatch as error:
        _log.error("%s", error)
        return EXIT_MISMATCH
    except RinglogError as error:
        _log.error("%s", error)
        return 2
    board.set_state(process, ProcessState.STOPPED)
    return 0


def stop_with_parent(parent_pid: int, number: int = signal.SIGTERM) -> bool:
    """Have the kernel send a signal when the parent dies; False when it has died already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent_pid


class _StopFlag:
    """Set by SIGTERM; a doorbell ends the sleep that it comes into. Ctrl-C is the supervisor's business."""

    def __init__(self, bell: Doorbell) -> None:
        self._set = False
        self._bell = bell
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._set = True
        self._bell.ring()

    def is_set(self) -> bool:
        return self._set


def _build(setup: ChildSetup, process: int, stopping: Callable[[], bool]) -> Callable[[], None]:
    memory, config = setup.memory, setup.config
    links = Links(process, memory.board, setup.bells)
    stats = Stats(memory.stats, process)
    role, index = setup.topology.role(process)
    descriptors = raise_descriptor_limit()  # a shard has one for each partition that is written to
    if role == "net":
        return _net(setup, process, links, stats, stopping, descriptors)
    if role == "peer":
        return _peer(setup, process, links, stats, stopping)
    preference = cast(Preference, config.disk_engine)
    if role == "controller" and config.cluster:
        board, endpoints = memory.board, setup.endpoints
        return cluster_agent(process, config, setup.life, endpoints, board, links, stats, stopping).run
    if role == "controller":
        store = LogStore(open_disk(preference), config.data_dir, memory=aligned(_CONTROLLER_MEMORY_BYTES))
        store.watch(links.bell.fd, lambda _events: None)
        log = MetadataLog(store, now_ms=time.time_ns() // 1_000_000)
        return ControllerAgent(process, config, memory.board, links, log, stats, stopping).run
    if config.pin:
        cores = parse_cores(config.shard_cores) or setup.cores
        _keep_to({cores[index % len(cores)]}, "shard_cores")
    memory.regions[index].populate()
    region = memory.region(index)
    bounds = ShardBounds(config.disk_depth, config.group_bytes, config.preallocate_bytes_max)
    store = LogStore(
        open_disk(preference),
        config.data_dir,
        memory=region,
        names_lock=NamesLock(config.data_dir),
        bounds=bounds,
    )
    agent = ShardAgent(
        process,
        memory.board,
        links,
        store,
        region,
        NearBatches(map_shared, aligned(FRAME_BYTES_MAX)),
        stats,
        stopping,
        node_defaults(config.topic_defaults),
        spin_us=config.spin_us,
        lag_ms_max=config.replica_lag_time_max_ms,
    )
    return agent.run


def _keep_to(cores: set[int], setting: str) -> None:
    """Stay on these cores; NodeFailed when there is none of them."""
    try:
        os.sched_setaffinity(0, cores)
    except OSError:
        there = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        raise NodeFailed(
            f"{setting}: core {','.join(map(str, sorted(cores)))} cannot be used. Those of this node are {there}"
        ) from None


def _net(
    setup: ChildSetup,
    process: int,
    links: Links,
    stats: Stats,
    stopping: Callable[[], bool],
    descriptors: int,
) -> Callable[[], None]:
    config, topology = setup.config, setup.topology
    if config.pin and config.net_cores:
        _keep_to(set(parse_cores(config.net_cores)), "net_cores")
    keep_freed_memory()

    def open_socket() -> tuple[RouterSocket, NetService]:
        _, index = topology.role(process)
        mine = setup.endpoints[index]
        endpoints = [*mine, *(one for one in itertools.chain(*setup.endpoints) if one not in mine)]
        socket = RouterSocket(mine, connections_max=min(config.connections_max, descriptors // 2))
        facts = NodeFacts(
            endpoints,
            host_id(),
            auto_create=config.auto_create_topics,
            topic_defaults=node_defaults(config.topic_defaults),
        )
        service = NetService(
            facts,
            stats,
            controller=Topology.CONTROLLER,
            shard_process=topology.shard,
            send=socket.send,
            intact=links.intact,
            near=socket.near,
        )
        return socket, service

    board, spin_us = setup.memory.board, config.spin_us
    agent = RouterAgent(process, board, links, setup.region_of, open_socket, stats, stopping, spin_us=spin_us)
    return agent.run


def _peer(
    setup: ChildSetup, process: int, links: Links, stats: Stats, stopping: Callable[[], bool]
) -> Callable[[], None]:
    config = setup.config
    if config.pin and config.net_cores:
        _keep_to(set(parse_cores(config.net_cores)), "net_cores")
    keep_freed_memory()
    sockets = PeerSockets(config.peer_listen, links.bell.fd)
    board, spin_us = setup.memory.board, config.spin_us
    agent = PeerAgent(process, board, links, setup.region_of, sockets, stats, stopping, spin_us=spin_us)
    return agent.run


def exit_now(code: int) -> None:
    """End a forked child without running what its parent registered."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
