"""Reach a node that runs on this host from outside: find it, stop it, look at it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any

import msgspec
import psutil

from ringlog.errors import NodeUnavailable, RequestTimeout
from ringlog.limits import BROKER_SESSION_MS
from ringlog.node.identity import NodeInfo, holder_pid, is_locked, read_info
from ringlog.node.metrics import NodeView
from ringlog.ring.board import ProcessState
from ringlog.ring.stats import quantile

RATE_SAMPLE_S = 0.5
SILENT_S = 5.0
"""A process shows its counts several times a second: one that has not for so long stands still."""
STARTING_S = 0.5
"""How long a stop looks for a node: one that was just started has not locked its directory yet."""


def find_node(data_dir: str) -> NodeInfo | None:
    """The node that runs on a data directory, if one does."""
    return read_info(data_dir) if is_locked(data_dir) else None


def stop(data_dir: str, timeout_s: float = 30.0) -> int:
    """Stop the node cleanly, also while it starts, and wait until all of it is gone; the pid that it had."""
    until = time.monotonic() + min(timeout_s, STARTING_S)
    while (pid := holder_pid(data_dir)) is None:
        if time.monotonic() >= until:
            raise NodeUnavailable(f"no node runs on {data_dir}. Check --data-dir")
        time.sleep(0.02)
    with suppress(ProcessLookupError):  # its processes are about to follow it
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + timeout_s
    while is_locked(data_dir):
        if time.monotonic() > until:
            raise RequestTimeout(f"the node (pid {pid}) has not stopped after {timeout_s:.0f} s")
        time.sleep(0.02)
    return pid


class ProcessStatus(msgspec.Struct):
    """One process of a node."""

    role: str
    index: int
    pid: int
    state: str
    restarts: int
    cpu_percent: float
    rss_bytes: int
    requests_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    partitions: int


class PartitionStatus(msgspec.Struct):
    """One of the hottest partitions."""

    partition_id: int
    """The number that the node has for it."""
    shard: int
    bytes_in: int
    bytes_in_per_s: float
    records_in: int
    topic: str | None = None
    """None, as is the partition: the node did not say in time."""
    partition: int | None = None


class ClusterStatus(msgspec.Struct):
    """The cluster of a node, as the node knows it."""

    nodes: int
    nodes_fenced: int
    offline_partitions: int
    under_replicated_partitions: int
    below_min_isr_partitions: int
    unclean_partitions: int
    is_controller: bool
    """Whether this node's controller decides."""
    no_controller_s: float
    """For how long nobody's has, as far as this node knows: most nodes are away, or it does not hear them."""


class NodeStatus(msgspec.Struct):
    """What `ringlog status` shows."""

    pid: int
    data_dir: str
    endpoints: list[str]
    uptime_s: float
    shards: int
    partitions: int
    connections: int
    records_in_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    produce_p50_ms: float | None
    produce_p99_ms: float | None
    rss_bytes: int
    disk_free_bytes: int
    processes: list[ProcessStatus]
    hottest: list[PartitionStatus]
    wrong: list[str]
    """What is not as it should be, in words; empty when all is well."""
    cluster: ClusterStatus | None = None
    """None: a node by itself."""


def status(data_dir: str, sample_s: float = RATE_SAMPLE_S) -> NodeStatus:
    """Look at the node of a data directory for a moment: rates are those of the sample."""
    view = NodeView(data_dir)
    info = view.info
    processes = [psutil.Process(p.pid) if psutil.pid_exists(p.pid) else None for p in info.processes]
    for process in processes:
        if process is not None:
            _cpu(process)
    before, partitions_before, began = view.stats.rows.copy(), view.partitions(), time.monotonic()
    time.sleep(sample_s)
    after, partitions_after = view.stats.rows.copy(), view.partitions()
    span = time.monotonic() - began

    def rate(name: str, rows: slice = slice(None)) -> float:
        return float(after[name][rows].astype(float).sum() - before[name][rows].astype(float).sum()) / span

    rows: list[ProcessStatus] = []
    for number, (known, process) in enumerate(zip(info.processes, processes, strict=True)):
        mine = slice(number, number + 1)
        rows.append(
            ProcessStatus(
                role=known.role,
                index=known.index,
                pid=known.pid,
                state=view.state(number).name.lower(),
                restarts=known.restarts,
                cpu_percent=_cpu(process) if process is not None else 0.0,
                rss_bytes=_rss(process) if process is not None else 0,
                requests_per_s=rate("requests", mine),
                bytes_in_per_s=rate("bytes_in", mine),
                bytes_out_per_s=rate("bytes_out", mine),
                partitions=int(after["partitions"][number]),
            )
        )
    shards = slice(1 + info.nets, 1 + info.nets + info.shards)
    latencies = after["produce_us"].sum(axis=0)
    p50, p99 = quantile(latencies, 0.5), quantile(latencies, 0.99)
    free = os.statvfs(data_dir)
    cluster = _cluster(after[view.topology.CONTROLLER]) if info.peers else None
    return NodeStatus(
        pid=info.pid,
        data_dir=data_dir,
        endpoints=info.endpoints,
        uptime_s=max(0.0, time.time() - info.started_ms / 1000),
        shards=info.shards,
        partitions=int(after["partitions"].sum()),
        connections=int(after["connections"].sum()),
        records_in_per_s=rate("records_in", shards),
        bytes_in_per_s=rate("bytes_in", shards),
        bytes_out_per_s=rate("bytes_out", shards),
        produce_p50_ms=None if p50 is None else p50 / 1000,
        produce_p99_ms=None if p99 is None else p99 / 1000,
        rss_bytes=sum(row.rss_bytes for row in rows),
        disk_free_bytes=free.f_bavail * free.f_frsize,
        processes=rows,
        hottest=_hottest(partitions_before, partitions_after, span),
        wrong=_wrong(view, rows, after, free.f_bavail / max(free.f_blocks, 1)) + _missing(cluster),
        cluster=cluster,
    )


def _cluster(row: Any) -> ClusterStatus:
    return ClusterStatus(
        nodes=int(row["cluster_nodes"]),
        nodes_fenced=int(row["cluster_nodes_fenced"]),
        offline_partitions=int(row["offline_partitions"]),
        under_replicated_partitions=int(row["under_replicated_partitions"]),
        below_min_isr_partitions=int(row["below_min_isr_partitions"]),
        unclean_partitions=int(row["unclean_partitions"]),
        is_controller=bool(row["active_controller"]),
        no_controller_s=int(row["no_controller_ms"]) / 1000,
    )


def _missing(cluster: ClusterStatus | None) -> list[str]:
    """What the cluster lacks, in words."""
    if cluster is None:
        return []
    counted = (
        (cluster.nodes_fenced, "nodes of the cluster are down, or have not caught up"),
        (cluster.offline_partitions, "partitions have no leader: they can be neither written nor read"),
        (
            cluster.unclean_partitions,
            "partitions were led by a replica that was not in sync: records may be lost. "
            "Set unclean.leader.election.enable=false when you have seen it",
        ),
        (cluster.below_min_isr_partitions, "partitions have fewer replicas in sync than min.insync.replicas"),
        (cluster.under_replicated_partitions, "partitions have replicas that are not in sync"),
    )
    lost = []
    if cluster.no_controller_s * 1000 >= BROKER_SESSION_MS:
        lost.append(
            f"nobody leads the metadata for {cluster.no_controller_s:.0f} s: most nodes are away, or this one does not "
            "hear them. Writes wait, and no leader is replaced. Start nodes until most of them run"
        )
    return lost + [f"{count} {what}" for count, what in counted if count]


def _cpu(process: psutil.Process) -> float:
    try:
        return float(process.cpu_percent())
    except psutil.NoSuchProcess:
        return 0.0


def _rss(process: psutil.Process) -> int:
    """Memory of the process alone and its share of what is shared."""
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _hottest(before: Any, after: Any, span: float, count: int = 5) -> list[PartitionStatus]:
    earlier = {int(row["partition"]): int(row["bytes_in"]) for row in before}
    rows = [
        PartitionStatus(
            partition_id=int(row["partition"]),
            shard=int(row["shard"]),
            bytes_in=int(row["bytes_in"]),
            bytes_in_per_s=(int(row["bytes_in"]) - earlier.get(int(row["partition"]), 0)) / span,
            records_in=int(row["records_in"]),
        )
        for row in after
    ]
    rows.sort(key=lambda row: (-row.bytes_in_per_s, -row.bytes_in))
    return rows[:count]


def _times(count: int) -> str:
    """How often.

    >>> _times(1), _times(3)
    ('once', '3 times')
    """
    return "once" if count == 1 else f"{count} times"


def _wrong(view: NodeView, rows: list[ProcessStatus], stats: Any, free_share: float) -> list[str]:
    wrong = []
    for number, row in enumerate(rows):
        if view.state(number) is not ProcessState.READY:
            wrong.append(f"{row.role}-{row.index} is {row.state}")
        if row.restarts:
            wrong.append(f"{row.role}-{row.index} was restarted {_times(row.restarts)}")
        silent_s = view.stats.silent_ms(number) / 1000
        if silent_s >= SILENT_S and view.state(number) is ProcessState.READY:
            wrong.append(
                f"{row.role}-{row.index} (pid {row.pid}) has stood still for {silent_s:.0f} s: it was stopped, or the "
                "disk does not answer"
            )
        connections, most = int(stats["connections"][number]), int(stats["connections_max"][number])
        if most and connections >= most:
            wrong.append(
                f"{row.role}-{row.index} has {connections} connections and takes no more: who comes is cut off. Close "
                "some, or raise connections_max and the limit of descriptors (ulimit -n)"
            )
    if int(stats["fenced"].sum()):
        wrong.append(
            f"disk errors closed partitions {_times(int(stats['fenced'].sum()))}; see the node's log"
        )
    if int(stats["holed_partitions"].sum()):
        wrong.append(
            f"{int(stats['holed_partitions'].sum())} partitions lack records here, which rotted, cannot be read, or "
            "whose files are missing; see the node's log. They are fetched from other replicas in sync, if there "
            "are any"
        )
    if int(stats["disk_full"].sum()):
        free_mb = int(stats["disk_free_bytes"].max()) // 1_000_000
        wrong.append(f"the disk is full ({free_mb} MB are left): produce is refused until there is room")
    elif free_share < 0.05:
        wrong.append(f"the disk is {100 - 100 * free_share:.0f} % full")
    return wrong
