"""The columns of a `produce_many`: lists, Arrow arrays or NumPy, made ready to be cut into batches natively."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ringlog.client.offsets import NUMBER_MAX
from ringlog.errors import InvalidRequest
from ringlog.records.columns import Column
from ringlog.records.partitioner import key_partitions

_LIST_ROWS = 16 * 1024
_KEYED_LIST_ROWS = 1024 * 1024
"""More, so that each partition's share fills batches."""

_FEW_ROWS = 4 * 1024
_INT32_MAX = int(np.iinfo(np.int32).max)
_KINDS = "must be a list, an Arrow array or a NumPy array of byte strings"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Columns of equal length, each as the encoder takes it."""

    values: Any
    keys: Any | None
    headers: Any | None
    timestamps: Any
    count: int


class Rows(NamedTuple):
    """Records of a chunk: its rows from `start` to `stop`, or those that `numbers` has there."""

    start: int
    stop: int
    numbers: npt.NDArray[np.int64] | None = None


def chunks_of(values: Any, keys: Any, headers: Any, timestamps: Any, now_ms: int) -> Iterator[Chunk]:
    """Columns whose pieces are contiguous in memory: one chunk, or those of Arrow's ChunkedArrays."""
    if values is None:
        raise InvalidRequest(f"values {_KINDS}")
    times = _times(timestamps, now_ms)
    in_one_piece = not hasattr(times, "chunks")
    if _is_list(values) and headers is None and (keys is None or _is_list(keys)) and in_one_piece:
        yield from _list_chunks(values, keys, times)
        return
    if keys is None and headers is None and isinstance(times, int):
        # Values alone need not be cut where other columns are: a thousand small sends a second notice it.
        for part in _chunked(values, "values") or ():
            if len(part):
                yield Chunk(part, None, None, times, len(part))
        return
    columns = [_chunked(values, "values"), _chunked(keys, "keys"), _headers(headers), _chunked_times(times)]
    count = sum(len(part) for part in columns[0] or [])
    for name, parts in zip(("keys", "headers", "timestamps"), columns[1:], strict=True):
        if parts is not None and sum(len(part) for part in parts) != count:
            raise InvalidRequest(f"{name}: one for each of the {count} values is needed")
    at = 0
    while at < count:
        pieces = [None if parts is None else _at(parts, at) for parts in columns]
        size = min(left for _, left in (piece for piece in pieces if piece is not None))
        ready = [None if piece is None else _slice(piece, size) for piece in pieces]
        yield Chunk(ready[0], ready[1], ready[2], times if ready[3] is None else ready[3], size)
        at += size


def _is_list(column: Any) -> bool:
    return isinstance(column, list | tuple)


def _list_chunks(values: Any, keys: Any, times: Any) -> Iterator[Chunk]:
    """Lists are gathered piece by piece, so that what was gathered is still in the cache when it is encoded."""
    if keys is not None and len(keys) != len(values):
        raise InvalidRequest(f"keys: one for each of the {len(values)} values is needed")
    rows = _LIST_ROWS if keys is None else _KEYED_LIST_ROWS
    is_one = isinstance(times, int)
    if not is_one and len(times) != len(values):
        raise InvalidRequest(f"timestamps: one for each of the {len(values)} values is needed")
    for at in range(0, len(values), rows):
        some = values[at : at + rows]
        yield Chunk(
            Column.gather(some, "values"),
            None if keys is None else Column.gather(keys[at : at + rows], "keys"),
            None,
            times if is_one else times[at : at + rows],
            len(some),
        )


class _Piece(NamedTuple):
    """A contiguous part of a column, and where in it the wanted rows begin."""

    part: Any
    left: int

    @property
    def start(self) -> int:
        return len(self.part) - self.left


def _at(parts: Sequence[Any], at: int) -> _Piece:
    for part in parts:
        if at < len(part):
            return _Piece(part, len(part) - at)
        at -= len(part)
    raise InvalidRequest("a column is shorter than the values")


def _slice(piece: _Piece, size: int) -> Any:
    if piece.start == 0 and size == len(piece.part):
        return piece.part
    part = piece.part
    if isinstance(part, Column):
        stop = piece.start + size
        if part.valid is None:
            return Column(part.offsets[piece.start : stop + 1], part.data)
        bits = np.unpackbits(part.valid, bitorder="little")[piece.start : stop]
        return Column(part.offsets[piece.start : stop + 1], part.data, np.packbits(bits, bitorder="little"))
    return part[piece.start : piece.start + size]


def _chunked(column: Any, what: str) -> list[Any] | None:
    if column is None:
        return None
    if isinstance(column, Column) or hasattr(column, "__arrow_c_array__"):
        return [column]
    chunks = getattr(column, "chunks", None)  # of an Arrow ChunkedArray
    if chunks is not None:
        return [chunk for chunk in chunks if len(chunk)]
    if isinstance(column, np.ndarray):
        return [_numpy(column, what)]
    if isinstance(column, str | bytes | bytearray | memoryview) or not hasattr(column, "__len__"):
        raise InvalidRequest(f"{what} {_KINDS}")
    return [Column.gather(column, what)]


def _numpy(array: npt.NDArray[Any], what: str) -> Column:
    """Rows of a uint8 matrix or of `S` strings (as wide as the type: NumPy cannot tell their end from zeros), or
    objects."""
    if array.ndim == 1 and array.dtype.kind == "O":
        return Column.gather(array.tolist(), what)
    if array.ndim == 1 and array.dtype.kind in "SV":
        array = np.ascontiguousarray(array).view(np.uint8).reshape(len(array), array.dtype.itemsize)
    if array.ndim != 2 or array.dtype != np.uint8:
        raise InvalidRequest(
            f"{what}: a NumPy array must be of objects, of S or V strings, or a uint8 matrix"
        )
    rows, width = array.shape
    offsets = _few_offsets(rows, width) if rows <= _FEW_ROWS else _even_offsets(rows, width)
    return Column(offsets, np.ascontiguousarray(array).reshape(-1))


def _even_offsets(rows: int, width: int) -> npt.NDArray[Any]:
    """Where rows of equal width begin, and the last one ends."""
    offsets: npt.NDArray[Any] = np.arange(rows + 1, dtype=np.int64 if rows * width > _INT32_MAX else np.int32)
    offsets *= width
    return offsets


@functools.lru_cache(maxsize=16)
def _few_offsets(rows: int, width: int) -> npt.NDArray[Any]:
    """The same for small sends, which often are like the ones before them. Nobody may change it."""
    offsets = _even_offsets(rows, width)
    offsets.flags.writeable = False
    return offsets


def _times(timestamps: Any, now_ms: int) -> Any:
    if timestamps is None:
        return now_ms
    if isinstance(timestamps, int | np.integer):
        if not 0 <= timestamps <= NUMBER_MAX:
            raise refused_time(timestamps)
        return int(timestamps)
    if isinstance(timestamps, str | bytes) or not hasattr(timestamps, "__len__"):
        raise InvalidRequest(
            "timestamps must be milliseconds: one int, or a list, NumPy or Arrow array of them"
        )
    if hasattr(timestamps, "__arrow_c_array__") or hasattr(timestamps, "chunks"):
        for part in _chunked_times(timestamps) or ():
            numbers = np.asarray(part)
            if numbers.dtype.kind in "iM":  # others, and nulls, are refused where columns are read
                _numbered(numbers)
        return timestamps
    return _numbered(_array_of(timestamps))


def _array_of(timestamps: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(timestamps) if len(timestamps) else np.empty(0, np.int64)
    except (OverflowError, TypeError, ValueError) as wrong:
        raise InvalidRequest(f"timestamps must be milliseconds of 63 bits: {wrong}") from None


def _numbered(times: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """As the encoder takes them. A conversion would cut fractions off, and let what is too large begin below 0."""
    if times.dtype.kind == "M":
        times = times.astype("datetime64[ms]").astype(np.int64)
    if times.dtype.kind not in "iub":
        raise refused_time(times.reshape(-1)[:1].tolist()[0])
    for end in (times.min(), times.max()) if times.size else ():
        if not 0 <= int(end) <= NUMBER_MAX:
            raise refused_time(int(end))
    return np.ascontiguousarray(times, dtype=np.int64)


def refused_time(given: Any) -> InvalidRequest:
    """What to raise for a timestamp that no record can have."""
    return InvalidRequest(f"timestamps must be milliseconds of 63 bits since 1970, as int, and not {given!r}")


def _chunked_times(times: Any) -> list[Any] | None:
    if isinstance(times, int):
        return None
    chunks = getattr(times, "chunks", None)
    return [times] if chunks is None else [chunk for chunk in chunks if len(chunk)]


def _headers(headers: Any) -> list[Any] | None:
    """An Arrow array of lists, or one dict or list of pairs for each record."""
    if headers is None or hasattr(headers, "__arrow_c_array__") or hasattr(headers, "chunks"):
        return _chunked(headers, "headers")
    raise InvalidRequest("headers of produce_many must be an Arrow list<struct<key: string, value: binary>>")


def rows_by_partition(chunk: Chunk, partitions: int) -> tuple[npt.NDArray[np.int64], list[int]]:
    """The rows of a chunk ordered by the partition of their key, each partition's in their own order; and where
    each partition's begin, one entry more than partitions. Records without a key are spread evenly."""
    where = key_partitions(chunk.keys, partitions)
    missing = np.flatnonzero(where < 0)
    if len(missing):
        where = where.copy()
        where[missing] = np.arange(len(missing)) % partitions
    short = where.astype(np.int16) if partitions < 2**15 else where  # a radix sort, where the type is short
    rows = np.argsort(short, kind="stable")
    bounds = np.concatenate(([0], np.cumsum(np.bincount(where, minlength=partitions))))
    return rows.astype(np.int64, copy=False), bounds.tolist()
