"""Questions about where ranges of partitions may be split, answered together from the indexes of their logs."""

from __future__ import annotations

from ringlog.errors import InvalidRequest, RinglogError, check
from ringlog.limits import SPLIT_POINTS_MAX
from ringlog.log.reading import SplitPoints
from ringlog.log.store import LogStore
from ringlog.net.messages import FoundSplit, SplitPointsReply, SplitPointsRequest, SplitQuery
from ringlog.net.wire_errors import number_of
from ringlog.shard.asker import Asker
from ringlog.shard.hosting import Hosting, read_refusal


class SplitQuestion:
    """One request, some of its indexes being read from disk."""

    def __init__(self, store: LogStore, hosting: Hosting, asker: Asker, request: SplitPointsRequest) -> None:
        self._store = store
        self._hosting = hosting
        self._asker = asker
        self._queries = request.queries
        self._points_max = max(1, SPLIT_POINTS_MAX // max(1, len(request.queries)))
        self._found: dict[int, FoundSplit] = {}

    def ask(self) -> None:
        for at, query in enumerate(self._queries):
            try:
                self._search(at, query)
            except RinglogError as error:
                self._answer(at, FoundSplit(query.partition, number_of(error), 0, []))
        if not self._queries:
            self._asker.reply_struct(SplitPointsReply([]))

    def _search(self, at: int, query: SplitQuery) -> None:
        hosted = self._hosting.find_led(query.partition)
        if not 0 <= query.start <= query.end:
            raise InvalidRequest(f"{hosted.name}: [{query.start}, {query.end}) is no range")

        def done(points: SplitPoints) -> None:
            self._answer(at, FoundSplit(query.partition, 0, points.step_bytes, points.offsets))

        def failed(error: RinglogError | OSError) -> None:
            typed = read_refusal(hosted, error)
            self._answer(at, FoundSplit(query.partition, number_of(typed), 0, []))

        self._store.search(
            hosted.name,
            lambda reader: reader.split_points(query.start, query.end, query.step_bytes, self._points_max),
            done=done,
            failed=failed,
        )

    def _answer(self, at: int, found: FoundSplit) -> None:
        check(at not in self._found, "a question is answered once")
        self._found[at] = found
        if len(self._found) == len(self._queries):
            self._asker.reply_struct(SplitPointsReply([self._found[i] for i in range(len(self._queries))]))
