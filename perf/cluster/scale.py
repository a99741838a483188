"""How much a run of the cluster's benchmarks measures."""

from __future__ import annotations

from typing import NamedTuple


class ClusterScale(NamedTuple):
    """The amounts of one run."""

    name: str
    rounds: int
    records: int
    """Records of 100 B that a round sends."""
    latency_records: int
    kills: int


FULL = ClusterScale("full", 5, 1_000_000, 500, 50)
QUICK = ClusterScale("quick", 3, 300_000, 150, 8)
TINY = ClusterScale("tiny", 1, 5_000, 20, 1)
SCALES = {scale.name: scale for scale in (FULL, QUICK, TINY)}
