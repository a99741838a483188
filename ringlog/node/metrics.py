"""Metrics of a running node, read from its stats page without asking anyone, and as Prometheus text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlog.errors import NodeUnavailable
from ringlog.model import TopicPartition
from ringlog.node.identity import NodeInfo, command_for, holder_pid, is_locked, read_info
from ringlog.node.quorum_store import QUORUM_FILE
from ringlog.ring.board import Board, ProcessState, Topology
from ringlog.ring.shm import SharedMemory
from ringlog.ring.stats import BUCKETS, COUNTERS, HISTOGRAMS, StatsPage, bucket_top

_GAUGES = {
    "connections",
    "connections_max",
    "sessions",
    "pending_requests",
    "pending_bytes",
    "partitions",
    "holed_partitions",
    "memory_free_bytes",
    "disk_free_bytes",
    "disk_full",
    "cluster_nodes",
    "cluster_nodes_fenced",
    "offline_partitions",
    "under_replicated_partitions",
    "below_min_isr_partitions",
    "unclean_partitions",
    "active_controller",
    "no_controller_ms",
}
_HELP = {
    "loops": "Passes of the process's loop",
    "busy_us": "Time spent working, in microseconds",
    "requests": "Requests taken",
    "errors": "Requests refused with an error",
    "bytes_in": "Bytes taken from clients",
    "near_bytes_in": "Of these, bytes that were read out of memory shared on this host instead of a socket",
    "bytes_out": "Bytes given to clients",
    "near_bytes_out": "Of these, bytes that were put into memory shared on this host instead of a socket",
    "records_in": "Records appended",
    "batches_in": "Batches appended",
    "fetches": "Fetches answered",
    "connections": "Open connections",
    "connections_max": "How many connections there may be; 0 where nobody connects",
    "connections_refused": "Connections that were cut because there were as many as there may be",
    "sessions": "Clients known",
    "pending_requests": "Requests not answered yet",
    "pending_bytes": "Bytes of requests not answered yet",
    "refused": "Messages of clients that do not read their replies",
    "partitions": "Partitions open",
    "fenced": "Times that a disk error closed a partition",
    "holed_partitions": "Partitions with records that cannot be read here any more",
    "memory_free_bytes": "Free buffer memory",
    "disk_free_bytes": "Free space of the data directory's disk",
    "disk_full": "1 while records are refused because the disk is nearly full",
    "cluster_nodes": "Nodes of the cluster that have registered",
    "cluster_nodes_fenced": "Nodes of the cluster that are silent, or have not caught up",
    "offline_partitions": "Partitions of the cluster that nobody leads",
    "under_replicated_partitions": "Partitions of the cluster with fewer replicas in sync than there should be",
    "below_min_isr_partitions": "Partitions of the cluster with fewer replicas in sync than min.insync.replicas",
    "unclean_partitions": "Partitions of the cluster that a replica led which was not in sync: records may be lost",
    "unclean_elections": "Leaders that this node's controller elected although they were not in sync",
    "active_controller": "1 while this node's controller decides for the cluster",
    "no_controller_ms": "Milliseconds since this node last knew of a controller that decides for the cluster",
    "produce_us": "Produce requests: from the socket until the answer goes out, in seconds",
    "fetch_us": "Fetches: from the socket until the answer goes out, in seconds",
    "append_us": "Batches: from the ring until they are as durable as their ack says, in seconds",
}


class NodeView:
    """The shared pages of a node that runs on this host, opened to be read."""

    def __init__(self, data_dir: str) -> None:
        info, pid = read_info(data_dir), holder_pid(data_dir)
        is_member = os.path.exists(os.path.join(data_dir, QUORUM_FILE))
        if info is None and pid is not None:
            others = ""
            if is_member:
                others = ": in a cluster it waits until most of its nodes run, and its log says for whom"
            raise NodeUnavailable(
                f"the node of {data_dir} (pid {pid}) is starting{others}. Try again in a moment"
            )
        if info is None or not is_locked(data_dir):
            start = f"Start one with `{command_for('start', data_dir)}`"
            if is_member:
                start = "It is that of a node of a cluster: start it with its --node-id and --cluster"
            raise NodeUnavailable(f"no node runs on {data_dir}. {start}, or check --data-dir")
        self.info: NodeInfo = info
        self.topology = Topology(nets=info.nets, shards=info.shards, peers=info.peers)
        try:
            self._memories = (SharedMemory.open(info.board), SharedMemory.open(info.stats))
        except FileNotFoundError:
            raise NodeUnavailable(f"the node of {data_dir} is stopping") from None
        board, stats = self._memories
        self.board = Board(memoryview(board.memory), self.topology)
        self.stats = StatsPage(memoryview(stats.memory), self.topology.process_count)

    def partitions(self) -> NDArray[np.void]:
        """The rows of all partitions that are served."""
        return self.stats.served()

    def process_rows(self) -> Iterator[tuple[int, str, int, Any]]:
        """Number, role, index and counters of each process."""
        for process in range(self.topology.process_count):
            role, index = self.topology.role(process)
            yield process, role, index, self.stats.rows[process]

    def state(self, process: int) -> ProcessState:
        return self.board.state(process)


def prometheus_text(data_dir: str, names: Mapping[int, TopicPartition] | None = None) -> str:
    """What is on the pages of the node of a data directory, in Prometheus' text format. The pages have only the node's
    own numbers of partitions; those without a name are told as such, with an empty topic."""
    view = NodeView(data_dir)
    lines: list[str] = []
    processes = list(view.process_rows())
    lines += ["# HELP ringlog_up 1 while the process is ready", "# TYPE ringlog_up gauge"]
    for process, role, index, _ in processes:
        up = int(view.state(process) is ProcessState.READY)
        lines.append(f'ringlog_up{{role="{role}",index="{index}"}} {up}')
    silent = "ringlog_silent_ms"
    lines += [f"# HELP {silent} Milliseconds since the process gave a sign of life", f"# TYPE {silent} gauge"]
    for process, role, index, _ in processes:
        lines.append(f'{silent}{{role="{role}",index="{index}"}} {view.stats.silent_ms(process)}')
    for name in COUNTERS:
        kind = "gauge" if name in _GAUGES else "counter"
        metric = f"ringlog_{name}" if kind == "gauge" else f"ringlog_{name}_total"
        lines += [f"# HELP {metric} {_HELP[name]}", f"# TYPE {metric} {kind}"]
        for _, role, index, row in processes:
            lines.append(f'{metric}{{role="{role}",index="{index}"}} {int(row[name])}')
    for name in HISTOGRAMS:
        lines += _histogram(name, processes)
    lines += _partitions(view, names or {})
    return "\n".join(lines) + "\n"


def _histogram(name: str, processes: list[tuple[int, str, int, Any]]) -> list[str]:
    metric = f"ringlog_{name.removesuffix('_us')}_seconds"
    lines = [f"# HELP {metric} {_HELP[name]}", f"# TYPE {metric} histogram"]
    for _, role, index, row in processes:
        counts = row[name]
        if not counts.any():
            continue
        labels = f'role="{role}",index="{index}"'
        total, below = 0, 0.0
        for bucket in range(BUCKETS):
            total += int(counts[bucket])
            below += int(counts[bucket]) * bucket_top(bucket)
            # Every fourth: a scrape needs powers of two, not quarters of them.
            if bucket % 4 == 3 and total:
                lines.append(f'{metric}_bucket{{{labels},le="{bucket_top(bucket) / 1e6:.6g}"}} {total}')
        lines.append(f'{metric}_bucket{{{labels},le="+Inf"}} {total}')
        lines.append(f"{metric}_sum{{{labels}}} {below / 1e6:.6f}")
        lines.append(f"{metric}_count{{{labels}}} {total}")
    return lines


def _partitions(view: NodeView, names: Mapping[int, TopicPartition]) -> list[str]:
    lines: list[str] = []
    rows = [(_partition_labels(row, names), row) for row in view.partitions()]
    for name, meaning in (
        ("bytes_in", "Bytes appended to a partition"),
        ("records_in", "Records appended to a partition"),
        ("bytes_out", "Bytes read from a partition"),
    ):
        metric = f"ringlog_partition_{name}_total"
        lines += [f"# HELP {metric} {meaning}", f"# TYPE {metric} counter"]
        lines += [f"{metric}{{{labels}}} {int(row[name])}" for labels, row in rows]
    return lines


def _partition_labels(row: Any, names: Mapping[int, TopicPartition]) -> str:
    number = int(row["partition"])
    topic, partition = names.get(number, ("", f"#{number}"))
    return f'topic="{topic}",partition="{partition}",shard="{int(row["shard"])}"'
