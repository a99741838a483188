"""`python -m perf`: the measurements, by name."""

from __future__ import annotations

import click

from perf.micro.command import micro
from perf.node.command import node


@click.group()
def perf() -> None:
    """Measure ringlog on this machine."""


perf.add_command(micro)
perf.add_command(node)

if __name__ == "__main__":
    perf(prog_name="python -m perf")
