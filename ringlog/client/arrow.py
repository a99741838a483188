"""Fetched batches as pyarrow RecordBatches: columns made natively, without Python per record.

The only module of the client that needs pyarrow, imported when `poll_arrow()` is first called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ringlog.errors import InvalidRequest
from ringlog.model import TopicPartition
from ringlog.native import _kernel
from ringlog.records.decode import checked

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

_topics: dict[str, _kernel.TopicText] = {}
"""Topics that were polled."""
_TOPICS_MAX = 64


class Opened(NamedTuple):
    """The records of a chunk."""

    batch: pyarrow.RecordBatch
    first_offset: int
    """No record lies below it."""


def open_batches(tp: TopicPartition, data: memoryview) -> Opened:
    """All records of a buffer of whole batches. Raises CorruptBatch at the first fault."""
    rows, payloads, _ = checked(data)
    topic = _topics.get(tp.topic) or _remember(tp.topic)
    try:
        records = _kernel.ArrowRecords(data, rows, payloads, topic, tp.partition)
    except ValueError as wrong:
        raise InvalidRequest(str(wrong)) from None
    # By its address and with a schema that is known: a schema of its own would take longer to read than all columns.
    return Opened(_pa.RecordBatch._import_from_c(records.address, SCHEMA), records.first_offset)


def offsets_of(batch: pyarrow.RecordBatch) -> npt.NDArray[np.int64]:
    """The column of offsets, without a copy."""
    return batch.column(2).to_numpy()  # type: ignore[no-any-return]


def _remember(topic: str) -> _kernel.TopicText:
    if len(_topics) >= _TOPICS_MAX:
        _topics.clear()
    made = _topics[topic] = _kernel.TopicText(topic)
    return made
