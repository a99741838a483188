"""Batches of the log as the Arrow record batches that Spark expects: decoded natively, no Python per record.

In two steps, which may happen in two processes: `decoded` opens batches into the columns that are wanted of them;
`RowMaker` gives these the names and types of the query, and leaves out what lies beside its range.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ringlog.model import TopicPartition
from ringlog.records.decode import decode_columns
from ringlog.records.format import APPEND_TIME_BIT, CONTROL_BIT
from ringlog.records.scan import scan
from spark_bridge.bad_values import FAIL, BadValues
from spark_bridge.values import arrow_values, json_values

_pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
_FIELDS = {
    "offset": pa.field("offset", pa.int64(), nullable=False),
    "timestamp": pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
    "key": pa.field("key", pa.binary()),
    "value": pa.field("value", pa.binary()),
    "headers": pa.field("headers", pa.list_(pa.field("item", _pair, nullable=False)), nullable=False),
    "timestampType": pa.field("timestampType", pa.int32(), nullable=False),
}
_REPEATED_MIN = 16 * 1024
_MICROS_PER_MS = 1000


def decoded_columns(names: Collection[str]) -> tuple[str, ...]:
    """What must be decoded for these columns of a query: offsets in any case, to know where a range ends."""
    return tuple(name for name in _FIELDS if name == "offset" or name in names)


def decoded_schema(columns: Collection[str]) -> pa.Schema:
    """The schema of `decoded`."""
    return pa.schema([_FIELDS[name] for name in columns])


def decoded(data: memoryview, columns: Collection[str]) -> pa.RecordBatch:
    """The records of whole batches. Raises CorruptBatch at the first fault."""
    native = [name for name in columns if name != "timestampType"]
    made = pa.record_batch(decode_columns(data, columns=native))
    if "timestampType" in columns:
        arrays = [*made.columns, pa.array(timestamp_types(data, made.num_rows))]
        made = pa.RecordBatch.from_arrays(arrays, schema=decoded_schema(columns))
    return made


def within(made: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    """The records with offsets in [start, end), without a copy."""
    offsets = made.column("offset").to_numpy()
    first, behind = (int(at) for at in np.searchsorted(offsets, (start, end)))
    return made if behind - first == len(offsets) else made.slice(first, behind - first)


def timestamp_types(data: memoryview, count: int) -> npt.NDArray[np.int32]:
    """For each record 0: its time is its producer's, or 1: the node's, as its batch says."""
    table = scan(data, level="headers").table
    attributes = table["attributes"]
    if not (attributes & (APPEND_TIME_BIT | CONTROL_BIT)).any():
        return np.zeros(count, np.int32)
    table = table[(attributes & CONTROL_BIT) == 0]
    by_batch = (table["attributes"] & APPEND_TIME_BIT != 0).astype(np.int32)
    return np.repeat(by_batch, table["record_count"])


class RowMaker:
    """Makes record batches of a query's schema out of decoded ones of one partition."""

    def __init__(self, tp: TopicPartition, schema: pa.Schema, value_format: str, mode: str = FAIL) -> None:
        self._tp = tp
        self._schema = schema
        self._format = value_format
        self._bad = BadValues(tp, mode)
        self._topic: Any = None

    def rows(self, made: pa.RecordBatch) -> pa.RecordBatch:
        """One row for each record; of Arrow values, as many as they hold; none of those that are to be left out. Raises
        BadValue."""
        value: pa.Array = None
        if self._format != "binary" and "value" in self._schema.names:
            wanted = self._schema.field("value").type
            offsets = made.column("offset").to_numpy()
            parse = json_values if self._format == "json" else arrow_values
            value, records = parse(made.column("value"), wanted, self._bad, offsets)
            if records is not None:
                made = made.drop_columns(["value"]).take(pa.array(records))
        elif "value" in self._schema.names:
            value = made.column("value")
        return pa.RecordBatch.from_arrays(
            [self._array(field, made, value) for field in self._schema], schema=self._schema
        )

    def _array(self, field: pa.Field, made: pa.RecordBatch, value: pa.Array) -> pa.Array:
        match field.name:
            case "value":
                return value
            case "topic":
                return self._topics(made.num_rows)
            case "partition":
                return pa.array(np.full(made.num_rows, self._tp.partition, np.int32))
            case "timestamp":
                times_ms = made.column("timestamp").view(pa.int64()).to_numpy()
                return pa.array(times_ms * _MICROS_PER_MS).view(field.type)
            case "headers":
                return _headers(made.column("headers"), field.type)
        return made.column(field.name)

    def _topics(self, count: int) -> pa.Array:
        if self._topic is None or len(self._topic) < count:
            self._topic = pa.repeat(self._tp.topic, max(_REPEATED_MIN, 2 * count))
        return self._topic.slice(0, count)


def _headers(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same memory under the names that Spark gives to the parts of a list of structs."""
    pairs = column.values
    entries = pa.StructArray.from_arrays([pairs.field(0), pairs.field(1)], fields=list(wanted.value_type))
    return pa.ListArray.from_arrays(column.offsets, entries, type=wanted)
