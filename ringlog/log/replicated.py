"""What a follower does with its log: appends batches as its leader stamped them, with the gaps that compaction left."""

from __future__ import annotations

from ringlog.errors import check
from ringlog.limits import RELATIVE_OFFSET_MAX
from ringlog.log.admission import require_room
from ringlog.log.batch import BatchInfo
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition
from ringlog.records.format import BatchRow
from ringlog.records.scan import copy_checked


def append_as_they_are(
    store: LogStore, name: TopicPartition, data: memoryview, rows: list[BatchRow], *, now_ms: int
) -> None:
    """Append whole batches without a change to any byte. `rows`: what their headers say; they fill the data.

    The caller has seen that they continue the log: offsets grow, epochs never go back. Their CRCs are checked as they
    are copied. They are `received` on return: those before the first gap that no segment spans, which are nearly always
    all; or none when CorruptBatch, PartitionBusy, PartitionFenced or DiskFull is raised."""
    log = store.admit(name, data.nbytes)
    log.must_be_open()
    check(bool(rows) and sum([row.length for row in rows]) == data.nbytes, "the batches fill the data")
    check(rows[0].base_offset >= log.next_offset, "batches stand behind the end of the log")
    check(rows[0].leader_epoch >= log.epochs.latest, "a leader epoch never goes back")
    rows = _of_one_segment(rows)
    data = data[: sum([row.length for row in rows])]
    require_room(log, data.nbytes)
    if rows[-1].last_offset - log.next_offset > RELATIVE_OFFSET_MAX:
        # It begins there already if there was no memory the last time.
        if log.active.base_offset != rows[0].base_offset:
            log.roll(now_ms, rows[0].base_offset)
    elif log.must_roll(data.nbytes, rows[-1].last_offset + 1 - log.next_offset, now_ms):
        log.roll(now_ms)
    extent = log.copy_in(data, now_ms, copy_checked)
    for row in rows:
        log.note([_info(row)], extent, row.base_offset, now_ms, row.leader_epoch, stamped=False)
    store.note_appended(log, data.nbytes, now_ms)


def _of_one_segment(rows: list[BatchRow]) -> list[BatchRow]:
    """The first rows whose offsets, relative to the first of them, fit the index of a segment."""
    end = rows[0].base_offset + RELATIVE_OFFSET_MAX
    if rows[-1].last_offset <= end:
        return rows
    return [row for row in rows if row.last_offset <= end]


def _info(row: BatchRow) -> BatchInfo:
    # A compacted batch has fewer records than offsets: positions and sequences go by its offsets.
    return BatchInfo(
        row.length,
        row.last_offset - row.base_offset + 1,
        row.max_timestamp,
        row.producer_id,
        row.producer_epoch,
        row.base_sequence,
    )
