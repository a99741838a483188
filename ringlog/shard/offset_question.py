"""Questions about offsets: where logs begin and end, and what stood there at a time."""

from __future__ import annotations

from ringlog.errors import OffsetNotAvailable, RinglogError, check
from ringlog.log.reading import TimedOffset
from ringlog.log.store import LogStore
from ringlog.net.messages import EARLIEST, LATEST, FoundOffset, ListOffsetsReply, ListOffsetsRequest
from ringlog.net.wire_errors import number_of
from ringlog.shard.asker import Asker
from ringlog.shard.hosting import HostedPartition, Hosting, read_refusal


class OffsetQuestion:
    """Questions about offsets that are answered together, some of them after reads from disk."""

    def __init__(self, store: LogStore, hosting: Hosting, asker: Asker, request: ListOffsetsRequest) -> None:
        self._store = store
        self._hosting = hosting
        self._asker = asker
        self._queries = request.queries
        self._found: dict[int, FoundOffset] = {}

    def ask(self) -> None:
        for at, query in enumerate(self._queries):
            try:
                hosted = self._hosting.find_led(query.partition)
            except RinglogError as error:
                self._answer(at, FoundOffset(query.partition, number_of(error), -1, -1))
                continue
            log = hosted.log
            leader = hosted.replica.leader if hosted.replica is not None else None
            if leader is not None and query.timestamp != EARLIEST and not leader.knows_end:
                unknown = OffsetNotAvailable(f"{hosted.name}: a new leader asks the others how far it is")
                self._answer(at, FoundOffset(query.partition, number_of(unknown), -1, -1))
            elif query.timestamp == LATEST:
                self._answer(at, FoundOffset(query.partition, 0, log.readable_offset, -1))
            elif query.timestamp == EARLIEST:
                self._answer(at, FoundOffset(query.partition, 0, log.log_start_offset, -1))
            else:
                self._search(at, hosted, query.timestamp)
        if not self._queries:
            self._asker.reply_struct(ListOffsetsReply([]))

    def _search(self, at: int, hosted: HostedPartition, timestamp: int) -> None:
        def done(found: TimedOffset | None) -> None:
            offset, time_ms = found if found is not None else (-1, -1)
            self._answer(at, FoundOffset(hosted.partition, 0, offset, time_ms))

        def failed(error: RinglogError | OSError) -> None:
            typed = read_refusal(hosted, error)
            self._answer(at, FoundOffset(hosted.partition, number_of(typed), -1, -1))

        self._store.search(hosted.name, lambda reader: reader.find_time(timestamp), done=done, failed=failed)

    def _answer(self, at: int, found: FoundOffset) -> None:
        check(at not in self._found, "a question is answered once")
        self._found[at] = found
        if len(self._found) == len(self._queries):
            self._asker.reply_struct(ListOffsetsReply([self._found[i] for i in range(len(self._queries))]))
