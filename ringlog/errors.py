"""Typed errors: each has a stable code, says what to do, and whether a retry can help."""

from __future__ import annotations

from typing import ClassVar


class RinglogError(Exception):
    """The root of all errors that ringlog raises on purpose."""

    code: ClassVar[str] = "INTERNAL"
    retriable: ClassVar[bool] = False


class InvariantBroken(RinglogError):
    """Something that must always hold did not. A bug in ringlog, or memory that cannot be trusted."""

    code = "INVARIANT_BROKEN"


class InvalidRequest(RinglogError):
    """The caller asked for something that no state of the log could make right."""

    code = "INVALID_REQUEST"


class CorruptInput(RinglogError):
    """Bytes that a parser refused. Names the field, its position and what is wrong with it."""

    code = "CORRUPT_INPUT"

    def __init__(self, field: str, position: int, reason: str) -> None:
        super().__init__(f"{field} at byte {position}: {reason}")
        self.field = field
        self.position = position
        self.reason = reason

    def __reduce__(self) -> tuple[type[CorruptInput], tuple[str, int, str]]:
        return (type(self), (self.field, self.position, self.reason))


class CorruptBatch(CorruptInput):
    """A record batch that is not whole, or not what its CRC says."""

    code = "CORRUPT_BATCH"


class CorruptFile(CorruptInput):
    """An index, snapshot or state file that does not hold what it must. These are derived: rebuilt when bad."""

    code = "CORRUPT_FILE"


class CorruptSegment(RinglogError):
    """A segment holds a broken batch where everything was already durable: it is quarantined, not deleted."""

    code = "CORRUPT_SEGMENT"


class BatchTooLarge(RinglogError):
    """One batch is larger than the partition accepts. Send smaller batches, or raise max.message.bytes."""

    code = "BATCH_TOO_LARGE"


class OffsetOutOfRange(RinglogError):
    """The offset is below the log's start or above its end; the message names both."""

    code = "OFFSET_OUT_OF_RANGE"


class PartitionFenced(RinglogError):
    """A disk error made the partition's memory and its file differ: it takes no appends until it is reopened."""

    code = "PARTITION_FENCED"
    retriable = True


class PartitionBusy(RinglogError):
    """Too many bytes wait to be written. Retry after a pause."""

    code = "PARTITION_BUSY"
    retriable = True


class DiskFull(RinglogError):
    """The file system has no room. Retry when space was freed."""

    code = "DISK_FULL"
    retriable = True


class DiskEngineUnavailable(RinglogError):
    """The disk engine that was asked for does not work here; the message says why and how to allow it."""

    code = "DISK_ENGINE_UNAVAILABLE"


class OutOfOrderSequence(RinglogError):
    """A producer skipped a sequence number: an earlier batch of its was lost or is still on its way."""

    code = "OUT_OF_ORDER_SEQUENCE"


class ProducerFenced(RinglogError):
    """A newer producer took over this producer id. Stop this one."""

    code = "PRODUCER_FENCED"


class RingFull(RinglogError):
    """The reader of a ring is behind. Retry when it has caught up."""

    code = "RING_FULL"
    retriable = True


class RingCorrupt(CorruptInput):
    """A ring's memory is in no state that a ring can have. It is not repaired: make a new generation."""

    code = "RING_CORRUPT"


class RingStale(RinglogError):
    """The handle is bound to a generation of the ring that is no more. Open the current one, then retry."""

    code = "RING_STALE"
    retriable = True


class RingTaken(RinglogError):
    """This generation of the ring already has, or had, a writer (or reader). Make a new generation."""

    code = "RING_TAKEN"


class RingClosed(RinglogError):
    """The reader of the ring closed it. Retry with the next generation."""

    code = "RING_CLOSED"
    retriable = True


def check(condition: bool, what_must_hold: str) -> None:
    """Raise InvariantBroken unless the condition holds. Always on: a broken invariant must not reach a disk.

    >>> check(1 + 1 == 2, "arithmetic works")
    """
    if not condition:
        raise InvariantBroken(what_must_hold)
