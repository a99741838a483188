"""The words that every part of ringlog shares."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Durability(IntEnum):
    """How far a record has come. Each state includes the ones before it."""

    RECEIVED = 0
    """In the memory of the partition's owner."""
    WRITTEN = 1
    """The write completed: it survives the death of any process."""
    FLUSHED = 2
    """It survives the loss of power."""
    COMMITTED = 3
    """Below the high watermark: every in-sync replica has flushed it."""
    STABLE = 4
    """Below the last stable offset: no open transaction can still take it back."""


class TimestampType(IntEnum):
    """Whose clock a record's timestamp comes from."""

    CREATE = 0
    APPEND = 1


NO_LEADER = -1
"""In place of a node: no in-sync replica of a partition is alive, and it has stopped."""


class Codec(IntEnum):
    """Compression of a batch, by the numbers of the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class LogEnds(NamedTuple):
    """Where a partition's log begins and ends, and when it grew."""

    log_start_offset: int
    readable_offset: int
    marks: list[tuple[int, int]]
    """(offset, ms), ascending, one at least: the record at `offset` came at `ms` or later."""


class TopicPartition(NamedTuple):
    """One partition of one topic; its directory is named ``topic-partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
