"""Requests to delete records: answered when nothing brings them back, neither a power loss nor another leader."""

from __future__ import annotations

from ringlog.errors import InvalidRequest, NotLeader, OffsetOutOfRange, PartitionFenced, RinglogError
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
from ringlog.shard.replica_log import HostedLog


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
            self._waiting.setdefault(wanted.partition, []).append((start, deletion, at))
            self.look(self._hosting.find(wanted.partition))

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

    def look(self, hosted: HostedPartition) -> None:
        """Answer what is done: a log's start is durable, or other replicas have followed it."""
        still = []
        for wanted, deletion, at in self._waiting.pop(hosted.partition, []):
            if _is_done(hosted, wanted):
                start = hosted.log.durable_start_offset
                deletion.answer(at, DeletedRecords(hosted.partition, 0, start))
            else:
                still.append((wanted, deletion, at))
        if still:
            self._waiting[hosted.partition] = still

    @property
    def is_waiting(self) -> bool:
        """Somebody waits for other replicas, or for a disk."""
        return bool(self._waiting)

    def work(self) -> None:
        """Whenever something may have changed: other replicas may have followed, or are not waited for any more."""
        for partition in list(self._waiting):
            hosted = self._hosting.hosted.get(partition)
            if hosted is not None and hosted.replica is not None:
                self.look(hosted)

    def gone(self, hosted: HostedPartition) -> None:
        """A partition is no longer open here: whether its start moved shows when it is opened again."""
        self._refuse(hosted, PartitionFenced(f"{hosted.name} was closed meanwhile. Retry"))

    def deposed(self, hosted: HostedPartition) -> None:
        """Another node leads now: it may not have followed yet, and is to be asked."""
        self._refuse(
            hosted, NotLeader(f"{hosted.name} is not led by this node any more. Fetch metadata, then retry")
        )

    def _refuse(self, hosted: HostedPartition, error: RinglogError) -> None:
        for _, deletion, at in self._waiting.pop(hosted.partition, []):
            deletion.answer(at, DeletedRecords(hosted.partition, number_of(error), -1))

    def forget(self, outlet: object) -> None:
        """A network process died: nothing that it asked for is answered any more."""
        for partition, waiting in list(self._waiting.items()):
            self._waiting[partition] = [one for one in waiting if one[1].asker.outlet is not outlet]


def _is_done(hosted: HostedPartition, start: int) -> bool:
    leader = hosted.replica.leader if hosted.replica is not None else None
    if leader is not None:
        return leader.is_deleted(start, HostedLog(hosted.log))
    return hosted.log.durable_start_offset >= start
