"""Compaction of a log of 1 KB records, beside a raw copy of as many bytes.

The copy reads 1 MiB, writes 1 MiB, and flushes at the end. Compaction reads everything twice, hashes every key, writes
the half that is left, and swaps the files crash-safely.
"""

from __future__ import annotations

import os

from perf.micro.acked import wall_ms
from perf.micro.keyed import fill, remove, settings
from perf.micro.raw_disk import expect, random_block
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate, seconds
from perf.micro.scale import Bench
from perf.stats import median
from ringlog.disk.api import Disk
from ringlog.disk.choose import open_disk
from ringlog.disk.memory import aligned
from ringlog.limits import MIB
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition


def run(bench: Bench) -> Result:
    disk, raw_disk = open_disk(), open_disk()
    kept: list[float] = []
    rounds = 0
    try:
        store = LogStore(disk, f"{bench.directory}/log", compaction_bytes_per_s=None)
        copy_bytes = bench.scale.compacted_bytes // MIB * MIB
        _make_source(raw_disk, f"{bench.directory}/raw", copy_bytes)

        def limit() -> float:
            return copy_bytes / seconds(lambda: _copy(raw_disk, f"{bench.directory}/raw", copy_bytes)) / 1e9

        def ours() -> float:
            nonlocal rounds
            rounds += 1
            name = TopicPartition("compaction", rounds)
            nbytes = fill(store, name, bench.scale.compacted_bytes, seed=rounds)
            store.reconfigure(name, settings(compact=True), now_ms=wall_ms())
            rate = nbytes / seconds(lambda: _compact(store)) / 1e9
            kept.append(store.logs[name].log_bytes / nbytes)
            remove(store, name)
            return rate

        samples, limits = alternate(ours, limit, bench.scale.rounds)
        store.close(now_ms=wall_ms())
    finally:
        disk.shutdown()
        raw_disk.shutdown()
    return result_of(
        "compaction",
        "compaction of 1 KB records, half of them superseded",
        "GB/s",
        samples,
        "raw copy, 1 MiB direct reads and writes",
        limits,
        Goal.share_of_limit(0.3),
        {"bytes_kept_share": median(kept)},
    )


def _compact(store: LogStore) -> None:
    """One pass, from the decision to begin until the state says that it is over."""
    passes = store.upkeep.passes
    store.upkeep.check_now()
    while store.upkeep.passes == passes:
        store.run(now_ms=wall_ms(), wait_s=0.01)


def _make_source(disk: Disk, path: str, nbytes: int) -> None:
    block = random_block(MIB)
    file = disk.open(path, write=True, create=True, direct=True)
    for position in range(0, nbytes, MIB):
        expect(disk.wait(disk.write(file, [block], position, durable=False)), MIB)
    expect(disk.wait(disk.flush(file)), 0)
    disk.close(file)


def _copy(disk: Disk, path: str, nbytes: int) -> None:
    block = aligned(MIB)
    source = disk.open(path, direct=True)
    copy = disk.open(path + ".copy", write=True, create=True, direct=True)
    for position in range(0, nbytes, MIB):
        expect(disk.wait(disk.read(source, block, position)), MIB)
        expect(disk.wait(disk.write(copy, [block], position, durable=False)), MIB)
    expect(disk.wait(disk.flush(copy)), 0)
    disk.close(source)
    disk.close(copy)
    os.unlink(path + ".copy")
