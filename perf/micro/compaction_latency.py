"""Latency of durable appends while another log of the same shard is compacted, beside the same without.

Appends of 16 KB are due every millisecond, whether the last one is acknowledged or not; the time counts from when
one is due. Compaction runs with the budget that a node gives it.
"""

from __future__ import annotations

import time

from perf.micro.acked import store_of_a_shard, wall_ms
from perf.micro.keyed import fill, remove, settings
from perf.micro.payload import group
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate
from perf.micro.scale import Bench
from perf.stats import median, percentile
from ringlog.disk.choose import open_disk
from ringlog.limits import KIB
from ringlog.log.events import Progress
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition

NAME = TopicPartition("paced", 0)
APPEND_BYTES = 16 * KIB
EVERY_S = 0.001


def run(bench: Bench) -> Result:
    disk = open_disk()
    alone: list[float] = []
    beside: list[float] = []
    rounds = 0
    try:
        store = store_of_a_shard(disk, f"{bench.directory}/log")
        store.open(NAME, now_ms=wall_ms())

        def without() -> float:
            alone.append(percentile(_latencies_ms(store, bench.scale.paced_appends), 99))
            return 1.0

        def ours() -> float:
            nonlocal rounds
            rounds += 1
            name = TopicPartition("compaction", rounds)
            fill(store, name, bench.scale.compacted_bytes, seed=rounds)
            store.reconfigure(name, settings(compact=True), now_ms=wall_ms())
            store.upkeep.check_now()
            beside.append(percentile(_latencies_ms(store, bench.scale.paced_appends), 99))
            remove(store, name)
            return beside[-1] / alone[-1]

        samples, limits = alternate(ours, without, bench.scale.rounds)
        store.close(now_ms=wall_ms())
    finally:
        disk.shutdown()
    return result_of(
        "compaction-p99",
        "p99 of durable appends during compaction, against without",
        "×",
        samples,
        "the same without compaction",
        limits,
        Goal.at_most(1.5, "×"),
        {"p99_without_ms": median(alone[1:]), "p99_during_ms": median(beside[1:])},
    )


def _latencies_ms(store: LogStore, count: int) -> list[float]:
    made = group(APPEND_BYTES, APPEND_BYTES, 1_000)
    due: dict[int, float] = {}
    latencies: list[float] = []
    began, sent = time.perf_counter(), 0
    while len(latencies) < count:
        now = time.perf_counter()
        while sent < count and began + sent * EVERY_S <= now:
            appended = store.append(NAME, made.data, made.batches, now_ms=wall_ms())
            due[appended.last_offset + 1] = began + sent * EVERY_S
            sent += 1
        wait_s = max(began + sent * EVERY_S - time.perf_counter(), 0.0) if sent < count else 0.01
        for event in store.run(now_ms=wall_ms(), wait_s=wait_s):
            if isinstance(event, Progress) and event.log.name == NAME:
                now = time.perf_counter()
                done = [offset for offset in due if offset <= event.offset]
                latencies += [(now - due.pop(offset)) * 1000 for offset in done]
    return latencies
