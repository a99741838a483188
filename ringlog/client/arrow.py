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

_topics: dict[str, Any] = {}
"""Names of topics that were polled, repeated: a batch takes a slice."""
_TOPICS_MAX = 64
_REPEATED_MIN = 16 * 1024


def record_batch(tp: TopicPartition, data: memoryview) -> pyarrow.RecordBatch:
    """All records of a buffer of whole batches. Raises CorruptBatch at the first fault."""
    columns = _pa.record_batch(decode_columns(data))
    count = columns.num_rows
    topic, partition = _repeated(tp.topic, count), _pa.array(np.full(count, tp.partition, np.int32))
    return _pa.RecordBatch.from_arrays([topic, partition, *columns.columns], schema=SCHEMA)


def offsets_of(batch: pyarrow.RecordBatch) -> npt.NDArray[np.int64]:
    """The column of offsets, without a copy."""
    return batch.column(2).to_numpy()  # type: ignore[no-any-return]


def _repeated(topic: str, count: int) -> Any:
    known = _topics.get(topic)
    if known is None or len(known) < count:
        if len(_topics) >= _TOPICS_MAX:
            _topics.clear()
        known = _topics[topic] = _pa.repeat(topic, max(_REPEATED_MIN, 2 * count))
    return known.slice(0, count)
