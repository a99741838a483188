"""Opens the records of batches: as columns for engines, or one by one, made only when they are asked for.

Everything is checked before the first record is handed out: CRCs, every length, and what compressed records
unfold to. Batches of control records (transaction markers) are left out unless they are asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from ringlog import limits
from ringlog.errors import InvalidRequest
from ringlog.native import _kernel
from ringlog.records.codecs import unfold
from ringlog.records.columns import Column
from ringlog.records.format import BATCH_TABLE

COLUMNS = ("offset", "timestamp", "key", "value", "headers")

_COLUMN_NAMES = frozenset(COLUMNS)

# Made once: NumPy takes longer to find a type by its name than to make a small array of it.
_INT32, _INT64, _UINT8 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint8)

_NO_ELEMENTS = Column(np.frombuffer(bytes(4), _INT32), np.frombuffer(b"", _UINT8))
"""Header keys and values of records without headers: shared, and read-only because it is made of bytes."""

_CHUNK_RECORDS = 256
"""Records made at once while iterating: enough that the step into native code costs nothing."""


class Record(NamedTuple):
    """One record, as it was produced, and where it lies in its partition."""

    offset: int
    timestamp: int
    """Milliseconds since 1970, by the producer's clock or, for append time, the broker's."""
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Records(Sequence[Record]):
    """The records of a buffer. Each is made when it is asked for; only where it begins is known before."""

    __slots__ = ("fields", "next_offset")

    def __init__(self, index: _kernel.RecordIndex[Record], next_offset: int | None) -> None:
        self.fields = index
        """Single fields of records, for those who need no whole ones."""
        self.next_offset = next_offset
        """The offset behind the last batch, of control records too; None when there was no batch."""

    def __len__(self) -> int:
        return len(self.fields)

    @overload
    def __getitem__(self, i: int) -> Record: ...
    @overload
    def __getitem__(self, i: slice) -> list[Record]: ...
    def __getitem__(self, i: int | slice) -> Record | list[Record]:
        if isinstance(i, int):
            return self.fields.get(i + len(self) if i < 0 else i)
        start, stop, step = i.indices(len(self))
        if step == 1:
            return self.fields.slice(start, stop)
        return [self.fields.get(at) for at in range(start, stop, step)]

    def __iter__(self) -> Iterator[Record]:
        for start in range(0, len(self), _CHUNK_RECORDS):
            yield from self.fields.slice(start, min(start + _CHUNK_RECORDS, len(self)))


@dataclass(frozen=True, slots=True, eq=False)
class HeaderColumn:
    """The headers of record `i` are the entries `offsets[i]` to `offsets[i + 1]` of keys and values."""

    offsets: npt.NDArray[np.int32]
    keys: Column
    values: Column


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Records as columns; a column that was not asked for is None."""

    count: int
    next_offset: int | None
    """The offset behind the last batch, of control records too; None when there was no batch."""
    offset: npt.NDArray[np.int64] | None
    timestamp: npt.NDArray[np.int64] | None
    """Milliseconds since 1970."""
    key: Column | None
    value: Column | None
    headers: HeaderColumn | None

    def __len__(self) -> int:
        return self.count

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The columns as one Arrow struct array, without a copy: `pyarrow.record_batch(columns)`."""
        children: list[_kernel.ArrowTree] = []
        if self.offset is not None:
            children.append(("offset", "l", False, self.count, (None, self.offset), ()))
        if self.timestamp is not None:
            children.append(("timestamp", "tsm:UTC", False, self.count, (None, self.timestamp), ()))
        if self.key is not None:
            children.append(self.key.arrow_tree("key", nullable=True))
        if self.value is not None:
            children.append(self.value.arrow_tree("value", nullable=True))
        if self.headers is not None:
            headers = self.headers
            pair = (
                headers.keys.arrow_tree("key", nullable=False, text=True),
                headers.values.arrow_tree("value", nullable=True),
            )
            items: _kernel.ArrowTree = ("item", "+s", False, len(headers.keys), (None,), pair)
            children.append(("headers", "+l", False, self.count, (None, headers.offsets), (items,)))
        return _kernel.export_arrow(("", "+s", False, self.count, (None,), tuple(children)))


def decode(data: Any, *, include_control: bool = False, check_crc: bool = True) -> Records:
    """The records of a buffer of whole batches, as a lazy sequence. Raises CorruptBatch at the first fault.

    >>> from ringlog.records.encode import encode
    >>> records = decode(encode([b"on", b"off"], keys=[b"lamp", None], timestamps=17, base_offset=5))
    >>> records[1]
    Record(offset=6, timestamp=17, key=None, value=b'off', headers=[])
    >>> [record.value for record in records], records.next_offset
    ([b'on', b'off'], 7)
    """
    rows, payloads, next_offset = checked(data, include_control=include_control, check_crc=check_crc)
    return Records(_kernel.RecordIndex(data, rows, payloads, Record), next_offset)


def decode_columns(
    data: Any,
    *,
    columns: Collection[str] = COLUMNS,
    include_control: bool = False,
    check_crc: bool = True,
) -> Columns:
    """The records of a buffer of whole batches, as columns. Raises CorruptBatch at the first fault.

    A column that is not named in `columns` is not decoded.

    >>> from ringlog.records.encode import encode
    >>> batch = encode([b"on", b"off"], timestamps=17, base_offset=5)
    >>> opened = decode_columns(batch, columns=("offset", "value"))
    >>> opened.offset.tolist(), list(opened.value), opened.key
    ([5, 6], [b'on', b'off'], None)
    """
    if not _COLUMN_NAMES.issuperset(columns):
        unknown = ", ".join(sorted(set(columns) - _COLUMN_NAMES))
        raise InvalidRequest(f"no such column: {unknown}; there are {', '.join(COLUMNS)}")
    rows, payloads, next_offset = checked(data, include_control=include_control, check_crc=check_crc)
    wanted = [name in columns for name in COLUMNS]
    try:
        count, offset, timestamp, key, value, header_offsets, header_keys, header_values = (
            _kernel.decode_columns(data, rows, payloads, *wanted)
        )
    except ValueError as wrong:
        raise InvalidRequest(str(wrong)) from None
    headers = None
    if header_offsets is not None:
        headers = HeaderColumn(
            np.frombuffer(header_offsets, _INT32),
            _NO_ELEMENTS if header_keys is None else _column(header_keys),
            _NO_ELEMENTS if header_values is None else _column(header_values),
        )
    return Columns(
        count,
        next_offset,
        None if offset is None else np.frombuffer(offset, _INT64),
        None if timestamp is None else np.frombuffer(timestamp, _INT64),
        None if key is None else _column(key),
        None if value is None else _column(value),
        headers,
    )


def checked(
    data: Any, *, include_control: bool = False, check_crc: bool = True
) -> tuple[bytearray, list[memoryview | None] | None, int | None]:
    """The rows of the batches to decode, what their records unfold to, and the offset behind them all."""
    rows, compressed, next_offset = _kernel.open_batches(data, check_crc, include_control)
    return rows, _unfold(data, rows, compressed) if compressed else None, next_offset


def _unfold(data: Any, rows: bytearray, compressed: list[int]) -> list[memoryview | None]:
    """For each row what its records unfold to, None where they are not compressed."""
    view = memoryview(data).cast("B")
    table = np.frombuffer(rows, BATCH_TABLE)
    payloads: list[memoryview | None] = [None] * len(table)
    for i in compressed:
        row = table[i]
        begin, end = int(row["position"]), int(row["position"]) + int(row["length"])
        payloads[i] = unfold(view[begin + limits.BATCH_HEADER_BYTES : end], row)
    return payloads


def _column(memory: _kernel.BytesColumn) -> Column:
    offsets, data, valid = memory
    return Column(
        np.frombuffer(offsets, _INT32),
        np.frombuffer(data, _UINT8),
        None if valid is None else np.frombuffer(valid, _UINT8),
    )
