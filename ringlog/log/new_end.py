"""What must be known of a log that is to end earlier than it does: its recovery point, and which snapshots are void."""

from __future__ import annotations

import logging

from ringlog.log.epochs import EpochHistory
from ringlog.log.housekeeping import Housekeeper
from ringlog.log.jobs import Job
from ringlog.log.mark import Mark, mark_of
from ringlog.log.names import SNAPSHOT, offset_name
from ringlog.log.partition import PartitionLog
from ringlog.log.producer_replay import SegmentPart, producers_at, snapshot_offsets
from ringlog.log.scanner import Scratch
from ringlog.log.segment import ActiveSegment

_logger = logging.getLogger(__name__)


def mark_at(
    log: PartitionLog, housekeeper: Housekeeper, kept: ActiveSegment, now_ms: int, scratch: Scratch
) -> Job[Mark]:
    """The recovery point of a log that ends with this segment. CorruptSegment when a segment below turns out to be
    rotten: from then on that is refused, and the log has a hole, to which it may be cut instead."""
    epochs = EpochHistory(list(log.epochs.starts))
    epochs.cut_end(kept.next_offset)
    snapshot = None

    def rotten(base_offset: int, why: str) -> None:
        raise housekeeper.found_rotten(log.segment_of(base_offset), why)

    if len(log.producers):
        parts = [
            SegmentPart(s.base_offset, s.next_offset, s.position)
            for s in log.segments
            if not s.quarantined and s.base_offset < kept.next_offset
        ]
        producers = yield from producers_at(
            log.context.disk,
            log.path,
            log.files,
            parts,
            kept.next_offset,
            now_ms,
            scratch,
            _logger.warning,
            rotten,
        )
        snapshot = producers.encode(kept.next_offset) if len(producers) else None
    return mark_of(log, kept, epochs, snapshot)


def remove_snapshots_above(log: PartitionLog, offset: int) -> None:
    """A snapshot of what is cut would be wrong once the log has grown past it again."""
    disk = log.context.disk
    for taken in snapshot_offsets(disk, log.path):
        if taken > offset:
            disk.remove(f"{log.path}/{offset_name(taken, SNAPSHOT)}")
