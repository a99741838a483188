"""Makes record batches from columns, without Python per record, or from sequences of Python objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ringlog import limits
from ringlog.errors import BatchTooLarge, InvalidRequest
from ringlog.model import Codec
from ringlog.native import _kernel
from ringlog.records import codecs
from ringlog.records.columns import Column
from ringlog.records.format import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
)

Header = tuple[str, bytes | None]


class _Fields(NamedTuple):
    """What a batch says beside its records, in the order in which the kernel takes it."""

    base_offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    attributes: int

    def check(self) -> None:
        for name, value, (low, high) in zip(self._fields, self, _FIELD_RANGES, strict=True):
            if not low <= value <= high:
                raise InvalidRequest(f"{name} must lie between {low} and {high}, but is {value}")


_FIELD_RANGES = (
    (0, 2**63 - 2 - limits.RECORDS_PER_BATCH_MAX),
    (-1, 2**31 - 1),
    (-1, 2**63 - 1),
    (-1, 2**15 - 1),
    (-1, 2**31 - 1),
    (0, 2**15 - 1),
)


def encode(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Sequence[Header] | None] | None = None,
    *,
    timestamps: int | Sequence[int],
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    transactional: bool = False,
    control: bool = False,
    append_time: bool = False,
) -> bytearray:
    """One batch of Python objects. `timestamps` are milliseconds, one for each record or one for all.

    >>> headers = [[("room", b"hall")], []]
    >>> batch = encode([b"on", None], keys=[b"lamp", b"fan"], headers=headers, timestamps=17)
    >>> len(batch)
    94
    """
    attributes = _attributes(append_time=append_time, transactional=transactional, control=control)
    fields = _Fields(base_offset, leader_epoch, producer_id, producer_epoch, base_sequence, attributes)
    fields.check()
    with _InvalidRequests():
        batch = _kernel.encode_objects(values, keys, timestamps, headers, fields, codec is Codec.NONE)
    return _finish(batch, codec, level)


def encode_columns(
    values: Any,
    keys: Any = None,
    headers: Any = None,
    *,
    timestamps: Any,
    start: int = 0,
    stop: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    transactional: bool = False,
    control: bool = False,
    append_time: bool = False,
) -> bytearray:
    """One batch of the rows `start` to `stop` of columns, so that a large column is cut without a copy.

    `values` and `keys` are each a `Column` or an Arrow array (anything with `__arrow_c_array__`) of binary,
    large_binary, string, large_string or fixed_size_binary. `headers` is an Arrow array of
    list<struct<key: string, value: binary>>. `timestamps` are milliseconds: one int for all, an int64 array,
    or an Arrow array of int64 or timestamp[ms]. The GIL is released while the records are written.

    >>> column = Column.of([b"a", b"b", b"c"])
    >>> encode_columns(column, timestamps=17, start=1) == encode([b"b", b"c"], timestamps=17)
    True
    """
    attributes = _attributes(append_time=append_time, transactional=transactional, control=control)
    fields = _Fields(base_offset, leader_epoch, producer_id, producer_epoch, base_sequence, attributes)
    fields.check()
    if not isinstance(timestamps, int) and not hasattr(timestamps, "__arrow_c_array__"):
        _check_int64(timestamps)
    last = -1 if stop is None else stop
    if last < -1:
        raise InvalidRequest(f"stop must not be negative, but is {stop}")
    with _InvalidRequests():
        batch = _kernel.encode_columns(
            values, keys, timestamps, headers, start, last, fields, codec is Codec.NONE
        )
    return _finish(batch, codec, level)


def encode_empty(
    *,
    base_offset: int,
    last_offset: int,
    max_timestamp: int = -1,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    append_time: bool = False,
) -> bytearray:
    """A batch without records, as compaction leaves it: it keeps its offsets and its producer's state.

    >>> len(encode_empty(base_offset=10, last_offset=19))
    61
    """
    attributes = _attributes(append_time=append_time, transactional=transactional, control=control)
    fields = _Fields(base_offset, leader_epoch, producer_id, producer_epoch, base_sequence, attributes)
    fields.check()
    with _InvalidRequests():
        return _kernel.encode_empty(last_offset, max_timestamp, fields)


class _InvalidRequests:
    """Turns the kernel's complaints about arguments into InvalidRequest."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError | OverflowError):
            raise InvalidRequest(str(error)) from None


def _attributes(*, append_time: bool, transactional: bool, control: bool) -> int:
    return (
        (APPEND_TIME_BIT if append_time else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
    )


def _check_int64(timestamps: Any) -> None:
    view = memoryview(timestamps)
    if view.format not in ("l", "q") or view.ndim != 1:
        raise InvalidRequest("timestamps must be an int, or an array of int64")


def _finish(batch: bytearray, codec: Codec, level: int | None) -> bytearray:
    if codec is not Codec.NONE:
        records = memoryview(batch)[limits.BATCH_HEADER_BYTES :]
        batch = _kernel.fold(batch, codecs.fold(codec, records, level), codec)
    if len(batch) > limits.BATCH_BYTES_MAX:
        raise BatchTooLarge(
            f"the batch takes {len(batch)} bytes, and at most {limits.BATCH_BYTES_MAX} are accepted; "
            "put fewer records into it"
        )
    return batch


__all__ = ["Column", "Header", "encode", "encode_columns", "encode_empty"]
