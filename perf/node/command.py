"""`python -m perf node`: starts a node, runs its benchmarks through the client, shows the table, writes the JSON."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Sequence

import click
from rich.console import Console

from perf.machine import describe
from perf.micro.report import Report, commit_of, disk_engine, in_turn, publish
from perf.node.benchmarks import BENCHMARKS
from perf.node.scale import SCALES
from perf.node.setting import NodeBench
from ringlog.limits import TAIL_BYTES_PER_SHARD
from ringlog.node.embedded import embedded

DEFAULT_DIR = "build/bench"
DEFAULT_JSON = "bench-results/node.json"


def require_arrow(only: Sequence[str]) -> None:
    """Say before anything is measured that a benchmark lacks what it needs."""
    if "consume" in (only or BENCHMARKS) and importlib.util.find_spec("pyarrow") is None:
        others = " ".join(f"--only {name}" for name in BENCHMARKS if name != "consume")
        raise click.ClickException(
            f"consume reads Arrow columns, and pyarrow is not installed: pip install 'pyarrow>=17', or measure "
            f"the others: {others}"
        )


@click.command()
@click.option("--quick", "scale", flag_value="quick", help="Fewer rounds and records: a first look.")
@click.option("--tiny", "scale", flag_value="tiny", help="Only prove that every benchmark runs.")
@click.option("--only", multiple=True, type=click.Choice(list(BENCHMARKS)), help="Run this one; repeatable.")
@click.option("--shards", type=int, default=0, help="0: one per core.")
@click.option("--dir", "parent", default=DEFAULT_DIR, help="Measure the disk under this directory.")
@click.option("--json", "json_path", default=DEFAULT_JSON, help="Where the results go.", show_default=True)
@click.option("--strict", is_flag=True, help="Exit with 1 when a goal is missed.")
def node(
    scale: str | None, only: Sequence[str], shards: int, parent: str, json_path: str, strict: bool
) -> None:
    """Measure a node through its client, beside the limits of this machine."""
    progress = Console(stderr=True)
    require_arrow(only)
    os.makedirs(parent, exist_ok=True)
    directory = os.path.abspath(tempfile.mkdtemp(prefix="node-", dir=parent))
    chosen = SCALES[scale or "full"]
    count = shards or len(os.sched_getaffinity(0))
    try:
        with embedded(
            shards=count, data_dir=f"{directory}/data", tail_bytes_per_shard=TAIL_BYTES_PER_SHARD
        ) as running:
            bench = NodeBench(chosen, running, directory)
            results = in_turn(BENCHMARKS, only, bench, directory, progress)
    finally:
        shutil.rmtree(directory)
    source = os.path.dirname(os.path.abspath(__file__))
    report = Report(commit_of(source), chosen.name, disk_engine(), describe(parent), results)
    publish(report, json_path, progress, strict=strict)
