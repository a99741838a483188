"""Cuts a log back to its first hole, so that a follower can fetch from its leader what it lacks.

    │ whole │ hole: rotten or missing │ behind it │ active │
            ▲          ▼                    ▼          ▼
     ends here now    *.bad              *.spare      *.bad

Order matters: first the files leave their names, then the state says where the log ends. A crash in between leaves a
state that names files which are not there: the log has its hole still, and is cut again.

Spare files are good. Others should have their records, and may have lost them unseen: so they are kept until this log
has all of them again, and nothing is cut where the disk has no room for both. A rotten file is kept for people, and so
is the active one, since perhaps nobody else has its last records; of many, the last few.
"""

from __future__ import annotations

import logging

from ringlog.errors import DiskFull
from ringlog.log.housekeeping import Housekeeper
from ringlog.log.jobs import Job, must
from ringlog.log.names import BAD, INDEX, LOG, SPARE, TIME_INDEX, free_name, offset_name
from ringlog.log.new_end import mark_at, remove_snapshots_above
from ringlog.log.partition import PartitionLog
from ringlog.log.scanner import Scratch
from ringlog.log.segment import ActiveSegment, Segment

_logger = logging.getLogger(__name__)


def cut_to_hole(log: PartitionLog, housekeeper: Housekeeper, now_ms: int, scratch: Scratch) -> Job[None]:
    """Let a log end where its first hole begins. It must be idle, and is to be reopened afterwards."""
    offset = log.hole_offset
    assert offset is not None, "there is a hole"
    kept = [
        segment for segment in log.segments if segment.next_offset <= offset and segment is not log.active
    ]
    behind = log.segments[len(kept) :]
    spare_bytes = sum(one.position for one in behind if not one.quarantined)
    if not log.context.space.has_room_for(spare_bytes):
        raise DiskFull(
            f"{log.name}: what stands behind its hole at {offset} is kept until others have sent it again, and "
            f"there is no room for both. Free {spare_bytes} bytes; it goes on by itself"
        )
    end = ActiveSegment(offset, now_ms)
    mark = yield from mark_at(log, housekeeper, end, now_ms, scratch)
    for segment in behind:
        _give_up(log, segment)
    must((yield log.context.disk.flush_dir(log.path)), "flush directory")
    log.segments[len(kept) :] = [end]
    yield from housekeeper.save_mark(mark, with_indexes=False)
    remove_snapshots_above(log, offset)
    _logger.warning(
        "%s is cut to %d: what it should have from there on was rotten or missing. Files that stood there are kept "
        "as *.bad and, until it has caught up, *.spare",
        log.name,
        offset,
    )


def _give_up(log: PartitionLog, segment: Segment) -> None:
    disk, name = log.context.disk, offset_name(segment.base_offset, LOG)
    path = f"{log.path}/{name}"
    if disk.exists(path):
        suffix = BAD if segment.quarantined or segment is log.active else SPARE
        disk.rename(path, f"{log.path}/{free_name(disk, log.path, name, suffix)}")
    for derived in (INDEX, TIME_INDEX):
        index = f"{log.path}/{offset_name(segment.base_offset, derived)}"
        if disk.exists(index):
            disk.remove(index)
