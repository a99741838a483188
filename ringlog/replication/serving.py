"""The leader's end of fetches: sessions that remember positions, and long polls that wait for news. Pure.

A session knows which of its partitions have something to say (`hot`): new batches, another epoch, a divergence. A fetch
is answered as soon as one has, else when its time is up. A watermark that moved alone becomes hot a little later
(`marks`): every answer carries it, so the next data may take it along. What is read, and from where, is the caller's:
it gets a `Plan` with a verdict per partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ringlog.errors import RinglogError
from ringlog.limits import REPLICA_MARK_MS
from ringlog.replication.leader import Leader, Serve, Verdict
from ringlog.replication.messages import ReplicaFetch, ReplicaHeld, Want
from ringlog.replication.replica import Replica
from ringlog.replication.view import ReplicaLog

Find = Callable[[int], tuple[Replica, ReplicaLog]]
"""A partition's replica and log here; raises what the follower is to be told."""


class Entry(NamedTuple):
    """What is to be said about one partition."""

    want: Want
    verdict: Verdict | RinglogError


class Plan(NamedTuple):
    """A fetch that is to be answered now."""

    asker: object
    fetch: ReplicaFetch
    lost: bool
    entries: list[Entry]
    moved: tuple[int, ...] = ()
    """Partitions whose watermark moved when their positions were looked at again: one that came before its leader had
    taken office counts from then on."""


class ServeSession:
    """What one lane of one node follows here."""

    __slots__ = (
        "asker",
        "deadline_ms",
        "fetch",
        "hot",
        "marks",
        "name",
        "prefix_of",
        "sequence",
        "told",
        "wants",
    )

    def __init__(self, fetch: ReplicaFetch) -> None:
        self.name = (fetch.node_epoch, fetch.session)
        self.sequence = -1
        self.wants: dict[int, Want] = {}
        self.prefix_of: dict[int, Leader] = {}
        """The leader that has found a position to be a prefix of its log. A leader's log grows at its end alone, so
        that need not be found out again when there is something to send."""
        self.told: dict[int, tuple[int, int]] = {}
        """Under which leader epoch a follower was last told where a log begins, and where that was."""
        self.hot: dict[int, None] = {}
        self.marks: dict[int, int] = {}
        """Partitions whose watermark moved since it was told, and when it is to be; in the order of that."""
        self.fetch: ReplicaFetch | None = None
        """The one that waits: each is answered once."""
        self.asker: object = None
        self.deadline_ms = 0

    @property
    def due_ms(self) -> int:
        """When the fetch that waits is to be answered, should nothing happen before."""
        return min(self.deadline_ms, next(iter(self.marks.values()), self.deadline_ms))


class ServingDesk:
    """All sessions of other nodes with this one."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._sessions: dict[tuple[int, int], ServeSession] = {}
        """By node and lane: each has one session, its latest."""
        self._watchers: dict[int, set[tuple[int, int]]] = {}

    def fetch(self, asker: object, fetch: ReplicaFetch, now_ms: int) -> tuple[list[Plan], list[int]]:
        """Take a fetch. Returns what is to be answered now, and the partitions whose watermark moved.

        A fetch that waits is answered when the next one of its session comes. One that is older than what its lane
        has sent since, or the same again, is not answered at all."""
        key, name = (fetch.node, fetch.lane), (fetch.node_epoch, fetch.session)
        session = self._sessions.get(key)
        if session is not None and name < session.name:
            return [], []
        if fetch.sequence == 0 and (session is None or session.name != name):
            self._end(key)
            session = self._sessions[key] = ServeSession(fetch)
        if session is None or session.name != name or fetch.sequence > session.sequence + 1:
            return [Plan(asker, fetch, True, [])], []
        if fetch.sequence <= session.sequence:
            return [], []
        plans = [Plan(session.asker, session.fetch, False, [])] if session.fetch is not None else []
        session.sequence, session.fetch, session.asker = fetch.sequence, fetch, asker
        session.deadline_ms = now_ms + fetch.wait_ms
        for partition in fetch.forget:
            self._forget(key, session, partition)
        moved = self._note(key, session, fetch.wants, now_ms)
        plan = self._answer(session, now_ms)
        return plans + ([plan] if plan is not None else []), moved

    def held(self, report: ReplicaHeld, now_ms: int) -> list[int]:
        """A node reports what it holds by now, outside of its fetches; the partitions whose watermark moved."""
        moved = []
        for want in report.wants:
            try:
                leader, log = self._led(want.partition)
                before = leader.high_watermark
                leader.fetched(report.node, report.node_epoch, want, log, now_ms, report.session)
            except RinglogError:
                continue  # its next fetch is told why
            if leader.high_watermark > before:
                moved.append(want.partition)
        return moved

    def grown(self, partition: int, now_ms: int) -> list[Plan]:
        """A partition has new batches to serve, or another role or epoch: those who wait for that are answered."""
        plans = []
        for key in sorted(self._watchers.get(partition, ())):
            session = self._sessions[key]
            session.hot[partition] = None
            plan = self._answer(session, now_ms)
            if plan is not None:
                plans.append(plan)
        return plans

    def committed(self, partition: int, now_ms: int) -> bool:
        """The watermark of a partition moved: those who follow it are told with the next data, or after
        REPLICA_MARK_MS. Whether there are such."""
        watchers = self._watchers.get(partition, ())
        for key in watchers:
            self._sessions[key].marks.setdefault(partition, now_ms + REPLICA_MARK_MS)
        return bool(watchers)

    def expire(self, now_ms: int) -> list[Plan]:
        """Answer the fetches whose time is up, and those that are to hear of a watermark."""
        plans = [self._answer(session, now_ms) for session in self._sessions.values()]
        return [plan for plan in plans if plan is not None]

    def due_of(self, fetch: ReplicaFetch) -> int | None:
        """When the fetch that waits in the session of this one is to be answered; None: none waits there."""
        session = self._sessions.get((fetch.node, fetch.lane))
        return session.due_ms if session is not None and session.fetch is not None else None

    @property
    def is_idle(self) -> bool:
        """Nobody fetches here."""
        return not self._sessions

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` has something to answer."""
        return min((s.due_ms for s in self._sessions.values() if s.fetch is not None), default=None)

    def put_back(self, plan: Plan, partitions: Iterable[int]) -> None:
        """Some entries of a plan found no room in its answer: they come first in the next one."""
        session = self._sessions.get((plan.fetch.node, plan.fetch.lane))
        if session is not None and session.name == (plan.fetch.node_epoch, plan.fetch.session):
            session.hot = {**dict.fromkeys(p for p in partitions if p in session.wants), **session.hot}

    def leave(self, asker_gone: Callable[[object], bool]) -> None:
        """Those who asked through a process that died begin anew."""
        for key in [key for key, session in self._sessions.items() if asker_gone(session.asker)]:
            self._end(key)

    # -- inside ------------------------------------------------------------------------------------------------

    def _note(self, key: tuple[int, int], session: ServeSession, wants: list[Want], now_ms: int) -> list[int]:
        moved = []
        node_epoch, number = session.name
        for want in wants:
            partition = want.partition
            is_new = partition not in session.wants
            session.wants[partition] = want
            self._watchers.setdefault(partition, set()).add(key)
            session.hot.pop(partition, None)
            session.prefix_of.pop(partition, None)
            try:
                leader, log = self._led(partition)
                before = leader.high_watermark
                verdict = leader.fetched(key[0], node_epoch, want, log, now_ms, number)
            except RinglogError:
                session.hot[partition] = None  # the answer says why
                continue
            if is_new and leader.high_watermark > log.start_offset:
                # Its process may have begun anew, and know of no commit.
                session.marks.setdefault(partition, now_ms + REPLICA_MARK_MS)
            if not isinstance(verdict, Serve):
                session.hot[partition] = None
                continue
            session.prefix_of[partition] = leader
            if leader.high_watermark > before:
                moved.append(partition)
            if log.readable_offset > want.fetch_offset or _must_hear(session, want, log):
                session.hot[partition] = None
        return moved

    def _led(self, partition: int) -> tuple[Leader, ReplicaLog]:
        """A partition that is led here; raises what the follower is to be told."""
        replica, log = self._find(partition)
        return replica.must_lead(), log

    def _answer(self, session: ServeSession, now_ms: int) -> Plan | None:
        if session.fetch is None or not (session.hot or session.due_ms <= now_ms):
            return None
        for partition, due_ms in session.marks.items():
            if due_ms > now_ms:
                break
            session.hot[partition] = None
        return self._plan(session, now_ms)

    def _plan(self, session: ServeSession, now_ms: int) -> Plan:
        fetch, session.fetch = session.fetch, None
        assert fetch is not None
        entries, moved = [], []
        for partition in session.hot:
            want = session.wants[partition]
            verdict: Verdict | RinglogError
            try:
                leader, log = self._led(partition)
                before = leader.high_watermark
                if session.prefix_of.get(partition) is leader and want.fetch_offset >= log.start_offset:
                    verdict = Serve(want.fetch_offset)
                else:
                    verdict = leader.fetched(fetch.node, fetch.node_epoch, want, log, now_ms, fetch.session)
                if isinstance(verdict, Serve):
                    session.told[partition] = want.leader_epoch, log.start_offset
                if leader.high_watermark > before:
                    moved.append(partition)
            except RinglogError as error:
                verdict = error
            entries.append(Entry(want, verdict))
            if session.marks.pop(partition, None) is not None and not isinstance(verdict, Serve):
                session.marks[partition] = (
                    now_ms + REPLICA_MARK_MS
                )  # who is to be cut first learns nothing yet
        session.hot = {}
        return Plan(session.asker, fetch, False, entries, tuple(moved))

    def _forget(self, key: tuple[int, int], session: ServeSession, partition: int) -> None:
        session.wants.pop(partition, None)
        session.told.pop(partition, None)
        session.prefix_of.pop(partition, None)
        session.hot.pop(partition, None)
        session.marks.pop(partition, None)
        watchers = self._watchers.get(partition)
        if watchers is not None:
            watchers.discard(key)
            if not watchers:
                del self._watchers[partition]

    def _end(self, key: tuple[int, int]) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            for partition in list(session.wants):
                self._forget(key, session, partition)


def _must_hear(session: ServeSession, want: Want, log: ReplicaLog) -> bool:
    """Whether a follower's log begins before this one, and nobody has told it so: once is enough, since it takes a
    moment until that is durable there."""
    told = session.told.get(want.partition)
    return 0 <= want.start_offset < log.start_offset and told != (want.leader_epoch, log.start_offset)
