"""The scan of a log after a crash, beside raw direct reads of the same file.

The partition's state is taken away before each opening, so that recovery scans from the first byte on.
"""

from __future__ import annotations

import os

from perf.micro.acked import append, wall_ms
from perf.micro.payload import group
from perf.micro.raw_disk import random_block, read_ahead
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate, seconds
from perf.micro.scale import Bench
from ringlog.disk.choose import open_disk
from ringlog.limits import KIB, MIB
from ringlog.log.names import LOG, STATE_NAME, offset_name, partition_dir
from ringlog.log.settings import LogSettings
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition

GROUP_BYTES = 1 * MIB
BATCH_BYTES = 64 * KIB
READ_BYTES = 2 * MIB
READS_IN_FLIGHT = 2
NAME = TopicPartition("recovery-scan", 0)
SETTINGS = LogSettings()


def run(bench: Bench) -> Result:
    made = group(GROUP_BYTES, BATCH_BYTES, 1_000)
    path = partition_dir(bench.directory, NAME)
    disk = open_disk()
    try:
        store = LogStore(disk, bench.directory)
        store.open(NAME, SETTINGS, now_ms=wall_ms())
        for _ in range(max(bench.scale.scan_bytes // made.data.nbytes, 1)):
            append(store, NAME, made)
            store.run(now_ms=wall_ms(), wait_s=None)
        store.close(now_ms=wall_ms())
        log_path = f"{path}/{offset_name(0, LOG)}"
        log_bytes = os.path.getsize(log_path)
        file = disk.open(log_path, direct=True)
        windows = [random_block(READ_BYTES) for _ in range(READS_IN_FLIGHT)]

        def ours() -> float:
            os.remove(f"{path}/{STATE_NAME}")
            opened = LogStore(disk, bench.directory)
            taken_s = seconds(lambda: opened.open(NAME, SETTINGS, now_ms=wall_ms()))
            scanned = opened.reports[NAME].scanned_bytes
            assert scanned == log_bytes, f"{scanned} of {log_bytes} bytes were scanned"
            opened.close(now_ms=wall_ms())
            return scanned / taken_s / 1e9

        def limit() -> float:
            return log_bytes / seconds(lambda: read_ahead(disk, file, windows, log_bytes)) / 1e9

        samples, limits = alternate(ours, limit, bench.scale.rounds)
        disk.close(file)
    finally:
        disk.shutdown()
    return result_of(
        "recovery-scan",
        "open after a crash: scan and check the log, 1 KB records",
        "GB/s",
        samples,
        "O_DIRECT reads of the same file",
        limits,
        Goal.at_least(1, "GB/s"),
    )
