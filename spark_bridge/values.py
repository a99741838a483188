"""Values as columns: JSON documents and Arrow streams become structs before Spark sees a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.json

from ringlog.errors import BadValue
from ringlog.model import TopicPartition

_FIELD = "v"


def json_values(values: pa.Array, wanted: pa.StructType, tp: TopicPartition, offsets: Any) -> pa.Array:
    """A struct for each document; null for a null. BadValue names the first record that does not fit the schema."""
    try:
        return _parsed(values, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
        at = _first_bad(values, wanted)
        raise BadValue(
            f"{tp}, offset {int(offsets[at])}: its value is no JSON of the columns in valueSchema: {wrong}. Read it "
            "with valueFormat=binary, or skip it with startingOffsets"
        ) from None


def _parsed(values: pa.Array, wanted: pa.StructType) -> pa.Array:
    if not len(values):
        return pa.array([], type=wanted)
    # Each document stands in one of ours: one that is empty, cut or followed by a second one cannot be taken for whole.
    before = pa.scalar(f'{{"{_FIELD}":'.encode(), pa.binary())
    texts = pc.binary_join_element_wise(
        before, pc.fill_null(values, b"null"), pa.scalar(b"}\n", pa.binary()), pa.scalar(b"", pa.binary())
    )
    lines = texts.buffers()[2]
    first, behind = _ends(texts)
    table = pyarrow.json.read_json(
        pa.BufferReader(lines.slice(first, behind - first)),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(behind - first + 1, 1024)),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([pa.field(_FIELD, wanted)]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    if table.num_rows != len(values):
        raise pa.ArrowInvalid(f"{len(values)} values hold {table.num_rows} documents")
    found = table.column(_FIELD).combine_chunks()
    return found.cast(wanted)


def _ends(texts: pa.Array) -> tuple[int, int]:
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    return int(offsets[texts.offset]), int(offsets[texts.offset + len(texts)])


def _first_bad(values: pa.Array, wanted: pa.StructType) -> int:
    """The place of the first value that cannot be parsed, found by halving."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _parsed(values.slice(low, middle - low), wanted)
            low = middle
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            high = middle
    return low


def arrow_values(
    values: pa.Array, wanted: pa.StructType, tp: TopicPartition, offsets: Any
) -> tuple[pa.Array, Any]:
    """The rows of each value, which is an Arrow IPC stream of any number of rows; and for each row the place of its
    record. A null value is one row that is null."""
    pieces: list[pa.Array] = []
    counts = np.ones(len(values), np.int64)
    for at, value in enumerate(values):
        if not value.is_valid:
            pieces.append(pa.nulls(1, wanted))
            continue
        try:
            table = pyarrow.ipc.open_stream(value.as_buffer()).read_all()
            missing = [field.name for field in wanted if field.name not in table.schema.names]
            if missing:
                raise pa.ArrowInvalid(f"it has no column '{missing[0]}'")
            arrays = [table.column(field.name).cast(field.type).combine_chunks() for field in wanted]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as wrong:
            raise BadValue(
                f"{tp}, offset {int(offsets[at])}: its value is no Arrow stream of the columns in valueSchema: {wrong}"
            ) from None
        counts[at] = table.num_rows
        pieces.append(pa.StructArray.from_arrays(arrays, fields=list(wanted)))
    rows = pa.concat_arrays(pieces) if pieces else pa.array([], type=wanted)
    return rows, np.repeat(np.arange(len(values)), counts)
