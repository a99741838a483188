"""The words of a comparison: workloads, what was measured of them, and names for both."""

from __future__ import annotations

from enum import Enum

import msgspec


class Durability(Enum):
    """When a record is acknowledged."""

    D0 = "D0"
    """Never."""
    D1 = "D1"
    """After the write: it survives the death of the process."""
    D2 = "D2"
    """After the flush: it survives the loss of power."""


class Workload(msgspec.Struct, frozen=True):
    """One combination of the axes.

    >>> Workload(1_000, 16, 2, Durability.D2).name
    '1KB.p16.x2.D2'
    """

    record_bytes: int
    partitions: int
    producers: int
    durability: Durability

    @property
    def name(self) -> str:
        return f"{size_name(self.record_bytes)}.p{self.partitions}.x{self.producers}.{self.durability.value}"


class Throughput(msgspec.Struct, frozen=True):
    """One round of one system at saturation: records produced, or read back."""

    round: int
    system: str
    workload: Workload
    operation: str
    """`produce` or `consume`."""
    records: int
    records_per_s: float
    broker_cpu_s: float
    client_cpu_s: float
    broker_rss_bytes: int
    delivered_share: float = 1.0
    """Below 1 only where nobody acknowledges; the rate counts what arrived."""

    @property
    def key(self) -> str:
        return f"{self.operation}.{self.system}.{self.workload.name}"

    @property
    def mb_per_s(self) -> float:
        return self.records_per_s * self.workload.record_bytes / 1e6

    @property
    def cpu_s_per_gb(self) -> float:
        return (self.broker_cpu_s + self.client_cpu_s) / (self.records * self.workload.record_bytes / 1e9)


class Latency(msgspec.Struct, frozen=True):
    """One round of one system under a load that does not wait for it: from the moment that a record was due to be
    sent until a consumer had it."""

    round: int
    system: str
    workload: Workload
    load: str
    """`10pct` of the system's own saturation, or `same-rate` for all systems."""
    records_per_s: float
    achieved_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float

    @property
    def key(self) -> str:
        return f"latency.{self.system}.{self.workload.name}.{self.load}"


class Samples(msgspec.Struct):
    """All that a comparison has measured so far."""

    throughput: list[Throughput] = []
    latency: list[Latency] = []
    limits: list[dict[str, float]] = []
    """One measurement of all limits for each round."""
    skipped: dict[str, str] = {}
    """Peers and workloads that could not be had, with the reason."""

    @property
    def next_round(self) -> int:
        """Rounds of several runs are numbered on, so that ratios pair only what was measured side by side."""
        seen = [sample.round for sample in self.throughput] + [sample.round for sample in self.latency]
        return max(seen, default=-1) + 1


def size_name(record_bytes: int) -> str:
    """
    >>> size_name(100), size_name(1_000), size_name(16_384), size_name(1_000_000)
    ('100B', '1KB', '16KiB', '1MB')
    """
    for unit, many in (("MB", 1_000_000), ("KiB", 1_024), ("KB", 1_000)):
        if record_bytes % many == 0:
            return f"{record_bytes // many}{unit}"
    return f"{record_bytes}B"
