"""What a partition's log tells its owner."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ringlog.errors import CorruptSegment, DiskFull, PartitionFenced, RinglogError
from ringlog.model import Durability, TopicPartition

if TYPE_CHECKING:
    from ringlog.log.partition import PartitionLog


class Appended(NamedTuple):
    """Where batches stand in the log. `repeated`: they stood there before and were not appended again."""

    base_offset: int
    last_offset: int
    append_time_ms: int = -1
    """The time of all their records, that of the first append for a repeat; -1: they keep their producer's times."""
    repeated: bool = False


class Progress(NamedTuple):
    """All records below `offset` have reached `durability`."""

    log: PartitionLog
    offset: int
    durability: Durability


class Submitted(NamedTuple):
    """More of a replicated log is on its way to the device: followers may be sent it (`submitted_offset`)."""

    log: PartitionLog


class Fenced(NamedTuple):
    """The partition takes no appends any more. What was not acknowledged by now may be in the log or not: that shows
    when it is opened again."""

    log: PartitionLog
    error: RinglogError


class Quarantined(NamedTuple):
    """A segment was found corrupt and is refused to readers."""

    log: PartitionLog
    error: CorruptSegment


class ReadRefused(NamedTuple):
    """The device did not give what a sealed segment holds (EIO). Who asked was told so; the next time it may do."""

    log: PartitionLog
    base_offset: int
    """Of the segment."""
    refuse: Callable[[], object]
    """Refuses it from now on, as if it had rotted."""


class StartMoved(NamedTuple):
    """The log begins at `offset`, also after a power loss."""

    log: PartitionLog
    offset: int


Event = Progress | Submitted | Fenced | Quarantined | ReadRefused | StartMoved


def disk_error(name: TopicPartition, what: str, cause: int | Exception) -> RinglogError:
    """The typed error for a failed disk call, by its errno or exception."""
    if isinstance(cause, RinglogError):
        return cause
    code = cause if isinstance(cause, int) else getattr(cause, "errno", None) or errno.EIO
    if code in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{name}: {what}: the disk is full. Free space, then reopen the partition")
    detail = errno.errorcode.get(code, str(code)) if isinstance(cause, int) else str(cause)
    return PartitionFenced(f"{name}: {what} failed ({detail}). Reopen the partition from disk")


def not_open(name: TopicPartition) -> PartitionFenced:
    """What is said of a log that nobody has opened."""
    return PartitionFenced(f"{name}: it is not open. Open it, then retry")


def not_taken(name: TopicPartition, status: str, why: RinglogError | None) -> RinglogError:
    """The error for an append to a log that is closed: a full disk keeps its name, since clients wait for room."""
    kind = DiskFull if isinstance(why, DiskFull) else PartitionFenced
    return kind(f"{name}: {status}: {why or 'reopen it'}")
