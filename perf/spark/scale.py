"""How much a run of the Spark benchmarks measures."""

from __future__ import annotations

from typing import NamedTuple


class SparkScale(NamedTuple):
    """The amounts of one run."""

    name: str
    rounds: int
    records: int
    """Of 100 B, that each query reads or writes."""
    warm_writes: int = 3
    """Before writes are measured: by then Java has compiled what it runs often, which takes cores from everybody."""


FULL = SparkScale("full", 5, 4_000_000)
QUICK = SparkScale("quick", 3, 2_000_000)
TINY = SparkScale("tiny", 1, 20_000, warm_writes=1)
SCALES = {scale.name: scale for scale in (FULL, QUICK, TINY)}
