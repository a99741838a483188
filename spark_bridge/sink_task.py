"""One task of the sink: Arrow batches in, flushed records out, with a bounded number on their way."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from ringlog.client.futures import ManyFuture
from ringlog.client.producer import Producer
from ringlog.model import TopicPartition
from spark_bridge.patience import patiently
from spark_bridge.sink_columns import gathered, rows_of
from spark_bridge.sink_options import SinkOptions

_FUTURES_KEPT = 64
"""Answers that are looked at late: the producer's buffer bounds the bytes, this the list."""


def send_all(batches: Iterable[Any], options: SinkOptions) -> tuple[int, dict[TopicPartition, int]]:
    """Send every row, and wait until the node has acknowledged all: how many there were, and the offset behind the
    last one of each partition. Raises the first error of any record; Spark then runs the task again."""
    records = 0
    ends: dict[TopicPartition, int] = {}
    waiting: deque[ManyFuture] = deque()
    topics: set[str] = set()
    timeout_s = options.delivery_timeout_s
    with Producer(**options.producer) as producer:
        for batch in gathered(batches):
            for rows in rows_of(batch, options.topic, time.time_ns() // 1_000_000):
                records += len(rows)
                if rows.topic not in topics:
                    _find(producer, rows.topic, timeout_s)
                    topics.add(rows.topic)
                waiting.append(
                    producer.produce_many(
                        rows.topic, rows.values, rows.keys, rows.headers, rows.timestamps, rows.partition
                    )
                )
            while len(waiting) > _FUTURES_KEPT:
                _settle(waiting.popleft(), ends, timeout_s)
        while waiting:
            _settle(waiting.popleft(), ends, timeout_s)
    return records, ends


def _find(producer: Producer, topic: str, patience_s: float) -> None:
    """Look a topic up, or have it made: no records are on their way yet, so this may be tried as often as it takes."""
    patiently(lambda _: producer.produce_many(topic, []), patience_s)


def _settle(future: ManyFuture, ends: dict[TopicPartition, int], timeout_s: float) -> None:
    # A record fails by itself after the delivery timeout: waiting a little longer meets its own error.
    for part in future.result(timeout_s + 10):
        tp = TopicPartition(part.topic, part.partition)
        ends[tp] = max(ends.get(tp, 0), part.base_offset + part.count)
