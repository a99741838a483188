"""Batches of the log as the Arrow record batches that Spark expects: decoded natively, no Python per record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ringlog.model import TopicPartition
from ringlog.records.decode import Columns, decode_columns
from ringlog.records.format import APPEND_TIME_BIT, CONTROL_BIT
from ringlog.records.scan import scan

_REPEATED_MIN = 16 * 1024
_MICROS_PER_MS = 1000


class RowMaker:
    """Makes record batches of one schema out of the batches of one partition."""

    def __init__(self, tp: TopicPartition, schema: pa.Schema) -> None:
        self._tp = tp
        self._schema = schema
        self._decoded = tuple({*schema.names} & {"timestamp", "key", "value", "headers"} | {"offset"})
        self._topic: Any = None

    def rows(self, data: memoryview, start: int, end: int) -> pa.RecordBatch:
        """The records of whole batches whose offsets lie in [start, end). Raises CorruptBatch at the first fault."""
        columns = decode_columns(data, columns=self._decoded)
        offsets = columns.offset
        assert offsets is not None
        first, behind = (int(at) for at in np.searchsorted(offsets, (start, end)))
        made = pa.record_batch(columns)
        arrays = [self._array(field, made, columns, data) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return batch if behind - first == len(offsets) else batch.slice(first, behind - first)

    def _array(self, field: pa.Field, made: pa.RecordBatch, columns: Columns, data: memoryview) -> pa.Array:
        count = columns.count
        match field.name:
            case "topic":
                return self._topics(count)
            case "partition":
                return pa.array(np.full(count, self._tp.partition, np.int32))
            case "timestamp":
                assert columns.timestamp is not None
                return pa.array(columns.timestamp * _MICROS_PER_MS).view(field.type)
            case "timestampType":
                return pa.array(timestamp_types(data, count))
            case "headers":
                return _headers(made.column("headers"), field.type)
        return made.column(field.name)

    def _topics(self, count: int) -> pa.Array:
        if self._topic is None or len(self._topic) < count:
            self._topic = pa.repeat(self._tp.topic, max(_REPEATED_MIN, 2 * count))
        return self._topic.slice(0, count)


def timestamp_types(data: memoryview, count: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """For each record 0: its time is its producer's, or 1: the node's, as its batch says."""
    table = scan(data, level="headers").table
    attributes = table["attributes"]
    if not (attributes & (APPEND_TIME_BIT | CONTROL_BIT)).any():
        return np.zeros(count, np.int32)
    table = table[(attributes & CONTROL_BIT) == 0]
    by_batch = (table["attributes"] & APPEND_TIME_BIT != 0).astype(np.int32)
    return np.repeat(by_batch, table["record_count"])


def _headers(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same memory under the names that Spark gives to the parts of a list of structs."""
    pairs = column.values
    entries = pa.StructArray.from_arrays([pairs.field(0), pairs.field(1)], fields=list(wanted.value_type))
    return pa.ListArray.from_arrays(column.offsets, entries, type=wanted)
