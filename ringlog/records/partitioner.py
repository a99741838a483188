"""Which partition a key belongs to: Kafka's murmur2, so that a key lands in the same place here and there."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ringlog.errors import InvalidRequest
from ringlog.native import _kernel


def partition_for(key: Any, partitions: int) -> int:
    """The partition of one key. The sign bit of the hash is dropped, as Kafka's producers do.

    >>> partition_for(b"customer-17", 12)
    4
    """
    if partitions <= 0:
        raise InvalidRequest(f"partitions must be positive, not {partitions}")
    return (_kernel.murmur2(key) & 0x7FFFFFFF) % partitions


def key_partitions(keys: Any, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each key of a `Column` or an Arrow array; -1 for a key that is null.

    >>> from ringlog.records.columns import Column
    >>> key_partitions(Column.of([b"customer-17", None, b"customer-18"]), 12).tolist()
    [4, -1, 0]
    """
    try:
        return np.frombuffer(_kernel.key_partitions(keys, partitions), dtype=np.int32)
    except ValueError as wrong:
        raise InvalidRequest(str(wrong)) from None


def partition_column(offsets: npt.NDArray[Any], data: Any, partitions: int) -> npt.NDArray[np.int32]:
    """The partitions of a column of keys: key `i` is `data[offsets[i]:offsets[i + 1]]`.

    >>> partition_column(np.array([0, 11, 22], dtype=np.int32), b"customer-17customer-18", 12).tolist()
    [4, 0]
    """
    if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype not in (np.int32, np.int64):
        raise InvalidRequest(
            "offsets must be an int32 or int64 array with one entry more than there are keys"
        )
    out = np.empty(len(offsets) - 1, dtype=np.int32)
    try:
        _kernel.partition_column(np.ascontiguousarray(offsets), data, partitions, out)
    except ValueError as wrong:
        raise InvalidRequest(str(wrong)) from None
    return out
