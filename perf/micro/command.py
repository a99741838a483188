"""`python -m perf micro`: runs the benchmarks, shows the table, writes the JSON."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence

import click
from rich.console import Console

from cli.quiet import quiet
from perf.machine import describe
from perf.micro.catalogue import BENCHMARKS, run_one
from perf.micro.report import Report, commit_of, disk_engine, publish
from perf.micro.result import Result
from perf.micro.scale import SCALES, Bench, Scale
from perf.settle import settle

DEFAULT_DIR = "build/bench"
DEFAULT_JSON = "bench-results/micro.json"


@click.command()
@click.option("--quick", "scale", flag_value="quick", help="Fewer rounds and bytes: a first look.")
@click.option("--tiny", "scale", flag_value="tiny", help="Only prove that every benchmark runs.")
@click.option("--only", multiple=True, type=click.Choice(list(BENCHMARKS)), help="Run this one; repeatable.")
@click.option("--dir", "parent", default=DEFAULT_DIR, help="Measure the disk under this directory.")
@click.option("--json", "json_path", default=DEFAULT_JSON, help="Where the results go.", show_default=True)
@click.option("--strict", is_flag=True, help="Exit with 1 when a goal is missed.")
def micro(scale: str | None, only: Sequence[str], parent: str, json_path: str, strict: bool) -> None:
    """Measure each part beside the limit that this machine sets to it."""
    chosen = SCALES[scale or "full"]
    progress = Console(stderr=True)
    os.makedirs(parent, exist_ok=True)
    machine = describe(parent)
    if machine.storage.is_memory:
        progress.print(
            f"[yellow]{parent} is on {machine.storage.file_system}: figures of durable writes mean nothing there. "
            "Use --dir to name a directory on a disk.[/]"
        )
    directory = tempfile.mkdtemp(prefix="micro-", dir=parent)
    try:
        with quiet("ringlog.log"):  # crashes are made on purpose here
            results = run_all(list(only) or list(BENCHMARKS), chosen, directory, progress)
    finally:
        shutil.rmtree(directory)
    source = os.path.dirname(os.path.abspath(__file__))
    report = Report(commit_of(source), chosen.name, disk_engine(), machine, results)
    publish(report, json_path, progress, strict=strict)


def run_all(names: Sequence[str], scale: Scale, directory: str, progress: Console) -> list[Result]:
    """Run benchmarks one after another, each in a new directory that is removed when it is done."""
    results: list[Result] = []
    for number, name in enumerate(names, start=1):
        progress.print(f"[{number}/{len(names)}] {name} …", end=" ", highlight=False, markup=False)
        settle(directory)
        began = time.perf_counter()
        own = os.path.join(directory, name)
        os.mkdir(own)
        results += run_one(name, Bench(scale, own))
        shutil.rmtree(own)
        progress.print(f"{time.perf_counter() - began:.1f} s", highlight=False)
    return results
