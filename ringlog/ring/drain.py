"""What one drain of a ring returns: a table with a row for each frame, grouped by partition.

The dtypes are the structs of `drain_layout.hpp`, byte for byte.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringlog.native import _kernel


class DrainStatus(IntEnum):
    """0, or why a frame must be refused. Such frames are rows too: their senders want an answer."""

    OK = 0
    FRAME_SHORT = 1
    """The message is smaller than a frame's header: no field of the row can be trusted."""
    FRAME_VERSION = 2
    """Not a version that this code knows."""
    FRAME_BODY_BYTES = 3
    """`body_bytes` of the header is not what the message holds."""
    NO_BATCH = 4
    """Produce without a batch."""
    BAD_BATCH = 5
    """A batch's length, CRC or structure is wrong; `records.scan` of the body says which field, and why."""
    MIXED_PRODUCERS = 6
    """Batches of several producers, or with a gap in their sequences."""


NO_PARTITION = 2**32 - 1
"""The partition of a frame that is too short to name one; its group comes last."""

DRAIN_ROW = np.dtype(
    [
        ("correlation", "<u8"),
        ("session", "<u8"),
        ("body_position", "<u8"),  # offset of the body in the ring's memory
        ("producer_id", "<i8"),  # of the first batch; -1: none
        ("max_timestamp", "<i8"),  # the largest of all batches; -1 without a batch
        ("partition", "<u4"),
        ("kind", "<u4"),  # of the ring message
        ("deadline_ms", "<u4"),
        ("body_bytes", "<u4"),  # as the message has them, whatever the header says
        ("batch_count", "<u4"),
        ("record_count", "<u4"),  # of all batches
        ("base_sequence", "<i4"),  # of the first batch; -1: none
        ("last_sequence", "<i4"),  # of the last batch's last record; -1: none
        ("fault_position", "<u4"),  # byte of the frame, its header included, where the wrong field stands
        ("producer_epoch", "<i2"),  # of the first batch; -1: none
        ("flags", "<u2"),
        ("attributes_any", "<u2"),  # those of all batches, or-ed: for bits that no batch may have
        ("status", "<u2"),  # a DrainStatus
        ("api_key", "<u1"),
        ("version", "<u1"),
        ("zero", "<u2"),
    ]
)

DRAIN_ROW_STRUCT = struct.Struct("<QQQqqIIIIIIiiIhHHHBBH")
"""The same, for rows that are looked at one by one."""
assert DRAIN_ROW_STRUCT.size == DRAIN_ROW.itemsize

DRAIN_GROUP = np.dtype([("partition", "<u4"), ("first_row", "<u4"), ("rows", "<u4")])


def copy_batches(into: memoryview, source: memoryview) -> tuple[int, ...]:
    """Copy the batches of a produce request out of memory that somebody else may write to, and check the copy, as a
    drain checks a frame that holds them: a row in the order of DRAIN_ROW, without what a frame's header says.

    >>> from ringlog.records.encode import encode
    >>> batch = encode([b"a", b"b"], timestamps=0)
    >>> copy = bytearray(len(batch))
    >>> row = dict(zip(DRAIN_ROW.names, copy_batches(memoryview(copy), memoryview(batch))))
    >>> copy == batch, row["status"], row["record_count"]
    (True, 0, 2)
    """
    return DRAIN_ROW_STRUCT.unpack(_kernel.copy_batches(into, source))


class DrainTable(NamedTuple):
    """Frames of one drain. Their bodies lie in `RingReader.memory` until `release`; the table is a copy."""

    rows: NDArray[np.void]
    """DRAIN_ROW: by partition, and in the order of arrival within one."""
    groups: NDArray[np.void]
    """DRAIN_GROUP: the rows `first_row : first_row + rows` of each partition, by partition."""
