"""Gathers records for a producer: one at a time into a growing batch, or many at once from columns.

Batches are made behind HEADROOM bytes, so that a frame's header is put in front without a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ringlog import limits
from ringlog.errors import BatchTooLarge, InvalidRequest
from ringlog.model import Codec
from ringlog.native import _kernel
from ringlog.records import codecs
from ringlog.records.format import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

F = TypeVar("F")

HEADROOM = 32
"""Bytes in front of a batch for the header of the frame that it goes into."""
NO_ROOM = 0
NOT_FEW = -1
_RECORD_COUNT = slice(HEADROOM + 57, HEADROOM + 61)
_FIELDS = (0, NO_LEADER_EPOCH, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 0)


class BatchBuilder(Generic[F]):
    """A batch that grows until it is finished. Futures are made natively, as (state, index).

    >>> builder = BatchBuilder(tuple, "state", bytes_target=1024)
    >>> builder.append(b"hello", None, 17, None), builder.append("world", "key", 17, {"a": b"b"})
    (('state', 0), ('state', 1))
    >>> len(builder.finish()) - HEADROOM
    92
    """

    __slots__ = ("_native", "append")

    def __init__(
        self,
        future_type: type[F],
        state: object,
        *,
        bytes_target: int,
        bytes_max: int = limits.BATCH_BYTES_MAX,
    ) -> None:
        self._native: _kernel.BatchBuilder[F] = _kernel.BatchBuilder(
            bytes_target, bytes_max, HEADROOM, future_type, state
        )
        self.append = self._native.append
        """append(value, key, timestamp_ms, headers) -> a future; None: the batch is full, begin the next."""

    @property
    def count(self) -> int:
        return self._native.count

    @property
    def nbytes(self) -> int:
        return self._native.nbytes

    @property
    def timestamps(self) -> memoryview:
        """Of each record, in milliseconds."""
        return memoryview(self._native.timestamps).cast("q")

    def extend(
        self,
        values: Any,
        keys: Any,
        headers: Any,
        *,
        timestamps: Any,
        start: int,
        stop: int,
        bytes_most: int,
        rows: npt.NDArray[np.int64] | None = None,
    ) -> int:
        """Append records of columns, which are as `cut_columns` takes them: all, or none. Returns how many; NO_ROOM:
        begin the next batch; NOT_FEW: they take more than `bytes_most`, and should be a batch of their own.

        >>> from ringlog.records.columns import Column
        >>> builder = BatchBuilder(tuple, None, bytes_target=1024)
        >>> column = Column.gather([b"x" * 100] * 50, "values")
        >>> few = {"timestamps": 17, "start": 0, "bytes_most": 600}
        >>> [builder.extend(column, None, None, stop=count, **few) for count in (5, 5, 1, 50)]
        [5, 0, 1, -1]
        """
        try:
            return self._native.extend(values, keys, timestamps, headers, start, stop, rows, bytes_most)
        except (ValueError, OverflowError) as wrong:
            raise InvalidRequest(str(wrong)) from None
        except BatchTooLarge:
            raise _too_large() from None

    def close(self) -> tuple[int, int, memoryview]:
        """Take no more records; `count`, `nbytes` and `timestamps` of those that it has. One that is being read
        meanwhile goes into the next batch: to read it may run code of others, and that may close this one."""
        native = self._native
        native.close()
        return native.count, native.nbytes, memoryview(native.timestamps).cast("q")

    def finish(self, codec: Codec = Codec.NONE, level: int | None = None) -> bytearray:
        """The batch behind HEADROOM bytes, compressed and sealed. Nothing can be appended any more."""
        if codec is Codec.NONE:
            return self._native.finish(_FIELDS, True)
        return _folded(self._native.finish(_FIELDS, False), codec, level)


@dataclass(frozen=True, slots=True)
class Cut:
    """One batch of columns, sealed, behind HEADROOM bytes."""

    data: bytearray | memoryview
    count: int
    stop: int
    """The row, or the place in `rows`, behind its last."""


def cut_columns(
    values: Any,
    keys: Any,
    headers: Any,
    *,
    timestamps: Any,
    start: int,
    stop: int,
    bytes_target: int,
    rows: npt.NDArray[np.int64] | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    into: memoryview | None = None,
) -> Cut:
    """The batch of the first records from `start` on that fit `bytes_target`, at least one. Columns are as
    `encode_columns` takes them; with `rows`, the records are those rows, and `start` and `stop` places in it.
    It is made in the memory `into`, if that is given, the batch fits there and is not compressed.

    >>> from ringlog.records.columns import Column
    >>> cut = cut_columns(Column.gather([b"x" * 100] * 50, "values"), None, None,
    ...                   timestamps=17, start=0, stop=50, bytes_target=1024)
    >>> cut.count, len(cut.data) <= 1024 + HEADROOM
    (8, True)
    """
    place = into if codec is Codec.NONE else None
    try:
        made = _kernel.encode_columns(
            values,
            keys,
            timestamps,
            headers,
            start,
            stop,
            _FIELDS,
            codec is Codec.NONE,  # now, while it is in this core's cache; one that is folded is sealed then
            rows,
            bytes_target,
            HEADROOM,
            place,
        )
    except (ValueError, OverflowError) as wrong:
        raise InvalidRequest(str(wrong)) from None
    except BatchTooLarge:
        raise _too_large() from None  # the first record alone: others are cut off before
    if isinstance(made, int):
        assert place is not None
        return _cut(place[:made], start)
    cut = _cut(made, start)
    return cut if codec is Codec.NONE else replace(cut, data=_folded(made, codec, level))


def _cut(batch: bytearray | memoryview, start: int) -> Cut:
    count = int.from_bytes(batch[_RECORD_COUNT], "big")
    if len(batch) - HEADROOM > limits.BATCH_BYTES_MAX:
        raise _too_large()
    return Cut(batch, count, start + count)


def _too_large() -> BatchTooLarge:
    return BatchTooLarge(f"one record takes more than {limits.BATCH_BYTES_MAX} bytes", "Send it in parts")


def seal_for(data: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Give a sealed batch behind HEADROOM bytes its producer's fields, in place; its CRC follows from the one it has.

    >>> builder = BatchBuilder(tuple, None, bytes_target=1024)
    >>> future, data = builder.append(b"x", None, 17, None), builder.finish()
    >>> seal_for(data, 7, 0, 0)
    >>> from ringlog.records.scan import check
    >>> check(memoryview(data)[HEADROOM:])["producer_id"].tolist()
    [7]
    """
    _kernel.seal_for(data, HEADROOM, producer_id, producer_epoch, base_sequence)


def _folded(batch: bytearray, codec: Codec, level: int | None) -> bytearray:
    records = memoryview(batch)[HEADROOM + limits.BATCH_HEADER_BYTES :]
    return _kernel.fold(batch, codecs.fold(codec, records, level), codec, HEADROOM)
