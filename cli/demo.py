"""`ringlog demo`: a node takes a million records, loses a shard to kill -9 in the middle, and loses no record.

Real processes, a real kill, a real check: exits with 1 when an acknowledged record is missing, twice or wrong.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from typing import Any, NamedTuple

import click
import msgspec
import numpy as np
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from cli.demo_helper import helper
from cli.demo_place import BUILD, make_place
from cli.demo_reader import ReadReport
from cli.demo_records import VALUE_BYTES, values
from cli.invocation import pasteable
from cli.screen import Screen
from ringlog.client.admin import Admin
from ringlog.client.consumer import Consumer
from ringlog.client.producer import Producer
from ringlog.node.embedded import EmbeddedNode, embedded
from ringlog.node.identity import read_info

TOPIC = "demo"
PULSE = "demo-pulse"
"""A topic with a partition on every shard: shows when a shard answers again."""
CHUNK_RECORDS = 50_000
CHUNKS_AHEAD = 4
LATENCY_RECORDS = 300


class Loaded(NamedTuple):
    """What the producer did."""

    seconds: float
    killed_pid: int
    writable_ms: float
    """From the kill until every shard had acknowledged a record again."""


@click.command()
@click.option(
    "--records",
    default=1_000_000,
    type=click.IntRange(min=1000, max=100_000_000),
    help="How many to send. [default: 1000000]",
)
@click.option("--partitions", default=16, type=click.IntRange(min=1, max=1000), show_default=True)
@click.option(
    "--dir",
    "directory",
    help="Where the node keeps its data meanwhile; by default a new directory under ./build.",
)
@click.option("--keep", is_flag=True, help="Leave the data there, to look at it.")
@click.option("--storage", is_flag=True, help="Show the storage engine alone: torn writes and recovery.")
@click.pass_context
def demo(
    ctx: click.Context, records: int, partitions: int, directory: str | None, keep: bool, storage: bool
) -> None:
    """Start a node, send a million records through it, kill a shard in the middle, and check every record.

    \b
    Examples:
      ringlog demo                       about ten seconds
      ringlog demo --records 10000000    more of the same
      ringlog demo --keep                leave the data, for `ringlog log dump` and `ringlog start --data-dir`
      ringlog demo --storage             one log without a node: torn writes and recovery
    """
    if storage:
        from cli.demo_storage import storage_demo

        ctx.invoke(storage_demo, records=records, directory=directory, keep=keep)
        return
    console = Screen()
    if directory is not None and os.path.exists(directory) and os.listdir(directory):
        raise click.UsageError(f"{directory} is not empty; name another directory")
    above = directory or BUILD
    was_there = os.path.isdir(above)
    directory = os.path.abspath(make_place(directory))
    good = False
    try:
        good = run(console, records, partitions, directory)
    finally:
        if not keep:
            _remove(directory, above, was_there=was_there)
    if keep:
        console.print(
            f"\nThe data is kept:\n  [cyan]{escape(pasteable('log', 'verify', directory))}[/]", soft_wrap=True
        )
    sys.exit(0 if good else 1)


def _remove(directory: str, above: str, *, was_there: bool) -> None:
    """Leave what was there before the demo: a directory that it made goes, and one that was empty is so again."""
    shutil.rmtree(directory, ignore_errors=True)
    if was_there:
        os.makedirs(above, exist_ok=True)
    elif os.path.isdir(above) and not os.listdir(above):
        os.rmdir(above)


def run(console: Screen, records: int, partitions: int, directory: str) -> bool:
    """The demo from the start of the node to the last check; whether all was well."""
    began = time.perf_counter()
    shards = len(os.sched_getaffinity(0))
    with embedded(shards=shards, data_dir=directory) as node:
        took_ms = (time.perf_counter() - began) * 1e3
        console.print(
            f"[bold]1  A node.[/] Ready in {took_ms:.0f} ms at {node.bootstrap}: a supervisor, {shards} shards, a "
            f"network process, a controller."
        )
        with Admin(node.bootstrap) as admin:
            admin.create_topic(TOPIC, num_partitions=partitions)
            admin.create_topic(PULSE, num_partitions=shards)
        console.print(
            f"\n[bold]2  {records:,} records[/] of {VALUE_BYTES} bytes over {partitions} partitions, each flushed "
            "to disk before its acknowledgement.\n   A consumer reads along. In the middle a shard gets kill -9."
        )
        loaded, report = load(console, node, records, partitions)
        console.print(
            "\n[bold]3  One at a time[/], from produce() until the consumer has it, flushed in between."
        )
        p50_ms, p99_ms = latency(node)
    return show(console, records, loaded, report, p50_ms, p99_ms)


def load(console: Screen, node: EmbeddedNode, records: int, partitions: int) -> tuple[Loaded, ReadReport]:
    """Produce and consume at once, with a kill in between."""
    with helper("cli.demo_reader", node.bootstrap, TOPIC, str(partitions), str(records)) as reader:
        with Progress(
            TextColumn("  "), BarColumn(bar_width=24), TextColumn("{task.description}"), console=console
        ) as live:
            task = live.add_task("", total=records)
            loaded = produce(node, records, live, task)
        line = reader.said.readline()
    return loaded, msgspec.json.decode(line or '{"read":0,"seconds":1}', type=ReadReport)


def produce(node: EmbeddedNode, records: int, live: Progress, task: TaskID) -> Loaded:
    """Send everything, some chunks ahead of the acknowledgements; kill a shard at two fifths."""
    killed_pid, writable_ms = 0, 0.0
    acked = 0
    with Producer(bootstrap=node.bootstrap) as producer:
        waiting = []
        began = time.perf_counter()
        paused_s = 0.0
        for first in range(0, records, CHUNK_RECORDS):
            count = min(CHUNK_RECORDS, records - first)
            waiting.append((count, producer.produce_many(TOPIC, values(first, count))))
            if not killed_pid and first >= records * 2 // 5:
                pause = time.perf_counter()
                killed_pid, writable_ms = kill_a_shard(node, live)
                paused_s += time.perf_counter() - pause
            while len(waiting) > CHUNKS_AHEAD:
                acked += _settle(waiting, live, task, acked, began)
        while waiting:
            acked += _settle(waiting, live, task, acked, began)
        seconds = time.perf_counter() - began
    return Loaded(seconds, killed_pid, writable_ms)


def _settle(waiting: list[Any], live: Progress, task: TaskID, acked: int, began: float) -> int:
    count, future = waiting.pop(0)
    future.result(60)
    rate = (acked + count) / (time.perf_counter() - began)
    live.update(
        task, completed=acked + count, description=f"{acked + count:,} acknowledged  {rate / 1e6:.2f} M/s"
    )
    return int(count)


def kill_a_shard(node: EmbeddedNode, live: Progress) -> tuple[int, float]:
    """Kill the first shard; its pid, and how long it took until every shard acknowledged again."""
    info = read_info(node.data_dir) or node.info
    shards = [process for process in info.processes if process.role == "shard"]
    with Producer(bootstrap=node.bootstrap) as pulse:
        for partition in range(len(shards)):
            pulse.produce(PULSE, b"before", partition=partition).result(30)
        os.kill(shards[0].pid, signal.SIGKILL)
        began = time.perf_counter()
        for partition in range(len(shards)):
            pulse.produce(PULSE, b"after", partition=partition).result(30)
        took_ms = (time.perf_counter() - began) * 1e3
    live.console.print(
        f"   [red]kill -9[/] {shards[0].pid} (shard 0): a new one took over, and every shard acknowledged again after "
        f"{took_ms:.0f} ms"
    )
    return shards[0].pid, took_ms


def latency(node: EmbeddedNode) -> tuple[float, float]:
    """Milliseconds from produce() until a consumer has the record: median and 99th of a hundred."""
    waits = []
    with Producer(bootstrap=node.bootstrap) as producer, Consumer(bootstrap=node.bootstrap) as consumer:
        consumer.assign([(PULSE, 0)])
        consumer.seek_to_end((PULSE, 0))
        consumer.poll(timeout_ms=50)
        for number in range(LATENCY_RECORDS):
            began = time.perf_counter()
            producer.produce(PULSE, b"%d" % number, partition=0)
            while not consumer.poll(timeout_ms=1000):
                continue
            waits.append(time.perf_counter() - began)
    return float(np.percentile(waits, 50)) * 1e3, float(np.percentile(waits, 99)) * 1e3


def show(
    console: Screen, records: int, loaded: Loaded, report: ReadReport, p50_ms: float, p99_ms: float
) -> bool:
    """The outcome as a table; whether all was well."""
    good = report.read >= records and not (report.missing or report.repeated or report.disordered)
    rate = records / loaded.seconds
    table = Table.grid(padding=(0, 4))

    def line(fine: bool, what: str, found: str) -> None:
        table.add_row("[green]✓[/]" if fine else "[bold red]✗[/]", what, found)

    line(True, "acknowledged", f"{records:,} records, all flushed before the ack")
    line(not report.missing, "lost", f"{report.missing:,}")
    line(not report.repeated, "delivered twice", f"{report.repeated:,}")
    line(not report.disordered, "out of order", f"{report.disordered:,}")
    line(
        True,
        "throughput",
        f"{rate / 1e6:.2f} M records/s, {rate * VALUE_BYTES / 1e6:.0f} MB/s, kill included",
    )
    line(True, "writable after the kill", f"in {loaded.writable_ms:.0f} ms")
    line(True, "produce → consume", f"p50 {p50_ms:.2f} ms, p99 {p99_ms:.2f} ms")
    console.print()
    console.print(table)
    return good
