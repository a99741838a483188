"""Shows results as a table for people and as JSON for programs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.table import Table

from perf.machine import Machine
from perf.micro.result import Result
from perf.settle import settle
from ringlog.disk.choose import open_disk

B = TypeVar("B")


class Report(msgspec.Struct, frozen=True):
    """All of one run."""

    commit: str
    scale: str
    disk_engine: str
    machine: Machine
    results: list[Result]


def commit_of(directory: str) -> str:
    """The commit that a checkout is at, with `+` when something is changed; `unknown` outside of one."""
    try:
        found = subprocess.run(
            ["git", "-C", directory, "describe", "--always", "--abbrev=12", "--dirty=+"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def in_turn(
    benchmarks: Mapping[str, Callable[[B], Result | list[Result]]],
    only: Sequence[str],
    bench: B,
    directory: str,
    progress: Console,
) -> list[Result]:
    """Run the benchmarks that are asked for, all when none is, each when the disk under the directory rests, and tell
    how long each took."""
    results: list[Result] = []
    names = list(only) or list(benchmarks)
    for number, name in enumerate(names, start=1):
        progress.print(f"[{number}/{len(names)}] {name} …", end=" ", highlight=False, markup=False)
        settle(directory)
        began = time.perf_counter()
        found = benchmarks[name](bench)
        results += found if isinstance(found, list) else [found]
        progress.print(f"{time.perf_counter() - began:.1f} s", highlight=False)
    return results


def publish(report: Report, json_path: str, progress: Console, *, strict: bool) -> None:
    """Write and show a run; with `strict`, exit with 1 when a goal was missed."""
    write_json(report, json_path)
    show(report, Console())
    progress.print(f"Written to {json_path}", highlight=False)
    if strict and not all(result.reached for result in report.results):
        sys.exit(1)


def disk_engine() -> str:
    """The engine that logs have on this machine."""
    disk = open_disk()
    try:
        return disk.name
    finally:
        disk.shutdown()


def write_json(report: Report, path: str) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def show(report: Report, console: Console) -> None:
    """Print the table, say what each row and its limit is, and which goals were missed."""
    machine = report.machine
    storage = machine.storage
    console.print(
        f"[bold]ringlog {report.commit}[/] · {machine.cpu}, {machine.cores} cores · Linux {machine.kernel} · "
        f"{storage.file_system} on {storage.device} ({storage.write_cache}) · {report.disk_engine} · "
        f"Python {machine.python} · load {machine.load_1_min}",
        highlight=False,
    )
    table = Table()
    table.add_column("")
    table.add_column("what")
    for heading in ("measured", "±", "limit", "ratio"):
        table.add_column(heading, justify="right")
    table.add_column("goal")
    for result in report.results:
        table.add_row(
            "[green]✓[/]" if result.reached else "[red]✗[/]",
            result.name,
            f"{result.value:.3g} {result.unit}",
            f"{result.spread:.0%}" if result.rounds > 1 else "",
            f"{result.limit_value:.3g} {result.unit}",
            f"{result.ratio:.2f}",
            result.goal.text,
        )
    console.print(table)
    legend = Table(box=None, show_header=False, padding=(0, 1))
    for result in report.results:
        legend.add_row(result.name, result.what, f"[dim]limit: {result.limit_name}[/]")
        for name, value in result.notes.items():
            legend.add_row("", "", f"[dim]beside it: {value:.3g} {name}[/]")
    console.print(legend)
    missed = [result.name for result in report.results if not result.reached]
    if missed:
        console.print(f"[red]Missed:[/] {', '.join(missed)}", highlight=False)
    else:
        console.print("[green]Every goal was reached.[/]")
