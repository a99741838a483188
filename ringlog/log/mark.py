"""A place in a log up to which all is known: what checkpoints, seals and cuts make durable."""

from __future__ import annotations

from typing import NamedTuple

from ringlog.log.epochs import EpochHistory, EpochStart
from ringlog.log.partition import PartitionLog
from ringlog.log.segment import ActiveSegment
from ringlog.log.state import ActivePoint


class Mark(NamedTuple):
    """A place between two groups of batches, with all that the log knew there."""

    segment: ActiveSegment
    next_offset: int
    position: int
    bytes_appended: int
    max_timestamp: int
    max_timestamp_offset: int
    index_entries: int
    time_index_entries: int
    has_index_gap: bool
    """The indexes lacked entries then: these numbers of entries reach less far than the position."""
    epochs: tuple[EpochStart, ...]
    snapshot: bytes | None
    """The producers' state, None when there are no producers."""


def active_point(mark: Mark) -> ActivePoint:
    """A mark as the state of a partition names it."""
    segment = mark.segment
    return ActivePoint(
        base_offset=segment.base_offset,
        next_offset=mark.next_offset,
        position=mark.position,
        created_ms=segment.created_ms,
        max_timestamp=mark.max_timestamp,
        max_timestamp_offset=mark.max_timestamp_offset,
        indexes=segment.saved,
    )


def take_mark(log: PartitionLog) -> Mark:
    """The end of what was received. Only between two groups does the end of a write coincide with it."""
    end_offset = log.active.next_offset
    snapshot = log.producers.encode(end_offset) if len(log.producers) else None
    return mark_of(log, log.active, log.epochs, snapshot)


def mark_of(log: PartitionLog, last: ActiveSegment, epochs: EpochHistory, snapshot: bytes | None) -> Mark:
    """The end of a log that ends with this segment."""
    return Mark(
        segment=last,
        next_offset=last.next_offset,
        position=last.position,
        bytes_appended=log.bytes_appended,
        max_timestamp=last.index.max_timestamp,
        max_timestamp_offset=last.index.max_timestamp_offset,
        index_entries=len(last.index.offsets),
        time_index_entries=len(last.index.times),
        has_index_gap=last.index_gap_end > 0,
        epochs=epochs.starts,
        snapshot=snapshot,
    )
