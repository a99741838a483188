"""Values as columns: JSON documents and Arrow streams become structs before Spark sees a row."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.json

from ringlog.errors import InvalidRequest, InvariantBroken
from spark_bridge.bad_values import CORRUPT, DROP, FAIL, BadValues

_FIELD = "v"
_skeleton = msgspec.json.Decoder(msgspec.Raw)


def json_values(
    values: pa.Array, wanted: pa.StructType, bad: BadValues, offsets: Any
) -> tuple[pa.Array, Any]:
    """A struct for each document, and null for a null; and for each row the place of its record, or None when each has
    one. BadValue names the first record that does not fit the schema, if that is to end the query."""
    inside = pa.struct([field for field in wanted if field.name != CORRUPT])
    wrong: list[int] = []
    try:
        found = _parsed(values, inside)
    except pa.ArrowInvalid:
        if bad.mode == FAIL:
            at, why = _first_bad(values, inside)
            raise bad.fail(int(offsets[at]), "JSON", why) from None
        found, wrong = _salvaged(values, inside)
        bad.tell([int(offsets[at]) for at in wrong], "JSON")
    if bad.mode == DROP and wrong:
        records = np.delete(np.arange(len(values)), wrong)
        values, found, wrong = values.take(pa.array(records)), found.take(pa.array(records)), []
    else:
        records = None
    return (_with_corrupt(found, wanted, values, wrong) if CORRUPT in wanted.names else found), records


def _with_corrupt(found: pa.Array, wanted: pa.StructType, values: pa.Array, wrong: list[int]) -> pa.Array:
    """The same structs with the column that has the texts of bad documents, which are then not null as a whole."""
    is_wrong = np.zeros(len(found), bool)
    is_wrong[wrong] = True
    texts = [values[at].as_py().decode(errors="replace") for at in wrong]
    corrupt = pc.replace_with_mask(
        pa.nulls(len(found), pa.string()), pa.array(is_wrong), pa.array(texts, pa.string())
    )
    parts = [corrupt.cast(one.type) if one.name == CORRUPT else found.field(one.name) for one in wanted]
    is_null = pc.and_not(found.is_null(), pa.array(is_wrong))
    return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=is_null)


def _salvaged(values: pa.Array, wanted: pa.StructType) -> tuple[pa.Array, list[int]]:
    """What can be parsed, with nulls for what cannot, and the places of these.

    To ask Arrow about one document takes a millisecond. So those that are no JSON at all are found first, by a parser
    that refuses nothing that Arrow's would take: a topic of which nothing can be read must not stand still."""
    wrong = [at for at, value in enumerate(values.to_pylist()) if value is not None and not _is_json(value)]
    pieces: list[pa.Array] = []
    _halve(_nulled(values, wrong), wanted, 0, pieces, wrong)
    return pa.concat_arrays(pieces), sorted(wrong)


def _nulled(values: pa.Array, places: list[int]) -> pa.Array:
    is_named = np.zeros(len(values), bool)
    is_named[places] = True
    return pc.if_else(pa.array(is_named), pa.scalar(None, values.type), values)


def _is_json(value: bytes) -> bool:
    try:
        _skeleton.decode(value)
    except msgspec.DecodeError:
        return False
    except RecursionError:
        return True  # too deep for this parser, and not for Arrow's
    return True


def _halve(
    values: pa.Array, wanted: pa.StructType, first: int, pieces: list[pa.Array], wrong: list[int]
) -> None:
    try:
        pieces.append(_parsed(values, wanted))
        return
    except pa.ArrowInvalid:
        if len(values) == 1:
            wrong.append(first)
            pieces.append(pa.nulls(1, wanted))
            return
    middle = len(values) // 2
    _halve(values.slice(0, middle), wanted, first, pieces, wrong)
    _halve(values.slice(middle), wanted, first + middle, pieces, wrong)


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
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(lines.slice(first, behind - first)),
            read_options=pyarrow.json.ReadOptions(
                use_threads=False, block_size=max(behind - first + 1, 1024)
            ),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema([pa.field(_FIELD, wanted)]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
    except pa.ArrowNotImplementedError as unable:  # whatever the documents are
        raise InvalidRequest(
            f"option 'valueSchema': {unable}. Read with valueFormat=binary, and let Spark's from_json parse it"
        ) from None
    if table.num_rows != len(values):
        raise pa.ArrowInvalid(f"{len(values)} values hold {table.num_rows} documents")
    found = table.column(_FIELD).combine_chunks()
    return found.cast(wanted)


def _ends(texts: pa.Array) -> tuple[int, int]:
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    return int(offsets[texts.offset]), int(offsets[texts.offset + len(texts)])


def _first_bad(values: pa.Array, wanted: pa.StructType) -> tuple[int, Exception]:
    """The place of the first value that cannot be parsed, found by halving, and why not."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _parsed(values.slice(low, middle - low), wanted)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    try:
        _parsed(values.slice(low, 1), wanted)
    except pa.ArrowInvalid as why:
        return low, why
    raise InvariantBroken("a value that could not be parsed can be parsed alone")


def arrow_values(
    values: pa.Array, wanted: pa.StructType, bad: BadValues, offsets: Any
) -> tuple[pa.Array, Any]:
    """The rows of each value, which is an Arrow IPC stream of any number of rows; and for each row the place of its
    record. A null value is one row that is null."""
    pieces: list[pa.Array] = []
    wrong: list[int] = []
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
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as why:
            if bad.mode == FAIL:
                raise bad.fail(int(offsets[at]), "Arrow stream", why) from None
            wrong.append(int(offsets[at]))
            counts[at] = 0 if bad.mode == DROP else 1
            pieces.append(pa.nulls(int(counts[at]), wanted))
            continue
        counts[at] = table.num_rows
        pieces.append(pa.StructArray.from_arrays(arrays, fields=list(wanted)))
    if wrong:
        bad.tell(wrong, "Arrow stream")
    rows = pa.concat_arrays(pieces) if pieces else pa.array([], type=wanted)
    return rows, np.repeat(np.arange(len(values)), counts)
