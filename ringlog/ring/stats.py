"""The stats page: counters and latency histograms of every process, read by anyone without asking anyone.

Each process writes its own row and its own area of partitions, and nobody else's. Readers may see one counter a moment
older than another.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ringlog.ring.partition_rows import AREA_BYTES, HEAD_BYTES, PartitionArea, PartitionRows

COUNTERS = (
    "loops",
    "busy_us",
    "requests",
    "errors",
    "bytes_in",
    "near_bytes_in",
    "bytes_out",
    "near_bytes_out",
    "records_in",
    "batches_in",
    "fetches",
    "connections",
    "connections_max",
    "connections_refused",
    "sessions",
    "pending_requests",
    "pending_bytes",
    "refused",
    "partitions",
    "fenced",
    "holed_partitions",
    "memory_free_bytes",
    "disk_free_bytes",
    "disk_full",
    "cluster_nodes",
    "cluster_nodes_fenced",
    "offline_partitions",
    "under_replicated_partitions",
    "below_min_isr_partitions",
    "unclean_partitions",
    "unclean_elections",
    "active_controller",
    "no_controller_ms",
)
HISTOGRAMS = ("produce_us", "fetch_us", "append_us")
BUCKETS = 160
"""Four to a power of two, from 1 µs to more than an hour: each is 19 % wider than the one before."""
_BUCKET_STARTS = [2.0 ** (bucket / 4) for bucket in range(1, BUCKETS)]
"""Of all buckets but the first: to look a value up costs a third of a logarithm and its rounding."""

_ROW = np.dtype(
    [("shown_ms", "<u8")]
    + [(name, "<u8") for name in COUNTERS]
    + [(name, "<u8", (BUCKETS,)) for name in HISTOGRAMS]
)
"""`shown_ms`: when the process showed its counts last, by the host's monotonic clock; 0: not yet. It does so several
times a second, idle or not."""


def bucket_of(value_us: float) -> int:
    """The bucket that counts a value.

    >>> bucket_of(0.5), bucket_of(1), bucket_of(1000), bucket_of(1e12)
    (0, 0, 39, 159)
    """
    return bisect_right(_BUCKET_STARTS, value_us)


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

    def __init__(
        self, memory: memoryview, processes: int, reserve: Callable[[int, int], None] | None = None
    ) -> None:
        """`reserve` (position, bytes) makes sure that memory of the page is there; None: it is."""
        self.rows = np.frombuffer(memory, _ROW, processes)
        first = self.head_bytes(processes)
        starts = [first + process * AREA_BYTES for process in range(processes)]
        self.areas = [PartitionArea(memory[start : start + AREA_BYTES]) for start in starts]
        self._starts = starts
        self._reserve = reserve
        for process in range(processes):
            self.reserve(process, 0, HEAD_BYTES)

    @staticmethod
    def head_bytes(processes: int) -> int:
        """What is in use from the beginning."""
        return processes * _ROW.itemsize

    @staticmethod
    def bytes_needed(processes: int) -> int:
        return StatsPage.head_bytes(processes) + processes * AREA_BYTES

    def reserve(self, process: int, position: int, nbytes: int) -> None:
        """Have memory for a part of a process's area; OSError when there is none."""
        if self._reserve is not None:
            self._reserve(self._starts[process] + position, nbytes)

    def passes(self, first: int, count: int) -> list[int]:
        """How many passes the loops of processes have made, as they showed last."""
        found: list[int] = self.rows["loops"][first : first + count].tolist()
        return found

    def silent_ms(self, process: int) -> int:
        """For how long a process has shown nothing; 0 for one that has yet to begin."""
        shown_ms = int(self.rows["shown_ms"][process])
        return max(time.monotonic_ns() // 1_000_000 - shown_ms, 0) if shown_ms else 0

    def served(self) -> NDArray[np.void]:
        """The rows of all partitions that are served."""
        return np.concatenate([area.served() for area in self.areas])


class Stats:
    """The row of one process, for its writer: counted in plain numbers, and shown to readers at each `show`."""

    def __init__(self, page: StatsPage, process: int) -> None:
        self._row = page.rows[process : process + 1]
        self._row[:] = np.zeros(1, _ROW)
        self.counts: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self._histograms: dict[str, list[int]] = {name: [0] * BUCKETS for name in HISTOGRAMS}
        self.page = page
        self.process = process
        self.partitions = PartitionRows(page.areas[process], partial(page.reserve, process))
        self.moved = self.partitions.moved

    def observe(self, name: str, value_us: float, count: int = 1) -> None:
        """Count a latency."""
        self._histograms[name][bisect_right(_BUCKET_STARTS, value_us)] += count  # bucket_of, without a call

    def show_pass(self) -> None:
        """Copy the count of passes to the page: a sign of life."""
        self._row["loops"] = self.counts["loops"]

    def show(self) -> None:
        """Copy everything to the page."""
        self._row["shown_ms"] = time.monotonic_ns() // 1_000_000
        for name, value in self.counts.items():
            self._row[name] = value
        for name, buckets in self._histograms.items():
            self._row[name] = buckets
        self.partitions.show()


class LoopClock:
    """Counts the passes of a loop, and the time that it does not sleep.

    The end of a sleep is when the next pass begins, so a loop reads no clock for this but once before it sleeps."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._counts = stats.counts
        self._working_since_us: int | None = None

    def work(self, now_us: int) -> None:
        """A pass begins: that is shown at once, whatever it takes."""
        self._counts["loops"] += 1
        self._stats.show_pass()
        if self._working_since_us is not None:
            self._counts["busy_us"] += now_us - self._working_since_us
        self._working_since_us = now_us

    def rest(self, now_us: int) -> None:
        """The loop goes to sleep, until the next pass."""
        if self._working_since_us is not None:
            self._counts["busy_us"] += now_us - self._working_since_us
        self._working_since_us = None
