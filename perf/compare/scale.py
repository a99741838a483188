"""How much a comparison measures, and of which workloads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from perf.compare.model import Durability, Workload

D0, D1, D2 = Durability.D0, Durability.D1, Durability.D2
COMMON_PARTITIONS = 16
LOADS = {"10pct": 0.1, "50pct": 0.5, "80pct": 0.8}
"""Shares of a system's own saturation."""
SAME_RATE_PER_S = 10_000
"""The load `same-rate`: a rate that every system can bear."""


class CompareScale(NamedTuple):
    """The amounts of one run."""

    name: str
    rounds: int
    seconds: float
    """About how long a producer works in one measurement; 0: it sends `records_first`, without trying first."""
    bytes_max: int
    """At most so much is produced in one measurement. Less than a gigabyte would be a third of a second of the fastest,
    most of it beginning and end."""
    records_first: int
    """Sent to learn how fast a system is, and to warm it up."""
    latency_seconds: float
    sizes: tuple[int, ...]
    durabilities: tuple[Durability, ...]
    loads: tuple[str, ...]
    python_apis: bool
    """Also the clients that stand for what Python users get, record by record."""
    partitions: int
    limit_bytes: int
    scaling_partitions: tuple[int, ...]
    scaling_sizes: tuple[int, ...]
    scaling_producers: tuple[int, ...]


_CORES = len(os.sched_getaffinity(0))

FULL = CompareScale(
    name="full",
    rounds=5,
    seconds=5.0,
    bytes_max=2 << 30,
    records_first=100_000,
    latency_seconds=10.0,
    sizes=(100, 1_000, 16_384),
    durabilities=(D0, D1, D2),
    loads=("10pct", "50pct", "80pct", "same-rate"),
    python_apis=True,
    partitions=COMMON_PARTITIONS,
    limit_bytes=512 << 20,
    scaling_partitions=(1, 16, 1_000, 10_000),
    scaling_sizes=(100, 1_000, 16_384, 100_000, 1_000_000),
    scaling_producers=tuple(sorted({1, 2, _CORES})),
)
QUICK = FULL._replace(
    name="quick",
    rounds=3,
    seconds=1.5,
    bytes_max=1500 << 20,
    records_first=50_000,
    latency_seconds=3.0,
    sizes=(100, 1_000),
    limit_bytes=128 << 20,
    scaling_partitions=(1, 16, 1_000),
)
TINY = CompareScale(
    name="tiny",
    rounds=1,
    seconds=0.0,
    bytes_max=1 << 20,
    records_first=2_000,
    latency_seconds=0.2,
    sizes=(100,),
    durabilities=(D2,),
    loads=("10pct",),
    python_apis=False,
    partitions=2,
    limit_bytes=4 << 20,
    scaling_partitions=(1, 4),
    scaling_sizes=(100,),
    scaling_producers=(1, 2),
)
SCALES = {scale.name: scale for scale in (FULL, QUICK, TINY)}


def throughput_workloads(scale: CompareScale) -> Iterator[Workload]:
    """Every size at every durability, one producer.

    >>> [workload.name for workload in throughput_workloads(TINY)]
    ['100B.p2.x1.D2']
    """
    for durability in scale.durabilities:
        for size in scale.sizes:
            yield Workload(size, scale.partitions, 1, durability)


def latency_workloads(scale: CompareScale) -> Iterator[Workload]:
    """Sizes up to 1 KB where somebody acknowledges."""
    for durability in scale.durabilities:
        for size in scale.sizes:
            if size <= 1_000 and durability is not D0:
                yield Workload(size, scale.partitions, 1, durability)


def scaling_workloads(scale: CompareScale) -> Iterator[Workload]:
    """One axis at a time, flushed; each combination once.

    >>> [workload.name for workload in scaling_workloads(TINY)]
    ['100B.p1.x1.D2', '100B.p4.x1.D2', '100B.p2.x1.D2', '100B.p2.x2.D2']
    """
    first = scale.sizes[0]
    found = [Workload(first, partitions, 1, D2) for partitions in scale.scaling_partitions]
    found += [Workload(size, scale.partitions, 1, D2) for size in scale.scaling_sizes]
    found += [Workload(first, scale.partitions, producers, D2) for producers in scale.scaling_producers]
    yield from dict.fromkeys(found)


def rates_of(scale: CompareScale, saturation_per_s: float) -> dict[str, float]:
    """The rates at which latency is measured, by the name of the load.

    >>> rates_of(QUICK, 100_000)
    {'10pct': 10000.0, '50pct': 50000.0, '80pct': 80000.0, 'same-rate': 10000}
    >>> rates_of(QUICK, 10_000)
    {'10pct': 1000.0, '50pct': 5000.0, '80pct': 8000.0}
    """
    rates = {load: LOADS[load] * saturation_per_s for load in scale.loads if load in LOADS}
    if "same-rate" in scale.loads and saturation_per_s > 2 * SAME_RATE_PER_S:
        rates["same-rate"] = SAME_RATE_PER_S
    return rates


def records_for(rate_per_s: float, record_bytes: int, scale: CompareScale) -> int:
    """How many records a measurement sends to a system that takes so many in a second.

    >>> records_for(1e6, 100, QUICK), records_for(1e9, 100, QUICK), records_for(0.1, 100, QUICK)
    (1500000, 15728640, 100)
    """
    return max(min(int(rate_per_s * scale.seconds), scale.bytes_max // record_bytes), 100)


def first_records(workload: Workload, scale: CompareScale) -> int:
    """Fewer large ones: the first try of a slow, flushing system must not take minutes."""
    share = 1 if workload.durability is not D2 else 4
    return max(min(scale.records_first, scale.bytes_max // 16 // workload.record_bytes) // share, 100)
