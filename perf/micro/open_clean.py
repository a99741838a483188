"""Opening cleanly closed partitions, beside listing their directories and reading their state files.

The page cache is warm for both: what is measured is the work, not the first touch of the disk.
"""

from __future__ import annotations

import os

from perf.micro.acked import append, wall_ms
from perf.micro.payload import group
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate, seconds
from perf.micro.scale import Bench
from ringlog.disk.choose import open_disk
from ringlog.limits import KIB
from ringlog.log.names import STATE_NAME, partition_dir
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition

BATCH_BYTES = 4 * KIB
BATCHES = 4
SETTINGS = LogSettings(flush=FlushPolicy.parse("os"))


def run(bench: Bench) -> Result:
    made = group(BATCHES * BATCH_BYTES, BATCH_BYTES, 100)
    names = [TopicPartition("open-clean", number) for number in range(bench.scale.clean_partitions)]
    paths = [partition_dir(bench.directory, name) for name in names]
    disk = open_disk()
    try:
        store = LogStore(disk, bench.directory)
        for name in names:
            store.open(name, SETTINGS, now_ms=wall_ms())
            append(store, name, made)
        store.close(now_ms=wall_ms())

        def ours() -> float:
            opened = LogStore(disk, bench.directory)
            taken_s = seconds(lambda: open_all(opened))
            assert all(report.clean for report in opened.reports.values()), "a partition was not clean"
            opened.close(now_ms=wall_ms())
            return taken_s

        def open_all(opened: LogStore) -> None:
            for name in names:
                opened.open(name, SETTINGS, now_ms=wall_ms())

        def limit() -> None:
            for path in paths:
                with os.scandir(path) as entries:
                    for entry in entries:
                        entry.stat()
                with open(f"{path}/{STATE_NAME}", "rb") as state:
                    state.read()

        samples, limits = alternate(ours, lambda: seconds(limit), bench.scale.rounds)
    finally:
        disk.shutdown()
    return result_of(
        "open-clean",
        f"open {len(names):,} cleanly closed partitions",
        "s",
        samples,
        "list each directory, read each state file",
        limits,
        Goal.at_most(1, "s"),
        {"us_per_partition": 1e6 * samples[-1] / len(names)},
    )
