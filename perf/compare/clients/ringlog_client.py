"""ringlog's own client: by columns, as fast as it goes, or one record at a time."""

from __future__ import annotations

import importlib
import itertools
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from perf.compare.clients.api import (
    STAMP_BYTES,
    ConsumerClient,
    Look,
    PacedProducer,
    Place,
    ProducerClient,
    Reader,
    Timed,
)
from perf.compare.model import Durability
from perf.compare.payload import Payload
from ringlog.client.consumer import Consumer
from ringlog.client.futures import ManyFuture
from ringlog.client.producer import Producer

CHUNKS_AHEAD = 12
PATIENCE_S = 60
FETCH_RECORDS = 50_000


class ColumnProducer(PacedProducer):
    """produce_many: columns in, no Python per record."""

    def __init__(self, place: Place) -> None:
        acks = 0 if place.durability is Durability.D0 else "all"
        self._producer = Producer(bootstrap=place.address, acks=acks)
        self._topic = place.topic

    def produce(self, payload: Payload, records: int) -> Timed:
        waiting: list[ManyFuture] = []
        pool = payload.pool
        began = time.perf_counter()
        for at in range(0, records, len(pool)):
            waiting.append(self._producer.produce_many(self._topic, pool[: min(len(pool), records - at)]))
            if len(waiting) > CHUNKS_AHEAD:
                waiting.pop(0).result(PATIENCE_S)
        for future in waiting:
            future.result(PATIENCE_S)
        return Timed(records, time.perf_counter() - began)

    def send(self, values: npt.NDArray[np.uint8]) -> None:
        self._producer.produce_many(self._topic, values)

    def finish(self) -> None:
        self._producer.flush(PATIENCE_S)

    def close(self) -> None:
        self._producer.close()


class SingleProducer(ProducerClient):
    """produce() for each record, with its future: what code without columns does."""

    def __init__(self, place: Place) -> None:
        acks = 0 if place.durability is Durability.D0 else "all"
        self._producer = Producer(bootstrap=place.address, acks=acks, linger_ms=5)
        self._topic = place.topic

    def produce(self, payload: Payload, records: int) -> Timed:
        rows, topic, produce = payload.rows(), self._topic, self._producer.produce
        began = time.perf_counter()
        for at in range(0, records, len(rows)):
            for row in rows[: records - at]:
                produce(topic, row)
        self._producer.flush(PATIENCE_S)
        return Timed(records, time.perf_counter() - began)

    def close(self) -> None:
        self._producer.close()


class _AllPartitions:
    """A consumer of a whole topic."""

    def __init__(self, place: Place) -> None:
        importlib.import_module("pyarrow")  # poll_arrow would import it with the clock running
        self._consumer = Consumer(bootstrap=place.address, auto_offset_reset="earliest")
        self._consumer.assign([(place.topic, partition, 0) for partition in range(place.partitions)])

    def close(self) -> None:
        self._consumer.close()


class ColumnConsumer(_AllPartitions, Reader):
    """poll_arrow: columns out."""

    def read(self, records: int, look: Look | None) -> Timed:
        began, read = time.perf_counter(), 0
        while read < records:
            batch = self._consumer.poll_arrow(timeout_ms=PATIENCE_S * 1000)
            if batch is None:
                raise TimeoutError(f"{read} of {records} records came within {PATIENCE_S} s")
            read += batch.num_rows
            if look is not None:
                look(values_of(batch))
        return Timed(read, time.perf_counter() - began)

    def receive_stamps(self, timeout_s: float) -> npt.NDArray[np.int64]:
        batch = self._consumer.poll_arrow(timeout_ms=timeout_s * 1000)
        if batch is None:
            return np.empty(0, dtype=np.int64)
        offsets, data = _buffers_of(batch)
        rows = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]].reshape(len(offsets) - 1, -1)
        return rows[:, :STAMP_BYTES].copy().view(np.int64).ravel()


class SingleConsumer(_AllPartitions, ConsumerClient):
    """poll: a record object each, its value taken."""

    def consume(self, records: int) -> Timed:
        began, read = time.perf_counter(), 0
        while read < records:
            read += len([record.value for record in self._consumer.poll(1000, max_records=FETCH_RECORDS)])
        return Timed(read, time.perf_counter() - began)


def values_of(batch: Any) -> list[memoryview]:
    """Views of the values of an Arrow batch."""
    offsets, data = _buffers_of(batch)
    places, whole = offsets.tolist(), memoryview(data)
    return [whole[start:stop] for start, stop in itertools.pairwise(places)]


def _buffers_of(batch: Any) -> tuple[npt.NDArray[np.int64], Any]:
    column = batch.column(batch.schema.get_field_index("value"))
    _, offset_buffer, data = column.buffers()
    width = np.int64 if str(column.type).startswith("large") else np.int32
    offsets = np.frombuffer(offset_buffer, dtype=width)[column.offset : column.offset + len(column) + 1]
    return offsets.astype(np.int64), data
