"""Scans, checks, finds and stamps record batches in any buffer: nothing is copied, no length is trusted."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ringlog import limits
from ringlog.errors import CorruptBatch, InvalidRequest
from ringlog.native import _kernel
from ringlog.records.format import BATCH_ROW, BATCH_TABLE, BatchRow

Level = Literal["headers", "crc", "full"]
"""How far each batch is checked: its header's fields; and its CRC; and the structure of its records
(where they are not compressed: those are checked when they are decoded)."""

_LEVELS: dict[str, int] = {"headers": 0, "crc": 1, "full": 2}


class Scan(NamedTuple):
    """The whole batches that a buffer begins with, and why they end where they end."""

    table: npt.NDArray[np.void]
    """One BATCH_TABLE row for each whole batch."""
    end: int
    """The byte behind the last whole batch."""
    fault: CorruptBatch | None
    """What stopped the scan; None when the data ends exactly where a batch does."""
    incomplete: bool
    """Nothing is wrong with what is there: the data only ends before its last batch does."""


def scan(
    data: Any,
    *,
    expected_offset: int | None = None,
    dense: bool = True,
    min_epoch: int = -1,
    level: Level = "full",
    gapless: bool = False,
    bytes_max: int = limits.BATCH_BYTES_MAX,
) -> Scan:
    """Walk a buffer of batches and stop at the first fault. Never raises for what the bytes say.

    With `expected_offset`, the first batch must have it as its base offset and each other one must follow the
    one before without a gap; unless not `dense`, when base offsets may skip, as in a compacted log. Leader
    epochs must then not fall below `min_epoch`, nor below an earlier one. With `gapless`, a batch must be as
    a producer makes it: one record for every offset.

    >>> from ringlog.records.encode import encode
    >>> batch = encode([b"hello"], timestamps=0, base_offset=7)
    >>> found = scan(batch + b"torn", expected_offset=7)
    >>> found.table["last_offset"].tolist(), found.end == len(batch), found.incomplete
    ([7], True, True)
    """
    expected = _expected(expected_offset)
    rows, end, fault, incomplete = _kernel.scan(
        data, _LEVELS[level], bytes_max, expected, dense, min_epoch, gapless, False
    )
    return Scan(_table(rows), end, fault, incomplete)


def check(
    data: Any,
    *,
    expected_offset: int | None = None,
    dense: bool = True,
    min_epoch: int = -1,
    level: Level = "full",
    gapless: bool = False,
    bytes_max: int = limits.BATCH_BYTES_MAX,
) -> npt.NDArray[np.void]:
    """The BATCH_TABLE of a buffer that must hold whole, right batches and nothing else.

    Takes what `scan` takes. Raises CorruptBatch, which names the field, its position and the reason, at the
    first fault, an incomplete batch at the end included.

    >>> from ringlog.records.encode import encode
    >>> check(encode([b"a", b"b"], timestamps=0))["record_count"].tolist()
    [2]
    """
    expected = _expected(expected_offset)
    rows = _kernel.scan(data, _LEVELS[level], bytes_max, expected, dense, min_epoch, gapless, True)[0]
    return _table(rows)


def check_rows(data: Any, level: Level = "full") -> list[BatchRow]:
    """As `check`, for those who look at each batch by itself.

    >>> from ringlog.records.encode import encode
    >>> [row.record_count for row in check_rows(encode([b"a", b"b"], timestamps=0))]
    [2]
    """
    rows = _kernel.scan(data, _LEVELS[level], limits.BATCH_BYTES_MAX, -1, True, -1, False, True)[0]
    return [BatchRow(*row) for row in BATCH_ROW.iter_unpack(rows)]


def copy_checked(into: list[memoryview], data: Any) -> None:
    """Copy whole batches to memory in one or more pieces, as large as they are, and check headers and CRCs on the way:
    one pass over the bytes. CorruptBatch as `check` raises it; part of the data is copied then.

    >>> from ringlog.records.encode import encode
    >>> batch = encode([b"hello"], timestamps=0)
    >>> copy = memoryview(bytearray(len(batch)))
    >>> copy_checked([copy[:10], copy[10:]], batch)
    >>> copy == batch
    True
    """
    _kernel.copy_checked(into, data)


def find_batch(data: Any, start: int, *, min_offset: int, bytes_max: int = limits.BATCH_BYTES_MAX) -> int:
    """The first byte at or behind `start` where a whole batch with a right CRC begins whose base offset is at
    least `min_offset`; -1 when there is none. One pass over the bytes, whatever they claim to be.

    >>> from ringlog.records.encode import encode
    >>> find_batch(b"torn bytes" + encode([b"hello"], timestamps=0), 0, min_offset=0)
    10
    """
    if start < 0:
        raise InvalidRequest(f"start must not be negative, but is {start}")
    return _kernel.find_batch(data, start, min_offset, bytes_max)


def stamp(data: Any, *, base_offset: int, leader_epoch: int, append_time_ms: int | None = None) -> int:
    """Give the batches in a writable buffer consecutive offsets and a leader epoch, in place; return the next
    offset. An append time becomes the timestamp of every record and renews the CRC.

    The batches were checked before. Their lengths are checked all the same, before the first byte is changed.

    >>> from ringlog.records.encode import encode
    >>> batch = encode([b"a", b"b"], timestamps=0)
    >>> stamp(batch, base_offset=40, leader_epoch=3)
    42
    """
    if base_offset < 0 or leader_epoch < -1:
        raise InvalidRequest(f"cannot stamp offset {base_offset} and epoch {leader_epoch}")
    return _kernel.stamp(data, base_offset, leader_epoch, append_time_ms)


def _expected(offset: int | None) -> int:
    """An expected offset as the kernel takes it: -1 for any."""
    if offset is None:
        return -1
    if offset < 0:
        raise InvalidRequest(f"expected_offset must not be negative, but is {offset}")
    return offset


def _table(rows: bytearray) -> npt.NDArray[np.void]:
    return np.frombuffer(rows, dtype=BATCH_TABLE)
