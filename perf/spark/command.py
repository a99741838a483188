"""`python -m perf spark`: starts a node and Spark, measures source and sink, shows the table, writes the JSON."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence

import click
from rich.console import Console

from perf.machine import describe
from perf.micro.report import Report, commit_of, disk_engine, publish
from perf.micro.result import Result
from perf.spark.benchmarks import BENCHMARKS
from perf.spark.scale import SCALES
from perf.spark.setting import SparkBench, node_bench, session
from ringlog.limits import TAIL_BYTES_PER_SHARD
from ringlog.node.embedded import embedded

DEFAULT_DIR = "build/bench"
DEFAULT_JSON = "bench-results/spark.json"


@click.command()
@click.option("--quick", "scale", flag_value="quick", help="Fewer rounds and records: a first look.")
@click.option("--tiny", "scale", flag_value="tiny", help="Only prove that every benchmark runs.")
@click.option("--only", multiple=True, type=click.Choice(list(BENCHMARKS)), help="Run this one; repeatable.")
@click.option("--dir", "parent", default=DEFAULT_DIR, help="Where the node keeps its data.")
@click.option("--json", "json_path", default=DEFAULT_JSON, help="Where the results go.", show_default=True)
@click.option("--strict", is_flag=True, help="Exit with 1 when a goal is missed.")
def spark(scale: str | None, only: Sequence[str], parent: str, json_path: str, strict: bool) -> None:
    """Measure the Spark bridge, beside what Spark and the client could do at best. Needs ringlog[spark] and Java."""
    progress = Console(stderr=True)
    os.makedirs(parent, exist_ok=True)
    directory = os.path.abspath(tempfile.mkdtemp(prefix="spark-", dir=parent))
    chosen = SCALES[scale or "full"]
    results: list[Result] = []
    try:
        with embedded(
            shards=len(os.sched_getaffinity(0)),
            data_dir=f"{directory}/data",
            tail_bytes_per_shard=TAIL_BYTES_PER_SHARD,
        ) as running:
            bench = SparkBench(chosen, node_bench(running, directory), session(directory))
            for number, name in enumerate(list(only) or list(BENCHMARKS), start=1):
                progress.print(f"[{number}] {name} …", end=" ", highlight=False, markup=False)
                began = time.perf_counter()
                results.append(BENCHMARKS[name](bench))
                progress.print(f"{time.perf_counter() - began:.1f} s", highlight=False)
    finally:
        shutil.rmtree(directory)
    source = os.path.dirname(os.path.abspath(__file__))
    report = Report(commit_of(source), chosen.name, disk_engine(), describe(parent), results)
    publish(report, json_path, progress, strict=strict)
