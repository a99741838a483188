"""Durable appends to many partitions, 64 KiB each per cycle, beside a raw loop that submits the same writes.

Both submit a cycle as a whole. Ours takes the next cycle in while the last one is written, as a shard does, and pays
for the checkpoints that the bytes make due.
"""

from __future__ import annotations

from perf.micro.acked import append, run_until, store_of_a_shard, wall_ms
from perf.micro.payload import group
from perf.micro.raw_disk import make_reserved, random_block, write_everywhere
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate, seconds
from perf.micro.scale import Bench
from perf.stats import median
from ringlog.disk.choose import open_disk
from ringlog.limits import KIB
from ringlog.model import TopicPartition

WRITE_BYTES = 64 * KIB
BATCH_BYTES = 64 * KIB


def run(bench: Bench) -> Result:
    made = group(WRITE_BYTES, BATCH_BYTES, 1_000)
    cycles = bench.scale.cycles
    names = [TopicPartition("append-many", number) for number in range(bench.scale.partitions)]
    disk, raw_disk = open_disk(), open_disk()
    try:
        store = store_of_a_shard(disk, f"{bench.directory}/log")
        for name in names:
            store.open(name, now_ms=wall_ms())
        block = random_block(WRITE_BYTES)
        raw_bytes = cycles * WRITE_BYTES
        position = 0
        files = [
            make_reserved(
                raw_disk, f"{bench.directory}/raw-{name.partition}", raw_bytes * (bench.scale.rounds + 1)
            )
            for name in names
        ]

        def limit() -> float:
            nonlocal position
            start, position = position, position + raw_bytes
            return len(names) * raw_bytes / seconds(lambda: write_all(start, start + raw_bytes)) / 1e9

        def write_all(start: int, stop: int) -> None:
            for at in range(start, stop, WRITE_BYTES):
                write_everywhere(raw_disk, files, block, at)

        def ours() -> float:
            return len(names) * cycles * made.data.nbytes / seconds(append_all) / 1e9

        def append_all() -> None:
            acked = {name: append(store, name, made) for name in names}
            store.run(now_ms=wall_ms())
            for _ in range(cycles - 1):
                following = {name: append(store, name, made) for name in names}
                run_until(store, acked)
                acked = following
            run_until(store, acked)
            store.drain(now_ms=wall_ms())

        samples, limits = alternate(ours, limit, bench.scale.rounds)
        store.close(now_ms=wall_ms())
    finally:
        disk.shutdown()
        raw_disk.shutdown()
    return result_of(
        "append-many",
        f"durable append, {len(names)} partitions, 64 KiB each per cycle",
        "GB/s",
        samples,
        "the same writes, submitted raw",
        limits,
        Goal.share_of_limit(0.7),
        {"cycle_ms": len(names) * made.data.nbytes / median(samples) / 1e6},
    )
