"""The stats page: counters and latency histograms of every process, read by anyone without asking anyone.

Each process writes its own row and nobody else's. Readers may see one counter a moment older than another.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ringlog.limits import PARTITIONS_MAX

COUNTERS = (
    "loops",
    "busy_us",
    "requests",
    "errors",
    "bytes_in",
    "bytes_out",
    "records_in",
    "batches_in",
    "fetches",
    "connections",
    "sessions",
    "pending_requests",
    "pending_bytes",
    "refused",
    "partitions",
    "fenced",
    "memory_free_bytes",
    "disk_free_bytes",
    "disk_full",
)
HISTOGRAMS = ("produce_us", "fetch_us", "append_us")
BUCKETS = 160
"""Four to a power of two, from 1 µs to more than an hour: each is 19 % wider than the one before."""

_ROW = np.dtype([(name, "<u8") for name in COUNTERS] + [(name, "<u8", (BUCKETS,)) for name in HISTOGRAMS])
_PARTITION = np.dtype(
    [
        ("partition", "<u4"),
        ("shard", "<u4"),
        ("bytes_in", "<u8"),
        ("records_in", "<u8"),
        ("bytes_out", "<u8"),
    ]
)


def bucket_of(value_us: float) -> int:
    """The bucket that counts a value.

    >>> bucket_of(0.5), bucket_of(1), bucket_of(1000), bucket_of(1e12)
    (0, 0, 39, 159)
    """
    if value_us <= 1:
        return 0
    return min(int(4 * math.log2(value_us)), BUCKETS - 1)


def bucket_top(bucket: int) -> float:
    """The largest value that a bucket counts, in µs."""
    return float(2.0 ** ((bucket + 1) / 4))


def quantile(counts: NDArray[np.uint64], q: float) -> float | None:
    """The value in µs that a share `q` of all lies below; None when there is none.

    >>> counts = np.zeros(BUCKETS, np.uint64); counts[bucket_of(100)] = 10
    >>> round(quantile(counts, 0.5))
    108
    """
    total = int(counts.sum())
    if total == 0:
        return None
    at = int(np.searchsorted(np.cumsum(counts), max(1, np.ceil(q * total))))
    return bucket_top(min(at, BUCKETS - 1))


class StatsPage:
    """A view of the page of a node with `processes` processes."""

    def __init__(self, memory: memoryview, processes: int) -> None:
        self.rows = np.frombuffer(memory, _ROW, processes)
        self.partitions = np.frombuffer(memory, _PARTITION, PARTITIONS_MAX, processes * _ROW.itemsize)
        """Row `partition % PARTITIONS_MAX` belongs to that partition while its shard says so."""

    @staticmethod
    def bytes_needed(processes: int) -> int:
        return processes * _ROW.itemsize + PARTITIONS_MAX * _PARTITION.itemsize


class Stats:
    """The row of one process, for its writer: counted in plain numbers, and shown to readers at each `show`."""

    def __init__(self, page: StatsPage, process: int) -> None:
        self._row = page.rows[process : process + 1]
        self._row[:] = np.zeros(1, _ROW)
        self.counts: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self._histograms: dict[str, list[int]] = {name: [0] * BUCKETS for name in HISTOGRAMS}
        self._page = page
        self._partitions: dict[int, list[int]] = {}
        self._touched: set[int] = set()

    def observe(self, name: str, value_us: float, count: int = 1) -> None:
        """Count a latency."""
        self._histograms[name][bucket_of(value_us)] += count

    def host(self, partition: int, shard: int) -> None:
        """Begin the row of a partition that this process serves."""
        row = self._page.partitions[partition % PARTITIONS_MAX : partition % PARTITIONS_MAX + 1]
        row[:] = np.zeros(1, _PARTITION)
        row["partition"], row["shard"] = partition, shard
        self._partitions[partition] = [0, 0, 0]

    def leave(self, partition: int) -> None:
        """Forget a partition."""
        self._partitions.pop(partition, None)
        self._touched.discard(partition)
        self._page.partitions[partition % PARTITIONS_MAX] = np.zeros(1, _PARTITION)[0]

    def moved(self, partition: int, *, bytes_in: int = 0, records_in: int = 0, bytes_out: int = 0) -> None:
        """Count what went in and out of a partition."""
        sums = self._partitions.get(partition)
        if sums is not None:
            sums[0] += bytes_in
            sums[1] += records_in
            sums[2] += bytes_out
            self._touched.add(partition)

    def show(self) -> None:
        """Copy everything to the page."""
        for name, value in self.counts.items():
            self._row[name] = value
        for name, buckets in self._histograms.items():
            self._row[name] = buckets
        for partition in self._touched:
            row = self._page.partitions[partition % PARTITIONS_MAX : partition % PARTITIONS_MAX + 1]
            row["bytes_in"], row["records_in"], row["bytes_out"] = self._partitions[partition]
        self._touched.clear()


class LoopClock:
    """Counts the passes of a loop, and the time that it does not sleep.

    The end of a sleep is when the next pass begins, so a loop reads no clock for this but once before it sleeps."""

    def __init__(self, stats: Stats) -> None:
        self._counts = stats.counts
        self._working_since_us: int | None = None

    def work(self, now_us: int) -> None:
        """A pass begins."""
        self._counts["loops"] += 1
        if self._working_since_us is not None:
            self._counts["busy_us"] += now_us - self._working_since_us
        self._working_since_us = now_us

    def rest(self, now_us: int) -> None:
        """The loop goes to sleep, until the next pass."""
        if self._working_since_us is not None:
            self._counts["busy_us"] += now_us - self._working_since_us
        self._working_since_us = None
