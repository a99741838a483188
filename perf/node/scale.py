"""How much a run of the node's benchmarks measures."""

from __future__ import annotations

from typing import NamedTuple


class NodeScale(NamedTuple):
    """The amounts of one run."""

    name: str
    rounds: int
    small_records: int
    """Records of 100 B that a round sends or reads."""
    large_records: int
    """Records of 1 KB."""
    single_records: int
    """Sent one produce() at a time."""
    latency_records: int
    many_partitions: int
    raw_bytes: int
    """Sent through a bare socket."""


FULL = NodeScale("full", 5, 3_000_000, 500_000, 400_000, 1_000, 1_000, 512 << 20)
QUICK = NodeScale("quick", 3, 1_000_000, 150_000, 150_000, 300, 1_000, 128 << 20)
TINY = NodeScale("tiny", 1, 20_000, 2_000, 2_000, 20, 20, 4 << 20)
SCALES = {scale.name: scale for scale in (FULL, QUICK, TINY)}
