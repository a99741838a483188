"""What must be known of a log that is to end earlier than it does: its recovery point, and which snapshots are void."""

from __future__ import annotations

import logging

from ringlog.log.epochs import EpochHistory
from ringlog.log.jobs import Job
from ringlog.log.mark import Mark, mark_of
from ringlog.log.names import SNAPSHOT, offset_name
from ringlog.log.partition import PartitionLog
from ringlog.log.producer_replay import SegmentPart, producers_at, snapshot_offsets
from ringlog.log.scanner import Scratch
from ringlog.log.segment import ActiveSegment

_logger = logging.getLogger(__name__)


def mark_at(log: PartitionLog, kept: ActiveSegment, now_ms: int, scratch: Scratch) -> Job[Mark]:
    """The recovery point of a log that ends with this segment."""
    epochs = EpochHistory(list(log.epochs.starts))
    epochs.cut_end(kept.next_offset)
    snapshot = None
    if len(log.producers):
        parts = [
            SegmentPart(s.base_offset, s.next_offset, s.position)
            for s in log.segments
            if not s.quarantined and s.base_offset < kept.next_offset
        ]
        producers = yield from producers_at(
            log.context.disk, log.path, log.files, parts, kept.next_offset, now_ms, scratch, _logger.warning
        )
        snapshot = producers.encode(kept.next_offset) if len(producers) else None
    return mark_of(log, kept, epochs, snapshot)


def remove_snapshots_above(log: PartitionLog, offset: int) -> None:
    """A snapshot of what is cut would be wrong once the log has grown past it again."""
    disk = log.context.disk
    for taken in snapshot_offsets(disk, log.path):
        if taken > offset:
            disk.remove(f"{log.path}/{offset_name(taken, SNAPSHOT)}")
