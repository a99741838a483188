"""Fetched batches as pyarrow RecordBatches: columns made natively, without Python per record.

The only module of the client that needs pyarrow, imported when `poll_arrow()` is first called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ringlog.errors import InvalidRequest
from ringlog.model import TopicPartition
from ringlog.records.decode import decode_columns

if TYPE_CHECKING:
    import pyarrow

try:
    _pa: Any = importlib.import_module("pyarrow")
except ImportError:
    raise InvalidRequest("poll_arrow() needs pyarrow, which is not installed: pip install pyarrow") from None

_pair = _pa.struct([_pa.field("key", _pa.string(), nullable=False), _pa.field("value", _pa.binary())])
SCHEMA = _pa.schema(
    [
        _pa.field("topic", _pa.string(), nullable=False),
        _pa.field("partition", _pa.int32(), nullable=False),
        _pa.field("offset", _pa.int64(), nullable=False),
        _pa.field("timestamp", _pa.timestamp("ms", tz="UTC"), nullable=False),
        _pa.field("key", _pa.binary()),
        _pa.field("value", _pa.binary()),
        _pa.field("headers", _pa.list_(_pa.field("item", _pair, nullable=False)), nullable=False),
    ]
)
"""The columns of `poll_arrow()`."""

_constants: dict[TopicPartition, tuple[Any, Any]] = {}
"""Topic and partition, repeated, of partitions that were polled: a batch takes a slice of them."""
_CONSTANTS_MAX = 64
_REPEATED_MIN = 16 * 1024


def record_batch(tp: TopicPartition, data: memoryview) -> pyarrow.RecordBatch:
    """All records of a buffer of whole batches. Raises CorruptBatch at the first fault."""
    columns = _pa.record_batch(decode_columns(data))
    topic, partition = _constant(tp, columns.num_rows)
    return _pa.RecordBatch.from_arrays([topic, partition, *columns.columns], schema=SCHEMA)


def offsets_of(batch: pyarrow.RecordBatch) -> npt.NDArray[np.int64]:
    """The column of offsets, without a copy."""
    return batch.column(2).to_numpy()  # type: ignore[no-any-return]


def _constant(tp: TopicPartition, count: int) -> tuple[Any, Any]:
    known = _constants.get(tp)
    if known is None or len(known[0]) < count:
        if len(_constants) >= _CONSTANTS_MAX:
            _constants.clear()
        repeated = max(_REPEATED_MIN, 2 * count)
        known = (_pa.repeat(tp.topic, repeated), _pa.repeat(_pa.scalar(tp.partition, _pa.int32()), repeated))
        _constants[tp] = known
    return known[0].slice(0, count), known[1].slice(0, count)
