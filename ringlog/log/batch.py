"""What a log must know of a batch before it appends it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class BatchInfo(NamedTuple):
    """One whole, checked batch, by its header."""

    nbytes: int
    record_count: int
    max_timestamp: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


def batch_infos(table: np.ndarray) -> list[BatchInfo]:
    """The rows of a BATCH_TABLE, as append() takes them."""
    columns = table[
        ["length", "record_count", "max_timestamp", "producer_id", "producer_epoch", "base_sequence"]
    ]
    return [BatchInfo(*row) for row in columns.tolist()]
