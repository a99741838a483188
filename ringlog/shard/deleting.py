"""Requests to delete records: each is answered when the new start of every log in it survives a power loss."""

from __future__ import annotations

from ringlog.errors import InvalidRequest, OffsetOutOfRange, PartitionFenced, RinglogError
from ringlog.log.store import LogStore
from ringlog.net.messages import (
    LATEST,
    DeletedRecords,
    DeleteRecordsReply,
    DeleteRecordsRequest,
    PartitionStart,
)
from ringlog.net.wire_errors import number_of
from ringlog.shard.asker import Asker
from ringlog.shard.hosting import HostedPartition, Hosting


class _Deletion:
    """One request, with an answer for each of its partitions as it comes."""

    def __init__(self, asker: Asker, count: int) -> None:
        self.asker = asker
        self._rows: list[DeletedRecords | None] = [None] * count
        self._missing = count

    def answer(self, at: int, row: DeletedRecords) -> None:
        self._rows[at] = row
        self._missing -= 1
        self.reply_if_done()

    def reply_if_done(self) -> None:
        if not self._missing:
            self.asker.reply_struct(DeleteRecordsReply([row for row in self._rows if row is not None]))


class DeletionDesk:
    """All deletions of a shard that are not durable yet."""

    def __init__(self, store: LogStore, hosting: Hosting) -> None:
        self._store = store
        self._hosting = hosting
        self._waiting: dict[int, list[tuple[int, _Deletion, int]]] = {}
        """By partition: the start that is waited for, the request, and the place in its answer."""

    def delete(self, asker: Asker, request: DeleteRecordsRequest) -> None:
        """Take a request: starts move at once, the answer comes when they are durable."""
        deletion = _Deletion(asker, len(request.partitions))
        deletion.reply_if_done()
        for at, wanted in enumerate(request.partitions):
            try:
                start = self._move(wanted)
            except RinglogError as error:
                deletion.answer(at, DeletedRecords(wanted.partition, number_of(error), -1))
                continue
            durable = self._store.durable_start(self._hosting.find(wanted.partition).name)
            if start <= durable:
                deletion.answer(at, DeletedRecords(wanted.partition, 0, durable))
            else:
                self._waiting.setdefault(wanted.partition, []).append((start, deletion, at))

    def _move(self, wanted: PartitionStart) -> int:
        """Let a log begin where it is wanted; where that is."""
        hosted = self._hosting.find_led(wanted.partition)
        log = hosted.log
        if log.settings.compact and not self._hosting.deletes(wanted.partition):
            raise InvalidRequest(f"{hosted.name} is compacted, so records are deleted by key alone")
        offset = log.readable_offset if wanted.offset == LATEST else wanted.offset
        if not 0 <= offset <= log.readable_offset:
            raise OffsetOutOfRange(f"{hosted.name}: {offset} is outside of [0, {log.readable_offset}]")
        if offset > log.log_start_offset:
            self._store.move_start(hosted.name, offset)
        return offset

    def moved(self, hosted: HostedPartition, start: int) -> None:
        """A log's start is durable."""
        still = []
        for wanted, deletion, at in self._waiting.pop(hosted.partition, []):
            if wanted <= start:
                deletion.answer(at, DeletedRecords(hosted.partition, 0, start))
            else:
                still.append((wanted, deletion, at))
        if still:
            self._waiting[hosted.partition] = still

    def gone(self, hosted: HostedPartition) -> None:
        """A partition is no longer open here: whether its start moved shows when it is opened again."""
        error = PartitionFenced(f"{hosted.name} was closed meanwhile. Retry")
        for _, deletion, at in self._waiting.pop(hosted.partition, []):
            deletion.answer(at, DeletedRecords(hosted.partition, number_of(error), -1))

    def forget(self, outlet: object) -> None:
        """A network process died: nothing that it asked for is answered any more."""
        for partition, waiting in list(self._waiting.items()):
            self._waiting[partition] = [one for one in waiting if one[1].asker.outlet is not outlet]
