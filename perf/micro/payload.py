"""Batches to measure with: random bytes, so that nothing along the way can be cheaper than it is in life."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ringlog.log.batch import BatchInfo, batch_infos
from ringlog.records.columns import Column
from ringlog.records.encode import encode_columns
from ringlog.records.scan import check

FIRST_TIMESTAMP_MS = 1_700_000_000_000


def values(count: int, nbytes: int) -> Column:
    """A column of `count` values of `nbytes` each.

    >>> len(values(3, 100)), len(values(3, 100)[0])
    (3, 100)
    """
    data = np.random.default_rng(seed=1).integers(0, 256, count * nbytes, dtype=np.uint8)
    return Column(np.arange(0, (count + 1) * nbytes, nbytes, dtype=np.int32), data)


def timestamps(count: int) -> np.ndarray:
    """A millisecond for every ten records."""
    return FIRST_TIMESTAMP_MS + np.arange(count, dtype=np.int64) // 10


class Group(NamedTuple):
    """Batches as a log takes them in one append: one behind the other in writable memory, and checked."""

    data: memoryview
    batches: list[BatchInfo]


def group(group_bytes: int, batch_bytes: int, value_bytes: int) -> Group:
    """As many batches as fit, each as near below `batch_bytes` as whole records allow.

    >>> made = group(64 * 1024, 16 * 1024, 1000)
    >>> len(made.batches), made.data.nbytes
    (4, 64820)
    """
    per_record = len(encode_columns(values(2, value_bytes), timestamps=0)) - len(
        encode_columns(values(1, value_bytes), timestamps=0)
    )
    # The header, and two bytes that the deltas of later records may take more than those of the first.
    count = (batch_bytes - 61) // (per_record + 2)
    column, times = values(count, value_bytes), timestamps(count)
    one = encode_columns(column, timestamps=times)
    data = memoryview(bytearray(bytes(one) * (group_bytes // batch_bytes)))
    return Group(data, batch_infos(check(data, level="full")))
