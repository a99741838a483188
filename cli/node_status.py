"""What `ringlog status` shows of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from cli.clients import open_admin
from cli.counted import counted
from cli.output import print_json
from cli.screen import Screen, print_table
from ringlog.errors import RinglogError

if TYPE_CHECKING:
    from ringlog.node.control import NodeStatus


ANSWER_S = 2.0
"""The names of the hottest partitions are not worth a longer wait."""


def show_status(data_dir: str, *, as_json: bool) -> None:
    """Look at the node for half a second, and print what was seen."""
    from ringlog.node.control import status

    found = status(data_dir)
    _name(found)
    if as_json:
        print_json(found)
    else:
        _print_status(found)


def _print_status(found: NodeStatus) -> None:
    print(
        f"node {found.pid} on {found.endpoints[0]}, up for {duration(found.uptime_s)}, data in {found.data_dir}"
    )
    if found.cluster is not None:
        cluster = found.cluster
        role = "the controller" if cluster.is_controller else "not the controller"
        if cluster.no_controller_s:
            role = f"nobody is the controller, for {duration(cluster.no_controller_s)}"
        live = cluster.nodes - cluster.nodes_fenced
        print(f"in a cluster of {counted(cluster.nodes, 'node')}, {live} of them up; {role}")
    print(
        f"{counted(found.partitions, 'partition')}, {counted(found.connections, 'connection')}, "
        f"{found.rss_bytes / 1e6:,.0f} MB of memory, {found.disk_free_bytes / 1e9:,.1f} GB of disk free"
    )
    print(
        f"in {found.records_in_per_s:,.0f} records/s, {found.bytes_in_per_s / 1e6:,.1f} MB/s; "
        f"out {found.bytes_out_per_s / 1e6:,.1f} MB/s{_latency(found)}"
    )
    print()
    print_table(
        (
            "PROCESS",
            "PID",
            "STATE",
            "RESTARTS",
            "CPU %",
            "MB",
            "REQUESTS/S",
            "IN MB/S",
            "OUT MB/S",
            "PARTITIONS",
        ),
        [
            (
                f"{p.role}-{p.index}",
                str(p.pid),
                p.state,
                p.restarts,
                f"{p.cpu_percent:.0f}",
                f"{p.rss_bytes / 1e6:,.0f}",
                f"{p.requests_per_s:,.0f}",
                f"{p.bytes_in_per_s / 1e6:,.1f}",
                f"{p.bytes_out_per_s / 1e6:,.1f}",
                p.partitions,
            )
            for p in found.processes
        ],
    )
    if found.hottest:
        print("\nhottest partitions")
        print_table(
            ("PARTITION", "SHARD", "IN MB/S", "MB", "RECORDS"),
            [
                (
                    f"#{hot.partition_id}" if hot.topic is None else f"{hot.topic}-{hot.partition}",
                    hot.shard,
                    f"{hot.bytes_in_per_s / 1e6:,.1f}",
                    f"{hot.bytes_in / 1e6:,.1f}",
                    hot.records_in,
                )
                for hot in found.hottest
            ],
        )
    screen = Screen()
    print()
    if not found.wrong:
        screen.print("[green]Nothing is wrong.[/]")
    for what in found.wrong:
        screen.print(f"[yellow]![/] {escape(what)}", soft_wrap=True)


def _name(found: NodeStatus) -> None:
    """Ask the node for the names of the hottest partitions, of which its page has only its own numbers."""
    if not found.hottest:
        return
    try:
        with open_admin(found.endpoints[0]) as admin:
            names = admin.partition_names(timeout=ANSWER_S)
    except RinglogError:
        return  # a node that does not answer is worth a status all the same
    for hot in found.hottest:
        hot.topic, hot.partition = names.get(hot.partition_id, (None, None))


def _latency(found: NodeStatus) -> str:
    if found.produce_p50_ms is None or found.produce_p99_ms is None:
        return ""
    return f"; produce p50 {found.produce_p50_ms:.1f} ms, p99 {found.produce_p99_ms:.1f} ms since the start"


def duration(seconds: float) -> str:
    """A time span as people say it.

    >>> duration(59), duration(3720), duration(200_000)
    ('59 s', '1 h 2 min', '2 d 7 h')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
