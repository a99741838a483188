"""What tasks had to skip, told to the driver and to operators: kept by the node, as offsets of a group.

Spark has no way for a task of a source to tell its driver anything but rows. So a task that goes on behind a gap, since
`failOnDataLoss=false`, first notes it on the node: the group `spark-lost-READ-TOPIC-PARTITION-START`, named after the
read and where the task's range begins, gets the offset behind the gap, with the ranges that are missing as metadata. A
task that runs again notes its own gaps in the same place. The driver of a stream collects notes and tells them in the
query's progress; those of a batch read stay until they expire, for `ringlog group list` and `describe`.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

import msgspec

from ringlog.client.admin import Admin
from ringlog.client.commits import OffsetAndMetadata
from ringlog.client.consumer import Consumer
from ringlog.errors import DataLoss, UnknownGroup, UnknownTopic
from spark_bridge.options import SourceOptions
from spark_bridge.patience import patiently
from spark_bridge.ranges import OffsetRange

_RANGES_MAX = 32
"""Of one task. Those that would be too many are joined to the last one, and `offsets` says how many are missing."""


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands beside the offset."""

    offsets: int
    lost: list[tuple[int, int]]
    """From, and up to."""


_note_decoder = msgspec.json.Decoder(Note)


def new_read_id() -> str:
    """Short, so that the longest name of a topic fits beside it into the name of a group."""
    return uuid.uuid4().hex[:12]


def group_id(read_id: str, task: OffsetRange) -> str:
    """Where a task's notes are: a group for each, so that one is collected and forgotten without another.

    >>> group_id("5f0c", OffsetRange("orders", 3, 100, 200))
    'spark-lost-5f0c-orders-3-100'
    """
    return f"spark-lost-{read_id}-{task.tp}-{task.start}"


def joined(note: Note | None, gap: OffsetRange) -> Note:
    """A note with one gap more.

    >>> joined(joined(None, OffsetRange("t", 0, 5, 9)), OffsetRange("t", 0, 20, 30))
    Note(offsets=14, lost=[(5, 9), (20, 30)])
    """
    if note is None:
        return Note(gap.offsets, [(gap.start, gap.end)])
    lost = [*note.lost, (gap.start, gap.end)]
    if len(lost) > _RANGES_MAX:
        lost[-2:] = [(lost[-2][0], gap.end)]
    return Note(note.offsets + gap.offsets, lost)


class TaskNotes:
    """The gaps of one task, or of a plan: each is on the node before anybody reads on behind it."""

    def __init__(self, options: SourceOptions, read_id: str, task: OffsetRange) -> None:
        self._options = options
        self._group_id = group_id(read_id, task)
        self._note: Note | None = None

    def tell(self, gap: OffsetRange) -> str:
        """Note a gap, durably; where it is noted. Raises when the node cannot be told: then nothing may be skipped."""
        self._note = joined(self._note, gap)
        text = msgspec.json.encode(self._note).decode()
        with Consumer(self._options.bootstrap, self._group_id, enable_auto_commit=False) as consumer:
            try:
                patiently(
                    lambda timeout_s: consumer.commit(
                        {gap.tp: OffsetAndMetadata(gap.end, text)}, timeout_ms=timeout_s * 1000
                    ),
                    self._options.patience_s,
                )
            except UnknownTopic:
                raise DataLoss(
                    f"{gap.offsets} offsets of {gap} went with their topic while they were read, and what a task skips "
                    "cannot be noted without it. Start the query again: with failOnDataLoss=false it goes on"
                ) from None
        return self._group_id


def collected(admin: Admin, read_id: str, task: OffsetRange, timeout_s: float) -> Note | None:
    """What a task has noted; None when it skipped nothing."""
    found = admin.group_offsets(group_id(read_id, task), timeout=timeout_s).get(task.tp)
    return None if found is None else _note_decoder.decode(found.metadata)


def forget(admin: Admin, read_id: str, task: OffsetRange, timeout_s: float) -> None:
    """Let go of what was collected. Twice is fine."""
    with suppress(UnknownGroup):
        admin.delete_group(group_id(read_id, task), timeout=timeout_s)
