"""`ringlog demo --storage`: a log appends durably, its writer is killed in mid-write, its tail torn, nothing is lost.

Real processes, a real kill, a real check: exits with 1 when an acknowledged record is missing or wrong.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from typing import NamedTuple

import click
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from cli.demo_helper import helper
from cli.demo_place import make_place
from cli.demo_tear import Tear, tear_last_batch
from cli.demo_verify import WrongRecord, expected_checksum, find_by_time, read_by_offset
from cli.demo_writer import NAME, SETTINGS, append, wall_ms
from cli.failures import ExitCode
from cli.invocation import pasteable
from cli.quiet import quiet
from cli.screen import Screen
from ringlog.disk.choose import open_disk
from ringlog.errors import RinglogError
from ringlog.limits import MIB
from ringlog.log.names import LOG, partition_dir
from ringlog.log.store import LogStore

LATENCIES_KEPT = 2_000
"""Acknowledgements that the live figures look back on."""
ACKS_PER_UPDATE = 20
TIMES_TRIED = 5


class Ack(NamedTuple):
    """One line of the writer."""

    offset: int
    nbytes: int
    wait_us: int
    at_s: float
    """When it was acknowledged, by the clock that all processes share."""

    @classmethod
    def parse(cls, line: str) -> Ack:
        offset, nbytes, wait_us, at_ns = map(int, line.split())
        return cls(offset, nbytes, wait_us, at_ns / 1e9)


class Written(NamedTuple):
    """What the writer had promised, and how fast."""

    offset: int
    """All records below it were acknowledged as flushed."""
    nbytes: int
    records_per_s: float
    bytes_per_s: float
    p50_ms: float
    p99_ms: float


@click.command()
@click.option(
    "--records", default=2_000_000, type=click.IntRange(min=1), help="Kill the writer after so many."
)
@click.option("--dir", "directory", help="Where the log goes; by default a new directory under ./build.")
@click.option("--keep", is_flag=True, help="Leave the log there, to look at it.")
def storage_demo(records: int, directory: str | None, keep: bool) -> None:
    """Append durably, kill the writer, tear its last write, recover, and check every record."""
    console = Screen()
    if directory is not None and os.path.exists(partition_dir(directory, NAME)):
        raise click.UsageError(f"{directory} already holds a log of the demo; name another directory")
    directory = make_place(directory)
    path = partition_dir(directory, NAME)
    try:
        with quiet("ringlog.log"):  # what recovery finds is shown in its place
            run(console, records, directory, path)
    except (KeyboardInterrupt, SystemExit, RinglogError, OSError):
        shutil.rmtree(
            path, ignore_errors=True
        )  # nobody asked to keep the half of a demo, least of all a full disk
        raise
    except WrongRecord as wrong:
        console.print(f"\n[bold red]✗ Lost:[/] {wrong}. The log is kept in {path}.")
        sys.exit(1)
    if keep:
        show_next(console, path)
        return
    shutil.rmtree(path)
    if not os.listdir(directory):
        os.rmdir(directory)
    console.print(
        f"\nThe log was removed. Look into one yourself:\n  {_hint('demo', '--keep')}", soft_wrap=True
    )


def run(console: Screen, records: int, directory: str, path: str) -> None:
    """The demo from the first append to the last check."""
    console.print("[bold]1  Append.[/] Every record is on the device before its acknowledgement.")
    written = write_and_kill(console, records, directory)
    console.print(f"\n[bold]2  kill -9.[/] The writer is gone. It had promised {written.offset:,} records.")
    segments = sorted(name for name in os.listdir(path) if name.endswith(LOG))
    tear = tear_last_batch(f"{path}/{segments[-1]}", written.offset)
    console.print(
        f"   A power loss, too: {tear.gone_bytes:,} bytes of the last, unpromised batch in {segments[-1]} are "
        f"gone, {tear.left_bytes:,} are left."
    )
    console.print("\n[bold]3  Open it again.[/]")
    disk = open_disk()
    try:
        began = time.perf_counter()
        store = LogStore(disk, directory)
        store.open(NAME, SETTINGS, now_ms=wall_ms())
        opened_ms = (time.perf_counter() - began) * 1e3
        show_recovery(console, store, opened_ms)
        console.print("\n[bold]4  Read it all back.[/]")
        check_all(console, store, written, tear, opened_ms)
        store.close(now_ms=wall_ms())
    finally:
        disk.shutdown()


def write_and_kill(console: Screen, records: int, directory: str) -> Written:
    """Let a process append until it has acknowledged enough; kill it while it goes on."""
    acks: list[Ack] = []
    with (
        helper("cli.demo_writer", directory) as writer,
        Progress(
            TextColumn(" "), BarColumn(bar_width=12), TextColumn("{task.description}"), console=console
        ) as live,
    ):
        task = live.add_task("", total=records)
        for line in writer.said:
            acks.append(Ack.parse(line))
            if acks[-1].offset >= records:
                break
            if len(acks) % ACKS_PER_UPDATE == 0:
                live.update(task, completed=acks[-1].offset, description=_speed(_sum_up(acks)))
        rest = writer.kill()
        # What the writer said before it died was promised, too, even if nobody had read it yet.
        acks += [Ack.parse(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        if not acks or acks[-1].offset < records:
            live.stop()
            console.print("The writer ended by itself; its message stands above.")
            code = writer.process.returncode
            sys.exit(code if code > 0 else ExitCode.REFUSED)
        written = _sum_up(acks)
        live.update(task, completed=records, description=_speed(written))
    return written


def _sum_up(acks: list[Ack]) -> Written:
    """The figures of a run so far; rates count from the first acknowledgement on, latencies look back a little."""
    first, last = acks[0], acks[-1]
    seconds = max(last.at_s - first.at_s, 1e-9)
    waits = sorted(ack.wait_us for ack in acks[-LATENCIES_KEPT:])
    return Written(
        offset=last.offset,
        nbytes=last.nbytes,
        records_per_s=(last.offset - first.offset) / seconds,
        bytes_per_s=(last.nbytes - first.nbytes) / seconds,
        p50_ms=waits[len(waits) // 2] / 1e3,
        p99_ms=waits[len(waits) * 99 // 100] / 1e3,
    )


def _speed(written: Written) -> str:
    return (
        f"{written.offset:,} records  {written.records_per_s / 1e6:.2f} M/s  {written.bytes_per_s / 1e6:.0f} MB/s  "
        f"ack p50 {written.p50_ms:.1f} p99 {written.p99_ms:.1f} ms"
    )


def show_recovery(console: Screen, store: LogStore, opened_ms: float) -> None:
    """What opening found and did."""
    report, log = store.reports[NAME], store.logs[NAME]
    console.print(
        f"   {opened_ms:.0f} ms: scanned {report.scanned_bytes / MIB:,.1f} MiB behind the last checkpoint; the log "
        f"ends at offset {log.next_offset:,}."
    )
    for problem in report.problems:
        console.print(f"   [yellow]•[/] {problem}")


def check_all(console: Screen, store: LogStore, written: Written, tear: Tear, opened_ms: float) -> None:
    """Read by offset and by time, compare, append once more, and show the outcome as a table."""
    end = store.logs[NAME].next_offset
    if end < written.offset:
        raise WrongRecord(
            f"{written.offset - end:,} acknowledged records from offset {end:,} on are not there"
        )
    began = time.perf_counter()
    found = read_by_offset(store, written.offset)
    read_s = time.perf_counter() - began
    expected = expected_checksum(written.offset)
    if found.checksum != expected:
        raise WrongRecord(f"the acknowledged values have CRC32C {found.checksum:08x}, not {expected:08x}")
    tried = [end * number // TIMES_TRIED for number in range(TIMES_TRIED)]
    for offset in tried:
        find_by_time(store, offset)
    append(store, end)
    store.drain(now_ms=wall_ms())
    if store.logs[NAME].flushed_offset <= end:
        raise WrongRecord("the recovered log took an append and did not flush it")
    cut = store.reports[NAME].cut_bytes
    table = Table(show_header=False, box=None, padding=(0, 2))
    rows = (
        ("acknowledged before the kill", f"{written.offset:,} records, {written.nbytes / 1e6:,.0f} MB"),
        ("found again", f"all of them, and {found.records - written.offset:,} that were not yet promised"),
        ("CRC32C of the acknowledged", f"{found.checksum:08x}, as it must be"),
        (
            "torn, cut and saved aside",
            # What is cut reaches to the end of its block, beyond what was left of the batch.
            f"{min(cut, tear.left_bytes):,} of {tear.left_bytes:,} bytes that were left of the torn batch",
        ),
        ("opened again", f"in {opened_ms:.0f} ms, and writable: one more batch was appended and flushed"),
        ("read back by offset", f"{found.nbytes / read_s / 1e6:,.0f} MB/s, each record compared"),
        ("found by time", f"{len(tried)} of {len(tried)} times"),
    )
    for what, value in rows:
        table.add_row("[green]✓[/]", what, value)
    console.print(table)


def show_next(console: Screen, path: str) -> None:
    """What to try with the log that was kept."""
    first = min(name for name in os.listdir(path) if name.endswith(LOG))
    console.print(
        "\nTry next:\n"
        f"  {_hint('log', 'verify', path)}\n"
        f"  {_hint('log', 'dump', f'{path}/{first}')} [cyan]| head[/]\n"
        f"  [cyan]ls -l {escape(shlex.quote(path))}[/]   # the *.cut file holds what was torn",
        soft_wrap=True,
    )


def _hint(*arguments: str) -> str:
    return f"[cyan]{escape(pasteable(*arguments))}[/]"


if __name__ == "__main__":
    storage_demo(prog_name="python -m cli.demo_storage")
