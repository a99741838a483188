"""What must be known of a log that is to end earlier than it does: its recovery point, and which snapshots are void."""

from __future__ import annotations

import logging

from ringlog.log.epochs import EpochHistory
from ringlog.log.jobs import Job
from ringlog.log.mark import Mark
from ringlog.log.names import SNAPSHOT, parse_offset_name
from ringlog.log.partition import PartitionLog
from ringlog.log.producer_replay import SegmentPart, producers_at
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
    return Mark(
        segment=kept,
        next_offset=kept.next_offset,
        position=kept.position,
        bytes_appended=log.bytes_appended,
        max_timestamp=kept.index.max_timestamp,
        max_timestamp_offset=kept.index.max_timestamp_offset,
        index_entries=len(kept.index.offsets),
        time_index_entries=len(kept.index.times),
        has_index_gap=False,
        epochs=epochs.starts,
        snapshot=snapshot,
    )


def remove_snapshots_above(log: PartitionLog, offset: int) -> None:
    """A snapshot of what is cut would be wrong once the log has grown past it again."""
    for name, _ in log.context.disk.list_dir(log.path):
        parsed = parse_offset_name(name)
        if parsed is not None and parsed.suffix == SNAPSHOT and parsed.offset > offset:
            log.context.disk.remove(f"{log.path}/{name}")
