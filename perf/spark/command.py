"""`python -m perf spark`: starts a node and Spark, measures source and sink, shows the table, writes the JSON."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial

import click
from rich.console import Console

from perf.machine import describe
from perf.micro.report import Report, commit_of, disk_engine, in_turn, publish
from perf.peers.fetch import PeerUnavailable
from perf.spark.benchmarks import BENCHMARKS
from perf.spark.kafka_source import beside_kafka, broker, connector_jars
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
@click.option(
    "--kafka", is_flag=True, help="Also beside Spark's Kafka source on a Kafka: fetched with Maven."
)
@click.option(
    "--kafka-jars",
    type=click.Path(exists=True, file_okay=False),
    help="The jars of that source, spark-sql-kafka-0-10 of this Spark and what it needs, where Maven has none.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 when a goal is missed.")
def spark(
    scale: str | None,
    only: Sequence[str],
    parent: str,
    json_path: str,
    kafka: bool,
    kafka_jars: str | None,
    strict: bool,
) -> None:
    """Measure the Spark bridge, beside what Spark and the client could do at best. Needs ringlog[spark] and Java.

    \b
    Examples:
      python -m perf spark --quick
      python -m perf spark --only source --kafka
    """
    progress = Console(stderr=True)
    os.makedirs(parent, exist_ok=True)
    directory = os.path.abspath(tempfile.mkdtemp(prefix="spark-", dir=parent))
    chosen = SCALES[scale or "full"]
    try:
        jars = connector_jars(kafka_jars) if kafka or kafka_jars else ""
    except PeerUnavailable as missing:
        raise click.ClickException(f"Spark's Kafka source is not here: {missing}") from missing
    try:
        with (
            embedded(
                shards=len(os.sched_getaffinity(0)),
                data_dir=f"{directory}/data",
                tail_bytes_per_shard=TAIL_BYTES_PER_SHARD,
            ) as running,
            broker(directory, jars) as beside,
        ):
            bench = SparkBench(chosen, node_bench(running, directory), session(directory, jars))
            chosen_ones = {name: BENCHMARKS[name] for name in list(only) or list(BENCHMARKS)}
            if beside is not None:
                chosen_ones["kafka"] = partial(beside_kafka, beside=beside)
            results = in_turn(chosen_ones, (), bench, directory, progress)
    finally:
        shutil.rmtree(directory)
    source = os.path.dirname(os.path.abspath(__file__))
    report = Report(commit_of(source), chosen.name, disk_engine(), describe(parent), results)
    publish(report, json_path, progress, strict=strict)
