"""Reads a topic from its start as fast as it goes, and times each poll."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cli.bench.report import Outcome
from ringlog.errors import RequestTimeout
from ringlog.model import TopicPartition

if TYPE_CHECKING:
    from ringlog import Consumer

POLL_MS = 1_000
RECORDS_PER_POLL = 100_000
SILENCE_S = 30.0
PROGRESS_S = 0.1


def has_arrow() -> bool:
    """Whether records can come as Arrow columns, which is several times faster."""
    return importlib.util.find_spec("pyarrow") is not None


def read_topic(
    consumer: Consumer,
    partitions: list[TopicPartition],
    *,
    count: int,
    seconds: float | None,
    rate: float | None,
    on_progress: Callable[[Outcome], None],
) -> Outcome:
    """Read so many records from the start of the partitions."""
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    poll = _poll_arrow if has_arrow() else _poll_records
    outcome = Outcome(began_s=time.monotonic())
    now_s = shown_s = heard_s = outcome.began_s
    over_s = math.inf if seconds is None else outcome.began_s + seconds
    while outcome.records < count and now_s < over_s:
        records, nbytes = poll(consumer, min(count - outcome.records, RECORDS_PER_POLL))
        before_s, now_s = now_s, time.monotonic()
        if records:
            outcome.latencies.add(now_s - before_s, records)
            outcome.records += records
            outcome.value_bytes += nbytes
            heard_s = now_s
        elif now_s - heard_s > SILENCE_S:
            raise RequestTimeout(
                f"no record came for {SILENCE_S:.0f} s, and {count - outcome.records} are missing"
            )
        if now_s - shown_s >= PROGRESS_S:
            shown_s = now_s
            on_progress(outcome)
        if rate is not None:
            due_s = outcome.began_s + outcome.records / rate
            time.sleep(max(min(due_s, over_s) - time.monotonic(), 0.0))
            now_s = time.monotonic()
    outcome.ended_s = time.monotonic()
    on_progress(outcome)
    return outcome


def _poll_arrow(consumer: Consumer, records_max: int) -> tuple[int, int]:
    batch: Any = consumer.poll_arrow(timeout_ms=POLL_MS, max_records=records_max)
    if batch is None or batch.num_rows == 0:
        return 0, 0
    offsets = batch.column("value").buffers()[1]
    return batch.num_rows, _binary_bytes(batch.column("value"), offsets)


def _binary_bytes(values: Any, offsets: Any) -> int:
    """The bytes of a binary column, by its first and last offset."""
    import numpy as np

    width = np.int64 if str(values.type).startswith("large") else np.int32
    bounds = np.frombuffer(offsets, dtype=width)
    return int(bounds[values.offset + len(values)] - bounds[values.offset])


def _poll_records(consumer: Consumer, records_max: int) -> tuple[int, int]:
    records = consumer.poll(timeout_ms=POLL_MS, max_records=records_max)
    return len(records), sum(len(record.value or b"") for record in records)
