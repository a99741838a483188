"""A writer with busy partitions is killed; how long until a new owner has acknowledged an append to each.

Beside it stands the time of raw direct reads of the bytes that recovery had to scan.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from perf.micro.acked import append, run_until, wall_ms
from perf.micro.crash_writer import BATCH_BYTES, names
from perf.micro.payload import group
from perf.micro.raw_disk import random_block, read_ahead
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import seconds
from perf.micro.scale import Bench
from ringlog.disk.choose import open_disk
from ringlog.limits import MIB
from ringlog.log.names import LOG, partition_dir
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition

READ_BYTES = 2 * MIB
CRASHES_MAX = 3


def run(bench: Bench) -> Result:
    crashes = min(bench.scale.rounds, CRASHES_MAX)
    outcomes = [_crash(f"{bench.directory}/{number}", bench) for number in range(crashes)]
    return result_of(
        "crash",
        f"writable again after kill -9, {bench.scale.crash_partitions} busy partitions",
        "s",
        [writable_s for writable_s, _, _ in outcomes],
        "O_DIRECT reads of the bytes scanned",
        [read_s for _, read_s, _ in outcomes],
        Goal.at_most(3, "s"),
        {"scanned_mib": max(scanned for _, _, scanned in outcomes) / MIB},
    )


def _crash(directory: str, bench: Bench) -> tuple[float, float, int]:
    """Seconds until writable, seconds of the raw reads, and bytes scanned."""
    os.mkdir(directory)
    partitions = names(bench.scale.crash_partitions)
    arguments = [directory, str(len(partitions)), str(bench.scale.crash_bytes)]
    writer = subprocess.Popen(
        [sys.executable, "-m", "perf.micro.crash_writer", *arguments], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    told = writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    if not told:
        raise RuntimeError("the writer ended before it was killed")
    made = group(BATCH_BYTES, BATCH_BYTES, 1_000)
    disk = open_disk()
    try:
        store = LogStore(disk, directory)

        def make_writable() -> None:
            for name in partitions:
                store.open(name, now_ms=wall_ms())
            run_until(store, {name: append(store, name, made) for name in partitions})

        writable_s = seconds(make_writable)
        scanned = sum(report.scanned_bytes for report in store.reports.values())
        if any(report.clean for report in store.reports.values()):
            raise RuntimeError("a partition of a killed writer was found clean")
        store.close(now_ms=wall_ms())
        return writable_s, _read_seconds(directory, partitions, scanned), scanned
    finally:
        disk.shutdown()


def _read_seconds(directory: str, partitions: list[TopicPartition], nbytes: int) -> float:
    """Raw reads of so many bytes, an equal part from the first segment of each partition."""
    disk = open_disk()
    try:
        windows = [random_block(READ_BYTES) for _ in range(2)]
        files = []
        for name in partitions:
            path = partition_dir(directory, name)
            segment = min(entry for entry in os.listdir(path) if entry.endswith(LOG))
            files.append(disk.open(f"{path}/{segment}", direct=True))

        def read_all() -> None:
            for file in files:
                read_ahead(disk, file, windows, max(nbytes // len(files), 1))

        return seconds(read_all)
    finally:
        disk.shutdown()
