"""The records of the storage demo: each can be told from its offset alone, so a reader needs no second copy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ringlog.records.columns import Column
from ringlog.records.encode import encode_columns

VALUE_BYTES = 100
BATCH_RECORDS = 1_000
FIRST_TIMESTAMP_MS = 1_700_000_000_000
RECORDS_PER_MS = 10


def values(first_offset: int, count: int) -> npt.NDArray[np.uint8]:
    """The values of `count` records, one row each: the offset in the first 8 bytes, a pattern made of it behind.

    >>> bytes(values(258, 1)[0, :10])
    b'\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x02/M'
    """
    offsets = np.arange(first_offset, first_offset + count, dtype=np.uint64)
    rows = np.empty((count, VALUE_BYTES), dtype=np.uint8)
    rows[:, :8] = offsets.astype(">u8").view(np.uint8).reshape(count, 8)
    steps = np.arange(VALUE_BYTES - 8, dtype=np.uint8) * np.uint8(30)
    rows[:, 8:] = (offsets * np.uint64(7) + np.uint64(33)).astype(np.uint8)[:, None] + steps
    return rows


def timestamps(first_offset: int, count: int) -> npt.NDArray[np.int64]:
    """Milliseconds of `count` records: ten share one.

    >>> (timestamps(9, 2) - FIRST_TIMESTAMP_MS).tolist()
    [0, 1]
    """
    offsets = np.arange(first_offset, first_offset + count, dtype=np.int64)
    return FIRST_TIMESTAMP_MS + offsets // RECORDS_PER_MS


def batch(first_offset: int) -> bytearray:
    """The batch of the BATCH_RECORDS records from an offset on, not yet stamped."""
    data = values(first_offset, BATCH_RECORDS)
    offsets = np.arange(0, data.size + 1, VALUE_BYTES, dtype=np.int32)
    times = timestamps(first_offset, BATCH_RECORDS)
    return encode_columns(Column(offsets, data.reshape(-1)), timestamps=times)
