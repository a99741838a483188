"""The figures that a node is held to: rates through the client, with every record flushed before its ack."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate
from perf.node import groups
from perf.node.setting import NodeBench, chunk_of, send_all
from perf.stats import median
from ringlog.client.consumer import Consumer
from ringlog.client.producer import Producer
from ringlog.client.settings import ProducerSettings

PARTITIONS = 16
FETCHED_FRAME_BYTES = 256 * 1024
PRODUCED_FRAME_BYTES = ProducerSettings().batch_size
LARGE_ROUNDS = 4
"""As much is sent in a round as is read in so many: a round of a third of a second is mostly its beginning, its end,
and what the file system still does for the raw writes before it."""
_PRODUCED_LIMIT = f"raw ZeroMQ, tcp loopback, {PRODUCED_FRAME_BYTES >> 10} KiB frames"


def produce_small(bench: NodeBench) -> Result:
    """100 B records by produce_many."""
    topic, chunk = bench.topic(PARTITIONS), chunk_of(100)
    with Producer(bootstrap=bench.node.bootstrap) as producer:
        samples, limits = alternate(
            lambda: (
                bench.scale.small_records / send_all(producer, topic, chunk, bench.scale.small_records) / 1e6
            ),
            lambda: bench.raw_loopback(PRODUCED_FRAME_BYTES) * 1e3 / 107,
            bench.scale.rounds,
        )
    bench.drop(topic)
    return result_of(
        "produce-100",
        "produce_many of 100 B, acks=all flushed, 1 producer, 16 partitions",
        "M rec/s",
        samples,
        _PRODUCED_LIMIT,
        limits,
        Goal.at_least(3, "M rec/s"),
        {"mb_per_s": median(samples) * 100},
    )


def produce_large(bench: NodeBench) -> list[Result]:
    """1 KB records by produce_many, beside bare ZeroMQ with frames as large as ours."""
    topic, chunk = bench.topic(PARTITIONS), chunk_of(1000)
    records = LARGE_ROUNDS * bench.scale.large_records
    disk: list[float] = []

    def raw() -> float:
        disk.append(bench.raw_durable_gb_per_s(PARTITIONS, PRODUCED_FRAME_BYTES))
        return bench.raw_loopback(PRODUCED_FRAME_BYTES)

    with Producer(bootstrap=bench.node.bootstrap) as producer:
        samples, limits = alternate(
            lambda: records * 1e-6 / send_all(producer, topic, chunk, records), raw, bench.scale.rounds
        )
    bench.drop(topic)
    what = "produce_many of 1 KB, acks=all flushed, 1 producer, 16 partitions"
    limit = _PRODUCED_LIMIT
    notes = {
        "raw_ipc_gb_per_s": bench.raw_loopback(PRODUCED_FRAME_BYTES, "ipc"),
        "raw_durable_gb_per_s": median(disk[1:]),
    }
    return [
        result_of("produce-1k", what, "GB/s", samples, limit, limits, Goal.share_of_limit(0.45), notes),
        result_of("produce-1k-rate", what, "GB/s", samples, limit, limits, Goal.at_least(0.4, "GB/s")),
    ]


def produce_single(bench: NodeBench) -> Result:
    """One produce() call per record, with its future."""
    topic = bench.topic(PARTITIONS)
    records = bench.scale.single_records
    value = b"x" * 100
    with Producer(bootstrap=bench.node.bootstrap, linger_ms=5) as producer:

        def ours() -> float:
            produce = producer.produce
            began = time.perf_counter()
            for _ in range(records):
                produce(topic, value)
            producer.flush(60)
            return records / (time.perf_counter() - began) / 1e6

        samples, limits = alternate(ours, lambda: _bare_calls(records), bench.scale.rounds)
    bench.drop(topic)
    return result_of(
        "produce-single",
        "produce() one record at a time, 100 B, linger 5 ms, acks=all flushed",
        "M rec/s",
        samples,
        "as many calls of an empty Python function with one object each",
        limits,
        Goal.at_least(0.4, "M rec/s"),
    )


def _bare_calls(count: int) -> float:
    def produce(topic: str, value: bytes) -> tuple[str, bytes]:
        return (topic, value)

    began = time.perf_counter()
    for _ in range(count):
        produce("t", b"x")
    return count / (time.perf_counter() - began) / 1e6


def consume(bench: NodeBench) -> list[Result]:
    """Read back what was produced, by Arrow batches, by records, and in large records."""
    small, large = bench.topic(PARTITIONS), bench.topic(PARTITIONS)
    scale = bench.scale
    with Producer(bootstrap=bench.node.bootstrap) as producer:
        send_all(producer, small, chunk_of(100), scale.small_records)
        send_all(producer, large, chunk_of(1000), scale.large_records)
    results = [
        _consume_row(
            bench, small, scale.small_records, _poll_arrow, "consume-arrow", "poll_arrow of 100 B", 107,
            Goal.at_least(5, "M rec/s"), "M rec/s",
        ),
        _consume_row(
            bench, small, scale.small_records, _poll, "consume-poll", "poll() of 100 B", 107,
            Goal.at_least(1, "M rec/s"), "M rec/s",
        ),
        _consume_row(
            bench, large, scale.large_records, _poll_arrow, "consume-1k", "poll_arrow of 1 KB", 1008,
            Goal.share_of_limit(0.6), "GB/s",
        ),
    ]  # fmt: skip
    bench.drop(small)
    bench.drop(large)
    return results


def _consume_row(
    bench: NodeBench,
    topic: str,
    records: int,
    poll: Callable[[Consumer], int],
    name: str,
    what: str,
    record_bytes: int,
    goal: Goal,
    unit: str,
) -> Result:
    per_record = 1e-6 if unit == "M rec/s" else record_bytes / 1e9
    with Consumer(bootstrap=bench.node.bootstrap, auto_offset_reset="earliest") as consumer:
        places = [(topic, partition) for partition in range(PARTITIONS)]
        consumer.assign(places)

        def ours() -> float:
            consumer.seek_to_beginning(*places)
            began, read = time.perf_counter(), 0
            while read < records:
                read += poll(consumer)
            return records * per_record / (time.perf_counter() - began)

        samples, limits = alternate(
            ours,
            lambda: bench.raw_loopback(FETCHED_FRAME_BYTES) * 1e9 / record_bytes * per_record,
            bench.scale.rounds,
        )
    limit = "raw ZeroMQ, tcp loopback, 256 KiB frames"
    return result_of(name, what, unit, samples, limit, limits, goal)


def _poll_arrow(consumer: Consumer) -> int:
    batch = consumer.poll_arrow(timeout_ms=1000)
    return 0 if batch is None else int(batch.num_rows)


def _poll(consumer: Consumer) -> int:
    return len(consumer.poll(timeout_ms=1000, max_records=50_000))


def latency(bench: NodeBench) -> list[Result]:
    """From produce() until the consumer has the record, one at a time, beside a bare durable write."""
    topic = bench.topic(1)
    p50s: list[float] = []
    p99s: list[float] = []
    with (
        Producer(bootstrap=bench.node.bootstrap) as producer,
        Consumer(bootstrap=bench.node.bootstrap) as consumer,
    ):
        consumer.assign([(topic, 0, 0)])

        def ours() -> float:
            waits = []
            for _ in range(bench.scale.latency_records):
                began = time.perf_counter()
                producer.produce(topic, b"x" * 100, partition=0)
                while not consumer.poll(timeout_ms=1000):
                    continue
                waits.append(time.perf_counter() - began)
            p50s.append(float(np.percentile(waits, 50)) * 1e3)
            p99s.append(float(np.percentile(waits, 99)) * 1e3)
            return p50s[-1]

        samples, limits = alternate(ours, bench.raw_durable_ms, bench.scale.rounds)
    bench.drop(topic)
    what = "produce → consume of one record at a time, flushed"
    limit = "one durable direct write of 4 KiB, median"
    return [
        result_of(
            "latency-p50", what, "ms", samples, limit, limits, Goal.at_most(5 * median(limits), "ms (5 × limit)")
        ),
        result_of("latency-p99", f"{what}: p99", "ms", p99s[1:], limit, limits, Goal.at_most(5, "ms")),
    ]  # fmt: skip


def many_partitions(bench: NodeBench) -> Result:
    """The same load over a thousand partitions and over sixteen, in turns, when each has been written to before: what a
    partition's first batch costs more (files, space) is a note."""
    few, many = bench.topic(PARTITIONS), bench.topic(bench.scale.many_partitions)
    chunk, records = chunk_of(100), bench.scale.small_records
    once_each = bench.scale.many_partitions * PRODUCED_FRAME_BYTES // 100
    with Producer(bootstrap=bench.node.bootstrap) as producer:
        first_touch = once_each / send_all(producer, many, chunk, once_each) / 1e6
        samples, limits = alternate(
            lambda: records / send_all(producer, many, chunk, records) / 1e6,
            lambda: records / send_all(producer, few, chunk, records) / 1e6,
            bench.scale.rounds,
        )
    bench.drop(few)
    bench.drop(many)
    return result_of(
        "partitions-1000",
        f"produce_many of 100 B over {bench.scale.many_partitions} partitions",
        "M rec/s",
        samples,
        "the same over 16 partitions",
        limits,
        Goal.share_of_limit(0.7),
        {"first_batches_m_rec_per_s": first_touch},
    )


BENCHMARKS: dict[str, Callable[[NodeBench], Result | list[Result]]] = {
    "produce-small": produce_small,
    "produce-large": produce_large,
    "produce-single": produce_single,
    "consume": consume,
    "latency": latency,
    "partitions": many_partitions,
    "commits": groups.commits,
    "rebalance": groups.rebalance,
}
