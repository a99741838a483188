"""Durable appends of 1 MiB groups to one partition, beside a raw loop of durable direct writes of that size.

Both have one write on the device at a time. Ours takes the next group in while the last one is written, as a
shard does, and pays for the checkpoints that the bytes make due. The raw loop runs once by system calls and once
through the disk engine; the faster one is the limit.
"""

from __future__ import annotations

from perf.micro.acked import append, run_until, store_of_a_shard, wall_ms
from perf.micro.payload import group
from perf.micro.raw_disk import make_reserved, random_block, write_by_engine, write_by_system_calls
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate, seconds
from perf.micro.scale import Bench
from perf.stats import median
from ringlog.disk.choose import open_disk
from ringlog.limits import KIB, MIB
from ringlog.model import TopicPartition

GROUP_BYTES = 1 * MIB
BATCH_BYTES = 64 * KIB
NAME = TopicPartition("append-one", 0)


def run(bench: Bench) -> Result:
    made = group(GROUP_BYTES, BATCH_BYTES, 1_000)
    groups = bench.scale.append_bytes // GROUP_BYTES
    disk, raw_disk = open_disk(), open_disk()
    try:
        store = store_of_a_shard(disk, f"{bench.directory}/log")
        store.open(NAME, now_ms=wall_ms())
        raw_bytes = groups * GROUP_BYTES // 2
        block = random_block(GROUP_BYTES)
        path = f"{bench.directory}/raw"
        by_calls: list[float] = []
        by_engine: list[float] = []
        position = 0
        file = make_reserved(raw_disk, path, 2 * raw_bytes * (bench.scale.rounds + 1))

        def limit() -> float:
            nonlocal position
            start, middle, stop = position, position + raw_bytes, position + 2 * raw_bytes
            position = stop
            calls_s = seconds(lambda: write_by_system_calls(path, block, start, middle))
            engine_s = seconds(lambda: write_by_engine(raw_disk, file, block, middle, stop))
            by_calls.append(raw_bytes / calls_s / 1e9)
            by_engine.append(raw_bytes / engine_s / 1e9)
            return max(by_calls[-1], by_engine[-1])

        def ours() -> float:
            return groups * made.data.nbytes / seconds(append_all) / 1e9

        def append_all() -> None:
            acked = append(store, NAME, made)
            store.run(now_ms=wall_ms())
            for _ in range(groups - 1):
                following = append(store, NAME, made)
                store.run(now_ms=wall_ms())  # two that went in one write leave the disk idle until this one
                run_until(store, {NAME: acked})
                acked = following
            run_until(store, {NAME: acked})
            store.drain(now_ms=wall_ms())

        samples, limits = alternate(ours, limit, bench.scale.rounds)
        store.close(now_ms=wall_ms())
    finally:
        disk.shutdown()
        raw_disk.shutdown()
    return result_of(
        "append-one",
        "durable append, one partition, 1 MiB groups",
        "GB/s",
        samples,
        "durable O_DIRECT writes of 1 MiB",
        limits,
        Goal.share_of_limit(0.7),
        {
            "limit_by_system_calls_gb_per_s": median(by_calls[1:]),
            f"limit_by_{disk.name}_gb_per_s": median(by_engine[1:]),
            "group_ms": made.data.nbytes / median(samples) / 1e6,
        },
    )
