"""What to fetch, and what became of it: positions, prefetching, sessions and errors of assigned partitions.

Pure: time is an argument, requests come out of `due` and answers go back into them. For the poller a partition's
records come in order, each once, whatever answers are lost, late or doubled. Two things make sure of it: an
answer counts only while its request is the one that its session waits for, and for a partition only while
its generation is the one that was asked with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ringlog.client.assigned import UNKNOWN, Assigned, Place
from ringlog.client.chunk import Chunk
from ringlog.client.consumer_settings import ConsumerSettings
from ringlog.client.fetch_session import Asked, FetchSession
from ringlog.errors import (
    CorruptFrame,
    FetchSessionLost,
    OffsetOutOfRange,
    RinglogError,
    StaleMetadata,
    UnknownTopic,
)
from ringlog.limits import FETCH_PARTITIONS_MAX
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import (
    FetchedPartition,
    ListOffsetsReply,
    ListOffsetsRequest,
    MetadataReply,
    MetadataRequest,
    OffsetQuery,
    TopicMetadata,
    decode_body,
    encode_body,
    unpack_fetch_reply,
)
from ringlog.net.wire_errors import error_by_number

_SESSIONS_PER_LANE = 3
"""Fetches of one lane under way at once, of different partitions: one that waits at the end of quiet partitions
must hold up neither one whose buffer was just emptied nor one that was just moved by a seek."""
_BRIEF_WAIT_MS = 10
"""How long a fetch waits at the node that does not cover all its lane's partitions. Were it longer, every session
could come to wait for some quiet partition while one that has records is not asked for."""
_REPLIES_AHEAD = 2
"""Full replies kept per partition: one that is being polled, and the next."""


@dataclass(slots=True, eq=False)
class Ask:
    """A request to send, and where its answer goes."""

    api: Api
    body: bytes
    partition: int
    timeout_s: float
    answered: Callable[[memoryview, float], None]
    failed: Callable[[RinglogError, float], None]
    topic: str | None = None
    """Whose metadata proved wrong."""


class Fetcher:
    """The partitions of one consumer. Not thread-safe: its owner has a lock."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._settings = settings
        self._assigned: dict[TopicPartition, Assigned] = {}
        self._waiting: dict[Assigned, None] = {}
        """Those that may have something to ask for, in the order in which they came; the others need not be looked at."""
        self._ready: deque[Assigned] = deque()
        """Those that have something for the poller; the first has its turn."""
        self._lanes: dict[int, list[FetchSession]] = {}
        self._sated: set[Assigned] = set()
        """Those of which enough was fetched, until some of it is polled."""
        self._refreshing: set[str] = set()
        self.buffered_bytes = 0

    # -- the poller's side -----------------------------------------------------------------------------------

    def assign(self, wanted: Mapping[TopicPartition, tuple[Place, int | None]]) -> None:
        """Read exactly these. One that was assigned before and has no offset here goes on where it is."""
        for tp in [tp for tp in self._assigned if tp not in wanted]:
            gone = self._assigned.pop(tp)
            self._drop(gone)
            self._waiting.pop(gone, None)
        for tp, (place, offset) in wanted.items():
            known = self._assigned.get(tp)
            if known is not None and offset is None:
                continue
            if known is None:
                known = self._assigned[tp] = Assigned(tp, place)
                if offset is None:
                    self._reset(known, OffsetOutOfRange(f"{tp} has no position. Seek to one"))
            if offset is not None:
                self.seek(tp, offset)
            self._waiting[known] = None
        served = {assigned.place.lane for assigned in self._assigned.values()}
        self._lanes = {lane: sessions for lane, sessions in self._lanes.items() if lane in served}

    def __getitem__(self, tp: TopicPartition) -> Assigned:
        return self._assigned[tp]

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._assigned

    def assignment(self) -> list[TopicPartition]:
        return list(self._assigned)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read on from an offset; what was fetched from elsewhere is dropped, also when it is still on its way."""
        assigned = self._assigned[tp]
        self._drop(assigned)
        assigned.stand_at(offset)
        self._waiting[assigned] = None

    def seek_to(self, tp: TopicPartition, end: int) -> None:
        """Read on from an end of the log, EARLIEST or LATEST, which is looked up."""
        assigned = self._assigned[tp]
        self._drop(assigned)
        assigned.position, assigned.reset = UNKNOWN, end
        self._waiting[assigned] = None

    def pause(self, tp: TopicPartition) -> None:
        self._assigned[tp].paused = True
        self._hunger()

    def resume(self, tp: TopicPartition) -> None:
        assigned = self._assigned[tp]
        assigned.paused = False
        self._enqueue(assigned)
        self._waiting[assigned] = None

    def head(self, now_s: float, *, may_raise: bool = True) -> Assigned | None:
        """Whose turn it is: a partition that has a chunk. Raises what went wrong with one that has a failure, unless
        the poller has records in its hands, and gives None instead. A failure that lasts is raised again."""
        while self._ready:
            assigned = self._ready[0]
            if assigned.chunks and not assigned.paused:
                return assigned
            failure = assigned.failure
            if failure is not None and not assigned.paused:
                if not may_raise:
                    return None
                self._leave_queue()
                if assigned.position == UNKNOWN and assigned.reset is None:
                    self._enqueue(assigned)  # only a seek can help
                else:
                    assigned.failure = None
                    self._back_off(assigned, now_s)
                raise failure
            self._leave_queue()
        return None

    def advance(self, assigned: Assigned, position: int) -> bool:
        """The poller took what lies below a position. True: there is room to fetch more."""
        chunk = assigned.chunks[0]
        assigned.position = position
        if position < chunk.next_offset:
            return False
        assigned.chunks.popleft()
        assigned.buffered_bytes -= chunk.nbytes
        was_full = self._full
        self.buffered_bytes -= chunk.nbytes
        self._leave_queue()
        self._enqueue(assigned)
        self._sated.discard(assigned)
        if was_full and not self._full:
            self._hunger()
        if not assigned.in_flight:
            self._waiting[assigned] = None
        return True

    def refetch(self, assigned: Assigned, now_s: float) -> None:
        """What was fetched is not what it should be: drop it, and ask again from the poller's position."""
        self._drop(assigned)
        assigned.stand_at(assigned.position)
        self._back_off(assigned, now_s)

    def unsettled(self, tps: Iterable[TopicPartition]) -> bool:
        """Some of these wait for their position. Raises what keeps them from getting one."""
        unsettled = False
        for tp in tps:
            assigned = self._assigned[tp]
            if assigned.position == UNKNOWN and assigned.reset is not None:
                if assigned.failure is not None:
                    raise assigned.failure
                unsettled = True
        return unsettled

    # -- the connection's side -------------------------------------------------------------------------------

    def due(self, now_s: float) -> tuple[list[Ask], float | None]:
        """What to ask now, and when to look again even if nothing happens."""
        asks: list[Ask] = []
        fetches: dict[int, list[Assigned]] = {}
        lookups: dict[int, list[Assigned]] = {}
        next_s: float | None = None
        full = self._full
        for assigned in list(self._waiting):
            if assigned.in_flight or assigned.failure is not None:
                del self._waiting[assigned]
            elif assigned.retry_at_s > now_s:
                next_s = assigned.retry_at_s if next_s is None else min(next_s, assigned.retry_at_s)
            elif assigned.misplaced:
                self._refresh(assigned, asks)
            elif assigned.settling:
                lookups.setdefault(assigned.place.lane, []).append(assigned)
            elif assigned.reset is not None or assigned.paused:
                del self._waiting[assigned]
            elif self._has_enough(assigned) or (full and assigned.chunks):
                del self._waiting[assigned]
                self._sated.add(assigned)
            else:
                fetches.setdefault(assigned.place.lane, []).append(assigned)
        asks.extend(self._lookup(some) for some in lookups.values())
        if fetches:
            busy = {assigned.place.lane for assigned in self._sated}
            for lane, some in fetches.items():
                ask = self._fetch(lane, some[:FETCH_PARTITIONS_MAX], brief=lane in busy)
                if ask is not None:
                    asks.append(ask)
        return asks, next_s

    def forget_flights(self) -> None:
        """Nothing that was asked will be answered, as in the child of a fork."""
        self._refreshing.clear()
        self._lanes.clear()
        for assigned in self._assigned.values():
            assigned.generation += 1
            assigned.in_flight = False
            self._waiting[assigned] = None

    @property
    def _full(self) -> bool:
        return self.buffered_bytes >= self._settings.fetch_max_bytes

    def _has_enough(self, assigned: Assigned) -> bool:
        return assigned.buffered_bytes >= _REPLIES_AHEAD * self._settings.max_partition_fetch_bytes

    # -- fetches -----------------------------------------------------------------------------------------------

    def _fetch(self, lane: int, some: list[Assigned], *, brief: bool) -> Ask | None:
        sessions = self._lanes.setdefault(lane, [FetchSession() for _ in range(_SESSIONS_PER_LANE)])
        session = next((session for session in sessions if session.asked is None), None)
        others = [other for other in sessions if other.asked is not None]
        if session is None:
            return None
        if any(other.brief for other in others) and all(assigned.quiet for assigned in some):
            # It ends soon, and then one long wait covers its partitions and these.
            return None
        session.brief = brief or bool(others)
        asked: Asked = {a.place.partition: (a, a.generation, a.fetch_offset) for a in some}
        for assigned in some:
            self._fly(assigned)
        settings = self._settings
        # Lanes share the budget, so that many of them cannot fill the memory at once.
        share = settings.fetch_max_bytes // max(1, len(self._lanes))
        request = session.request(
            asked,
            wait_ms=min(settings.fetch_max_wait_ms, _BRIEF_WAIT_MS)
            if session.brief
            else settings.fetch_max_wait_ms,
            bytes_min=settings.fetch_min_bytes,
            bytes_max=max(share, min(settings.max_partition_fetch_bytes, settings.fetch_max_bytes)),
            partition_bytes_max=settings.max_partition_fetch_bytes,
        )
        return Ask(
            Api.FETCH,
            encode_body(request),
            some[0].place.partition,
            (settings.fetch_max_wait_ms + settings.request_timeout_ms) / 1000,
            lambda body, now_s: self._fetched(session, asked, body, now_s),
            lambda error, now_s: self._not_fetched(session, asked, error, now_s),
        )

    def _fetched(self, session: FetchSession, asked: Asked, body: memoryview, now_s: float) -> None:
        if session.asked is not asked:
            return
        try:
            number, rows = unpack_fetch_reply(body)
        except CorruptFrame as wrong:
            self._not_fetched(session, asked, wrong, now_s)
            return
        session.answered(number, rows)
        for assigned, generation, _ in asked.values():
            if assigned.generation == generation:
                self._land(assigned)
                assigned.quiet = True
        for row in rows:
            assigned, generation, offset = asked.get(row.partition, (None, 0, 0))
            if assigned is not None and assigned.generation == generation:
                self._take(assigned, offset, row, now_s)

    def _take(self, assigned: Assigned, offset: int, row: FetchedPartition, now_s: float) -> None:
        if row.error:
            at = f"{assigned.tp} at offset {offset}"
            self._went_wrong(assigned, error_by_number(row.error, _sentence(row, at)), now_s)
            return
        assigned.retries = 0
        assigned.log_start_offset = row.log_start_offset
        assigned.readable_offset = row.readable_offset
        if assigned.fetch_offset != offset or row.next_offset == offset:
            # The same row twice in one reply, or nothing new.
            return
        if row.next_offset < offset:
            reason = f"{assigned.tp}: asked for offset {offset}, and was told to go back to {row.next_offset}"
            self._went_wrong(assigned, CorruptFrame("next_offset", 0, reason), now_s)
            return
        chunk = Chunk(assigned.tp, row.data, row.next_offset)
        assigned.chunks.append(chunk)
        assigned.buffered_bytes += chunk.nbytes
        self.buffered_bytes += chunk.nbytes
        assigned.fetch_offset = row.next_offset
        assigned.quiet = False
        self._enqueue(assigned)

    def _not_fetched(self, session: FetchSession, asked: Asked, error: RinglogError, now_s: float) -> None:
        if session.asked is not asked:
            return
        only_session = isinstance(error, FetchSessionLost) and session.number != 0
        session.lost()
        for assigned, generation, _ in asked.values():
            if assigned.generation == generation:
                self._land(assigned)
                if not only_session:
                    self._went_wrong(assigned, error, now_s)

    # -- offsets -----------------------------------------------------------------------------------------------

    def _lookup(self, some: list[Assigned]) -> Ask:
        asked = [(a, a.generation, a.reset) for a in some]
        for assigned in some:
            self._fly(assigned)
        queries = [OffsetQuery(a.place.partition, end) for a, _, end in asked if end is not None]

        def flying() -> dict[int, Assigned]:
            return {
                a.place.partition: a
                for a, generation, _ in asked
                if a.generation == generation and a.in_flight
            }

        def answered(body: memoryview, now_s: float) -> None:
            left = flying()
            try:
                found = decode_body(body, ListOffsetsReply).found
            except CorruptFrame as wrong:
                failed(wrong, now_s)
                return
            for row in found:
                assigned = left.pop(row.partition, None)
                if assigned is None:
                    continue
                self._land(assigned)
                if row.error:
                    error = error_by_number(row.error, f"{assigned.tp}: no offset to start from was found")
                    self._went_wrong(assigned, error, now_s)
                else:
                    assigned.retries = 0
                    assigned.stand_at(row.offset)
            for assigned in left.values():
                self._land(assigned)
                self._back_off(assigned, now_s)

        def failed(error: RinglogError, now_s: float) -> None:
            for assigned in flying().values():
                self._land(assigned)
                self._went_wrong(assigned, error, now_s)

        body, timeout_s = encode_body(ListOffsetsRequest(queries)), self._settings.request_timeout_ms / 1000
        return Ask(Api.LIST_OFFSETS, body, some[0].place.partition, timeout_s, answered, failed)

    # -- metadata ----------------------------------------------------------------------------------------------

    def _refresh(self, misplaced: Assigned, asks: list[Ask]) -> None:
        topic = misplaced.tp.topic
        if topic in self._refreshing:
            return
        self._refreshing.add(topic)

        def affected() -> list[Assigned]:
            if topic not in self._refreshing:
                return []
            self._refreshing.discard(topic)
            return [a for a in self._assigned.values() if a.misplaced and a.tp.topic == topic]

        def answered(body: memoryview, now_s: float) -> None:
            some = affected()
            try:
                found = next((t for t in decode_body(body, MetadataReply).topics if t.name == topic), None)
            except CorruptFrame as wrong:
                for assigned in some:
                    self._went_wrong(assigned, wrong, now_s)
                return
            for assigned in some:
                self._replace(assigned, found, now_s)

        def failed(error: RinglogError, now_s: float) -> None:
            for assigned in affected():
                self._went_wrong(assigned, error, now_s)

        body, timeout_s = encode_body(MetadataRequest([topic])), self._settings.request_timeout_ms / 1000
        asks.append(Ask(Api.METADATA, body, 0, timeout_s, answered, failed, topic))

    def _replace(self, assigned: Assigned, topic: TopicMetadata | None, now_s: float) -> None:
        place = None if topic is None else place_of(topic, assigned.tp.partition)
        if place is None:
            error = UnknownTopic(f"there is no {assigned.tp} any more. Assign others, or create it")
            self._went_wrong(assigned, error, now_s)
            return
        before, assigned.place, assigned.misplaced = assigned.place, place, False
        # Answers may bring the same metadata again for a while: ask no faster than retries are made.
        self._back_off(assigned, now_s)
        if before.topic_id != place.topic_id:
            self._drop(assigned)
            gone = OffsetOutOfRange(
                f"{assigned.tp} was deleted and made anew: its offsets begin again. Seek to one"
            )
            self._reset(assigned, gone)

    # -- what went wrong ---------------------------------------------------------------------------------------

    def _went_wrong(self, assigned: Assigned, error: RinglogError, now_s: float) -> None:
        if isinstance(error, StaleMetadata):
            assigned.misplaced = True
            self._waiting[assigned] = None
        elif isinstance(error, OffsetOutOfRange):
            self._reset(assigned, error)
        elif error.retriable:
            self._back_off(assigned, now_s)
        else:
            assigned.failure = error
            self._enqueue(assigned)

    def _reset(self, assigned: Assigned, error: OffsetOutOfRange) -> None:
        """There is nothing at the position: the setting says what to do, once what was fetched before is polled."""
        assigned.reset = self._settings.reset
        if assigned.reset is None:
            assigned.failure = error
            self._enqueue(assigned)
        self._waiting[assigned] = None

    def _back_off(self, assigned: Assigned, now_s: float) -> None:
        settings = self._settings
        assigned.back_off(now_s, settings.retry_backoff_ms / 1000, settings.retry_backoff_max_ms / 1000)
        self._waiting[assigned] = None

    # -- queues ------------------------------------------------------------------------------------------------

    def _fly(self, assigned: Assigned) -> None:
        assigned.in_flight = True
        self._waiting.pop(assigned, None)

    def _land(self, assigned: Assigned) -> None:
        assigned.in_flight = False
        self._waiting[assigned] = None

    def _drop(self, assigned: Assigned) -> None:
        self.buffered_bytes -= assigned.outdate()
        self._hunger()

    def _hunger(self) -> None:
        """There is room again: look anew who could use it."""
        self._waiting.update(dict.fromkeys(self._sated))
        self._sated.clear()

    def _enqueue(self, assigned: Assigned) -> None:
        if not assigned.queued and (assigned.chunks or assigned.failure is not None):
            assigned.queued = True
            self._ready.append(assigned)

    def _leave_queue(self) -> None:
        self._ready.popleft().queued = False


def place_of(topic: TopicMetadata, index: int) -> Place | None:
    """Where a topic's partition is served, None when there is no such partition."""
    if topic.error:
        return None
    for partition in topic.partitions:
        if partition.index == index:
            return Place(topic.topic_id, partition.partition, partition.lane)
    return None


def _sentence(row: FetchedPartition, at: str) -> str:
    return f"{at}; the log has {row.log_start_offset} to {row.readable_offset}"
