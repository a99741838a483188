"""Arrow batches of a sink's task as columns for `produce_many`: grouped by topic and partition, no Python per row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringlog.errors import InvalidRequest
from ringlog.limits import SINK_GATHER_BYTES

_ANY = -1
"""Where a record's partition is left to its key."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Records that go to one topic, and to one partition or wherever their keys say."""

    topic: str
    partition: int | None
    values: Any
    keys: Any | None
    headers: Any | None
    timestamps: Any | None

    def __len__(self) -> int:
        return len(self.values)


def gathered(batches: Iterable[Any]) -> Iterator[Any]:
    """Batches joined until they are worth sending. Spark hands over 10,000 rows at a time, which the partitions of a
    topic would share: each of them would get many small batches. Without keys and partitions, nothing is shared."""
    waiting: list[Any] = []
    waiting_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if not {"key", "partition", "topic"} & set(batch.schema.names):
            yield batch
            continue
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        if waiting_bytes >= SINK_GATHER_BYTES:
            yield from _joined(waiting)
            waiting, waiting_bytes = [], 0
    yield from _joined(waiting)


def _joined(batches: list[Any]) -> Iterator[Any]:
    if len(batches) < 2:
        yield from batches
    else:
        # Several again where a column has more bytes than 32-bit offsets can tell.
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


def rows_of(batch: Any, topic: str | None, now_ms: int) -> Iterator[Rows]:
    """The rows of a batch by (topic, partition), each group's in their own order. The option `topic` wins over the
    column, as it does with Kafka's sink."""
    topics, topic_codes = _topics(batch, topic)
    partitions, partition_codes = _partitions(batch)
    if len(topics) == len(partitions) == 1:
        yield _rows(batch, topics[0], None if partitions[0] == _ANY else partitions[0], now_ms)
        return
    codes = topic_codes * len(partitions) + partition_codes
    places, counts = np.unique(codes, return_counts=True)
    batch = batch.take(pa.array(np.argsort(codes, kind="stable")))
    start = 0
    for place, count in zip(places.tolist(), counts.tolist(), strict=True):
        name, partition = topics[place // len(partitions)], partitions[place % len(partitions)]
        yield _rows(batch.slice(start, count), name, None if partition == _ANY else partition, now_ms)
        start += count


def _partitions(batch: Any) -> tuple[list[int], Any]:
    """The partitions that are named, and for each row the place of its own among them."""
    if "partition" not in batch.schema.names:
        return [_ANY], np.zeros(batch.num_rows, np.int64)
    column = batch.column("partition")
    lowest = pc.min(column).as_py()
    if lowest is not None and lowest < 0:
        raise InvalidRequest(f"partition {lowest} is none: they begin at 0, and null leaves it to the key")
    found, codes = np.unique(pc.fill_null(column, _ANY).to_numpy(zero_copy_only=False), return_inverse=True)
    return found.tolist(), codes


def _topics(batch: Any, topic: str | None) -> tuple[list[str], Any]:
    """The topics that are named, and for each row the place of its own among them."""
    if topic is not None:
        return [topic], np.zeros(batch.num_rows, np.int64)
    column = batch.column("topic")
    if column.null_count:
        raise InvalidRequest(
            f"{column.null_count} of {batch.num_rows} rows have no topic: fill the column, or say option topic"
        )
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _rows(batch: Any, topic: str, partition: int | None, now_ms: int) -> Rows:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    times = columns.get("timestamp")
    return Rows(
        topic,
        partition,
        columns["value"],
        columns.get("key"),
        columns.get("headers"),
        None if times is None else _milliseconds(times, now_ms),
    )


def _milliseconds(times: Any, now_ms: int) -> Any:
    """Spark's microseconds, cut to the millisecond that they lie in; now, where there is no time."""
    micros = times.cast(pa.timestamp("us")).cast(pa.int64())
    if micros.null_count:
        micros = pc.fill_null(micros, now_ms * 1000)
    return micros.to_numpy() // 1000
