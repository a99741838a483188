"""`python -m perf cluster`: starts three nodes and one beside them, runs the benchmarks, shows the table."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence

import click
from rich.console import Console

from perf.cluster.benchmarks import BENCHMARKS, ClusterBench
from perf.cluster.nodes import BenchCluster, BenchNode, running
from perf.cluster.scale import SCALES
from perf.machine import describe
from perf.micro.report import Report, commit_of, disk_engine, in_turn, publish

DEFAULT_DIR = "build/bench"
DEFAULT_JSON = "bench-results/cluster.json"


@click.command()
@click.option("--quick", "scale", flag_value="quick", help="Fewer rounds and kills: a first look.")
@click.option("--tiny", "scale", flag_value="tiny", help="Only prove that every benchmark runs.")
@click.option("--only", multiple=True, type=click.Choice(list(BENCHMARKS)), help="Run this one; repeatable.")
@click.option("--kills", type=int, help="Nodes to kill for the failover figures.")
@click.option("--dir", "parent", default=DEFAULT_DIR, help="Measure the disk under this directory.")
@click.option("--json", "json_path", default=DEFAULT_JSON, help="Where the results go.", show_default=True)
@click.option("--strict", is_flag=True, help="Exit with 1 when a goal is missed.")
def cluster(
    scale: str | None, only: Sequence[str], kills: int | None, parent: str, json_path: str, strict: bool
) -> None:
    """Measure three nodes on this machine, one cluster, beside one node by itself.

    \b
    python -m perf cluster --quick
    python -m perf cluster --only failover --kills 20
    """
    progress = Console(stderr=True)
    os.makedirs(parent, exist_ok=True)
    directory = os.path.abspath(tempfile.mkdtemp(prefix="cluster-", dir=parent))
    chosen = SCALES[scale or "full"]
    if kills is not None:
        chosen = chosen._replace(kills=kills)
    nodes, single = BenchCluster(directory), BenchNode(f"{directory}/single")
    try:
        with running(single), running(nodes):
            bench = ClusterBench(chosen, nodes, single)
            results = in_turn(BENCHMARKS, only, bench, directory, progress)
    finally:
        shutil.rmtree(directory)
    source = os.path.dirname(os.path.abspath(__file__))
    report = Report(commit_of(source), chosen.name, disk_engine(), describe(parent), results)
    publish(report, json_path, progress, strict=strict)
