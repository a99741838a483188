"""Reads from the recent tail, each copied once into a buffer as the net process does, beside memcpy.

The copies alone go over as many bytes in steps of the same size, so caches help neither side more. Both are per
second of CPU time.
"""

from __future__ import annotations

import os

from perf.micro.acked import append, store_of_a_shard, wall_ms
from perf.micro.payload import group
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate, core_seconds
from perf.micro.scale import Bench
from ringlog.disk.choose import open_disk
from ringlog.disk.memory import aligned
from ringlog.limits import KIB, MIB
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.model import TopicPartition

READ_BYTES = 1 * MIB
BATCH_BYTES = 64 * KIB
NAME = TopicPartition("hot-read", 0)


def run(bench: Bench) -> Result:
    made = group(READ_BYTES, BATCH_BYTES, 1_000)
    reads = bench.scale.tail_bytes // READ_BYTES
    copy = aligned(READ_BYTES)
    region = aligned(reads * READ_BYTES)
    region[:] = os.urandom(READ_BYTES) * reads
    disk = open_disk()
    try:
        store = store_of_a_shard(disk, bench.directory)
        store.open(NAME, LogSettings(flush=FlushPolicy.parse("os")), now_ms=wall_ms())
        for _ in range(reads):
            append(store, NAME, made)
            store.run(now_ms=wall_ms(), wait_s=None)
        store.drain(now_ms=wall_ms())
        end = store.logs[NAME].next_offset

        def read_all() -> None:
            offset = 0
            while offset < end:
                slices = store.read_tail(NAME, offset, READ_BYTES)
                assert slices is not None, "the whole log is in memory"
                with slices:
                    at = 0
                    for view in slices.views:
                        copy[at : at + view.nbytes] = view
                        at += view.nbytes
                    offset = slices.next_offset

        def copy_all() -> None:
            for start in range(0, region.nbytes, READ_BYTES):
                copy[:] = region[start : start + READ_BYTES]

        samples, limits = alternate(
            lambda: reads * made.data.nbytes / core_seconds(read_all) / 1e9,
            lambda: region.nbytes / core_seconds(copy_all) / 1e9,
            bench.scale.rounds,
        )
        store.close(now_ms=wall_ms())
    finally:
        disk.shutdown()
    return result_of(
        "hot-read",
        "read the tail from memory, 1 MiB at a time, copied once",
        "GB/s",
        samples,
        "memcpy of 1 MiB",
        limits,
        Goal.share_of_limit(0.5),
    )
