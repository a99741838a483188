"""What to fetch, and what became of it: positions, prefetching, sessions and errors of assigned partitions.

Pure: time is an argument, requests come out of `due` and answers go back into them. For the poller a partition's
records come in order, each once, whatever answers are lost, late or doubled. Two things make sure of it: an
answer counts only while its request is the one that its session waits for, and for a partition only while
its generation is the one that was asked with.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ringlog.client.assigned import Assigned, Place
from ringlog.client.assignment import Assignment
from ringlog.client.chunk import Chunk
from ringlog.client.consumer_settings import ConsumerSettings
from ringlog.client.fetch_session import Asked, FetchSession
from ringlog.client.lookups import Ask, look_up_offsets, refresh_places
from ringlog.errors import CorruptFrame, FetchSessionLost, RinglogError
from ringlog.limits import FETCH_PARTITIONS_MAX, KIB, LANDING_SPARE_BYTES
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import FetchedPartition, encode_body, unpack_fetch_reply
from ringlog.net.wire_errors import error_by_number

_SESSIONS_PER_LANE = 3
"""Fetches of one lane under way at once, of different partitions: one that waits at the end of quiet partitions
must hold up neither one whose buffer was just emptied nor one that was just moved by a seek."""
_LITTLE_BYTES = 16 * KIB
"""Replies below it come through the socket in any case."""
_FAR_S = 10.0
"""How long the leader is read from after a follower could not help."""
_BRIEF_WAIT_MS = 10
"""How long the fetch waits at the node that takes a lane's last session. Were it longer, every session could come to
wait for some quiet partition while one that has records is not asked for."""


class Fetcher(Assignment):
    """An assignment that asks for its records. Not thread-safe: its owner has a lock."""

    def __init__(self, settings: ConsumerSettings) -> None:
        super().__init__(settings)
        self._lanes: dict[int, list[FetchSession]] = {}
        self._refreshing: set[str] = set()
        self.near_nodes: frozenset[int] = frozenset()
        """Nodes in the client's rack, from which it reads when they are in sync. Usually empty."""
        self._near_lanes: dict[int, int] = {}
        """Lanes of followers that are read from, which are negative here, and their nodes."""

    def assign(self, wanted: Mapping[TopicPartition, tuple[Place, int | None]]) -> None:
        """As `Assignment.assign`; lanes that serve nothing of it are forgotten."""
        super().assign(wanted)
        self._forget_lanes()

    def due(self, now_s: float) -> tuple[list[Ask], float | None]:
        """What to ask now, and when to look again even if nothing happens."""
        asks: list[Ask] = []
        if not self.waiting:
            return asks, None
        fetches: dict[int, list[Assigned]] = {}
        lookups: dict[int, list[Assigned]] = {}
        next_s: float | None = None
        for assigned in list(self.waiting):
            if assigned.in_flight or (assigned.failure is not None and not assigned.failure_told):
                del self.waiting[assigned]
            elif assigned.retry_at_s > now_s:
                next_s = assigned.retry_at_s if next_s is None else min(next_s, assigned.retry_at_s)
            elif assigned.misplaced:
                if assigned.tp.topic not in self._refreshing:
                    asks.append(refresh_places(self, assigned.tp.topic, self._refreshing))
            elif assigned.reset is not None and not assigned.chunks:
                lookups.setdefault(assigned.place.lane, []).append(assigned)
            elif assigned.reset is not None or assigned.paused:
                del self.waiting[assigned]
            elif assigned.chunks and (self.has_enough(assigned) or self.full):
                del self.waiting[assigned]
                self.sated.add(assigned)
            else:
                lane = self._near_lane(assigned, now_s) if self.near_nodes else assigned.place.lane
                fetches.setdefault(lane, []).append(assigned)
        if lookups:
            asks.extend(look_up_offsets(self, some) for some in lookups.values())
        for lane, some in fetches.items():
            ask = self._fetch(lane, some[:FETCH_PARTITIONS_MAX])
            if ask is not None:
                asks.append(ask)
        return asks, next_s

    def forget_flights(self) -> None:
        """Nothing that was asked will be answered, as in the child of a fork."""
        self._refreshing.clear()
        self._lanes.clear()
        for assigned in self.assigned.values():
            assigned.generation += 1
            assigned.in_flight = False
            self.waiting[assigned] = None

    def _forget_lanes(self) -> None:
        """Drop the sessions of lanes that serve nothing of ours any more: they had a share of the budget."""
        served = {assigned.place.lane for assigned in self.assigned.values()}
        if self.near_nodes:
            served |= {~lane for assigned in self.assigned.values() for _, lane in assigned.place.in_sync}
        self._lanes = {lane: sessions for lane, sessions in self._lanes.items() if lane in served}

    def _near_lane(self, assigned: Assigned, now_s: float) -> int:
        """The lane of a follower in the client's rack; the leader's when that is there itself, or has to help out."""
        place, near = assigned.place, self.near_nodes
        if place.node not in near and now_s >= assigned.far_until_s:
            followers = [(node, lane) for node, lane in place.in_sync if node in near]
            if followers:
                node, lane = followers[place.partition % len(followers)]
                self._near_lanes[~lane] = node
                return ~lane
        return place.lane

    # -- fetches -----------------------------------------------------------------------------------------------

    def _fetch(self, lane: int, some: list[Assigned]) -> Ask | None:
        sessions = self._lanes.get(lane)
        if sessions is None:
            self._forget_lanes()
            sessions = self._lanes[lane] = [FetchSession() for _ in range(_SESSIONS_PER_LANE)]
        session: FetchSession | None = None
        under_way, ends_soon = 0, False
        for one in sessions:
            if one.asked is not None:
                under_way += 1
                ends_soon |= one.brief
            elif session is None:
                session = one
        if session is None:
            return None
        if ends_soon and all(assigned.quiet for assigned in some):
            # Then one long wait covers its partitions and these.
            return None
        session.brief = under_way == _SESSIONS_PER_LANE - 1
        asked: Asked = {}
        brings_little = session.brought_bytes < _LITTLE_BYTES
        for assigned in some:
            asked[assigned.place.partition] = (assigned, assigned.generation, assigned.fetch_offset)
            if assigned.fetch_offset < assigned.readable_offset:
                brings_little = False
            self.fly(assigned)
        settings = self.settings
        # Lanes share the budget, so that many of them cannot fill the memory at once. A single one has half of it: the
        # next reply is under way while one is polled.
        share = settings.fetch_max_bytes // max(2, len(self._lanes))
        request = session.request(
            asked,
            wait_ms=min(settings.fetch_max_wait_ms, _BRIEF_WAIT_MS)
            if session.brief
            else settings.fetch_max_wait_ms,
            bytes_min=settings.fetch_min_bytes,
            bytes_max=max(share, min(settings.max_partition_fetch_bytes, settings.fetch_max_bytes)),
            partition_bytes_max=settings.max_partition_fetch_bytes,
            follower=lane < 0,
        )
        return Ask(
            Api.FETCH,
            encode_body(request),
            some[0].place.partition,
            (settings.fetch_max_wait_ms + settings.request_timeout_ms) / 1000,
            partial(self._fetched, session, asked, lane < 0),
            partial(self._not_fetched, session, asked, lane < 0),
            node=self._near_lanes[lane] if lane < 0 else some[0].place.node,
            to_leader=lane >= 0,
            waits_s=request.wait_ms / 1000,
            # At the end of logs that grow slowly a place for the reply costs more than it saves.
            landing_bytes=0 if brings_little else request.bytes_max + LANDING_SPARE_BYTES,
        )

    def _fetched(
        self, session: FetchSession, asked: Asked, near: bool, body: memoryview, now_s: float
    ) -> None:
        if session.asked is not asked:
            return
        try:
            number, rows = unpack_fetch_reply(body)
        except CorruptFrame as wrong:
            self._not_fetched(session, asked, near, wrong, now_s)
            return
        session.answered(number, rows)
        for assigned, generation, _ in asked.values():
            if assigned.generation == generation:
                self.land(assigned)
                assigned.quiet = True
                if near:
                    # A follower hears of a commit with the next data: at the quiet end of a log its leader knows more.
                    assigned.far_until_s = now_s + self.settings.fetch_max_wait_ms / 1000
                else:
                    assigned.recover()  # a row that says otherwise comes below
        for row in rows:
            found = asked.get(row.partition)
            if found is not None and found[0].generation == found[1]:
                if near and row.error:
                    # A follower's error proves nothing: it may lag behind, or follow no more.
                    found[0].far_until_s = now_s + _FAR_S
                else:
                    self._take(found[0], found[2], row, now_s)

    def _take(self, assigned: Assigned, offset: int, row: FetchedPartition, now_s: float) -> None:
        if row.error:
            at = f"{assigned.tp} at offset {offset}"
            self.went_wrong(assigned, error_by_number(row.error, _sentence(row, at)), now_s)
            return
        assigned.retries = 0
        assigned.log_start_offset = row.log_start_offset
        assigned.readable_offset = row.readable_offset
        if assigned.fetch_offset != offset or row.next_offset == offset:
            # The same row twice in one reply, or nothing new.
            return
        if row.next_offset < offset:
            reason = f"{assigned.tp}: asked for offset {offset}, and was told to go back to {row.next_offset}"
            self.went_wrong(assigned, CorruptFrame("next_offset", 0, reason), now_s)
            return
        chunk = Chunk(assigned.tp, row.data, row.next_offset, assigned.place.topic_id)
        assigned.chunks.append(chunk)
        assigned.buffered_bytes += chunk.nbytes
        self.buffered_bytes += chunk.nbytes
        assigned.fetch_offset = row.next_offset
        assigned.quiet = False
        assigned.far_until_s = 0.0
        self.enqueue(assigned)

    def _not_fetched(
        self, session: FetchSession, asked: Asked, near: bool, error: RinglogError, now_s: float
    ) -> None:
        if session.asked is not asked:
            return
        only_session = isinstance(error, FetchSessionLost) and session.number != 0
        session.lost()
        for assigned, generation, _ in asked.values():
            if assigned.generation == generation:
                self.land(assigned)
                if near and not only_session:
                    assigned.far_until_s = now_s + _FAR_S
                elif not only_session:
                    self.went_wrong(assigned, error, now_s)


def _sentence(row: FetchedPartition, at: str) -> str:
    return f"{at}; the log has {row.log_start_offset} to {row.readable_offset}"
