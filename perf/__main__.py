"""`python -m perf`: the measurements, by name."""

from __future__ import annotations

import click

from perf.cluster.command import cluster
from perf.compare.command import compare, report
from perf.compare.history import history
from perf.micro.command import micro
from perf.node.command import node
from perf.spark.command import spark


@click.group()
def perf() -> None:
    """Measure ringlog on this machine."""


perf.add_command(micro)
perf.add_command(node)
perf.add_command(cluster)
perf.add_command(spark)
perf.add_command(compare)
perf.add_command(report)
perf.add_command(history)

if __name__ == "__main__":
    perf(prog_name="python -m perf")
