"""The bound that a machine's limits set to a workload. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from perf.compare.model import Durability, Workload


def bound_records_per_s(limits: Mapping[str, float], workload: Workload, operation: str) -> float:
    """What no system can exceed here: the slowest of what every record must pass.

    Reading back passes the wire alone, since what was just written is still in memory.

    >>> limits = {"tcp_64k_gb_per_s": 2, "tcp_1m_gb_per_s": 3, "disk_direct_gb_per_s": 1, "durable_batch_gb_per_s": 0.5}
    >>> flushed = Workload(1_000, 16, 1, Durability.D2)
    >>> bound_records_per_s(limits, flushed, "produce"), bound_records_per_s(limits, flushed, "consume")
    (500000.0, 3000000.0)
    """
    passed = [max(limits["tcp_64k_gb_per_s"], limits["tcp_1m_gb_per_s"])]
    # What is written but not flushed ends in the page cache: the disk follows later.
    if operation == "produce" and workload.durability is Durability.D2:
        passed += [limits["disk_direct_gb_per_s"], limits["durable_batch_gb_per_s"]]
    return min(passed) * 1e9 / workload.record_bytes
