"""A place in a log up to which all is known: what checkpoints, seals and cuts make durable."""

from __future__ import annotations

from typing import NamedTuple

from ringlog.log.epochs import EpochStart
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
    segment = log.active
    return Mark(
        segment=segment,
        next_offset=segment.next_offset,
        position=segment.position,
        bytes_appended=log.bytes_appended,
        max_timestamp=segment.index.max_timestamp,
        max_timestamp_offset=segment.index.max_timestamp_offset,
        index_entries=len(segment.index.offsets),
        time_index_entries=len(segment.index.times),
        has_index_gap=segment.index_gap_end > 0,
        epochs=log.epochs.starts,
        snapshot=log.producers.encode(segment.next_offset) if len(log.producers) else None,
    )
