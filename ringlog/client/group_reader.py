"""The poller's side of a group: takes and gives up partitions between two polls, calls back, and commits.

All of it happens on the thread that polls, so that a record is never taken away while it is being worked on.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from ringlog.client.assigned import UNKNOWN, Place
from ringlog.client.commits import CommitCallback, Commits, OffsetAndMetadata, Offsets
from ringlog.client.connection import Connection
from ringlog.client.consumer_settings import ConsumerSettings
from ringlog.client.fetch_driver import FetchDriver
from ringlog.client.fetcher import Fetcher
from ringlog.client.group_driver import GroupDriver
from ringlog.client.rounds import places
from ringlog.errors import InvalidRequest, MemberFenced, RinglogError, UnknownTopic
from ringlog.model import TopicPartition

_PATIENCE_S = 5.0
"""How long one step of a change may take. A node that does not answer for longer is asked again at the next poll."""

T = TypeVar("T")
Listener = Callable[[list[TopicPartition]], object]


class GroupReader:
    """A consumer's membership in one group. Without a subscription it only commits and asks."""

    def __init__(
        self,
        connection: Connection,
        fetches: FetchDriver,
        settings: ConsumerSettings,
        group_id: str,
        positions: Callable[[Iterable[TopicPartition]], dict[TopicPartition, int]],
    ) -> None:
        """`positions`, a method of the consumer: up to where the user has got records. Held weakly: a consumer that
        nobody holds goes at once, and not when a collector comes by."""
        self.group_id = group_id
        self._connection = connection
        self._fetches = fetches
        self._settings = settings
        self._positions = weakref.WeakMethod(positions)
        self._driver = GroupDriver(connection, settings, group_id, self._interrupt)
        self.commits = Commits(connection, self._driver)
        self._on_assigned: Listener | None = None
        self._on_revoked: Listener | None = None
        self._on_lost: Listener | None = None
        self._reconciling = False
        self._giving_up: int | None = None
        """The thread that is in a callback which is told of partitions that go."""
        self._commit_due_s = time.monotonic() + settings.auto_commit_interval_ms / 1000
        self._committed: dict[TopicPartition, int] = {}
        """What was last committed, so that nothing is said twice."""

    @property
    def subscribed(self) -> bool:
        return self._driver.running

    @property
    def member_id(self) -> str:
        return self._driver.member_id

    def subscribe(
        self,
        topics: Collection[str],
        pattern: str | None,
        on_assigned: Listener | None,
        on_revoked: Listener | None,
        on_lost: Listener | None,
    ) -> None:
        """Become a member that reads these, or change what a member reads."""
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        self._driver.change(lambda member: member.subscribe(topics, pattern))
        self._driver.start(self._timeout_s())

    def leave(self, *, commit: bool) -> None:
        """Give everything up and leave the group. With `commit`, what was polled is committed first."""
        held = self._driver.look(lambda member: set(member.held))
        try:
            if held and commit:
                self._auto_commit(held)
            if held:
                self._tell_gone(self._on_revoked, held)
        finally:
            # Whatever the callback does: else others would wait for a session until they may read these.
            self._drop(held)
            self._driver.stop()

    def check_may_leave(self) -> None:
        """InvalidRequest in a callback that is told of partitions that go: whoever leaves gives up the rest, and would
        call it again."""
        if self._giving_up == threading.get_ident():
            raise InvalidRequest(
                "on_revoked and on_lost may not close or unsubscribe their consumer: do it where you poll"
            )

    # -- between two polls -----------------------------------------------------------------------------------------

    def before_poll(self) -> bool:
        """Do what the group wants, and commit if it is time to. True: other partitions are read than before."""
        if self._reconciling:
            return False  # a callback polls
        changed = self._driver.running and self._driver.look(lambda member: member.unsettled)
        if changed:
            self._reconciling = True
            try:
                self._reconcile()
            finally:
                self._reconciling = False
        now_s = time.monotonic()
        if self._settings.enable_auto_commit and now_s >= self._commit_due_s:
            self._commit_due_s = now_s + self._settings.auto_commit_interval_ms / 1000
            self._commit_in_background()
        return changed

    def _reconcile(self) -> None:
        lost = self._driver.look(lambda member: member.take_lost())
        if lost:
            self._drop(lost)
            self._tell_gone(self._on_lost or self._on_revoked, lost)
        failure = self._driver.look(lambda member: member.failure)
        if failure is not None:
            raise failure
        revoked = self._driver.look(lambda member: member.to_give_up)
        if revoked:
            if self._settings.enable_auto_commit:
                self._auto_commit(revoked)
            try:
                self._tell_gone(self._on_revoked, revoked)
            finally:
                # Whatever the callback does: others wait for these, and it was told of them once.
                self._drop(revoked)
                self._driver.change(lambda member: member.gave_up(revoked))
        assigned = self._driver.look(lambda member: member.to_take)
        if assigned:
            taken = self._tried(lambda: self._take(assigned)) or []
            if taken and self._on_assigned is not None:
                self._on_assigned(taken)  # what it raises is the user's, whatever its type
            if taken and self._settings.reset is not None:
                self._tried(lambda: self._fetches.settle(taken, self._step_s()))

    def _tell_gone(self, listener: Listener | None, tps: Collection[TopicPartition]) -> None:
        if listener is None:
            return
        before, self._giving_up = self._giving_up, threading.get_ident()
        try:
            listener(sorted(tps))
        finally:
            self._giving_up = before

    def _tried(self, step: Callable[[], T]) -> T | None:
        """What a step of a change finds; None when it fails and a later poll, or the group, puts that right."""
        try:
            return step()
        except UnknownTopic:
            return None  # deleted a moment ago: the group will say so, too
        except RinglogError as error:
            if not error.retriable:
                raise
            return None  # the next poll tries again: what was not taken is still to be taken

    def _take(self, tps: dict[TopicPartition, int]) -> list[TopicPartition]:
        """Begin with partitions where the group stopped; those that are still this member's."""
        timeout_s = self._step_s()
        found = places(self._connection, sorted(tps), timeout_s)
        known = self.commits.committed(sorted(tps), timeout_s)
        wanted: dict[TopicPartition, tuple[Place, int | None]] = {}
        for tp in sorted(tps):
            committed = known[tp]
            wanted[tp] = (found[tp], None if committed is None else committed.offset)
        taken = self._driver.change(lambda member: member.took(tps))
        wanted = {tp: place for tp, place in wanted.items() if tp in taken}
        self._fetches.change(lambda fetcher: fetcher.assign(_with(fetcher, wanted)))
        self._committed.update({tp: offset for tp, (_, offset) in wanted.items() if offset is not None})
        return sorted(wanted)

    def _drop(self, tps: Collection[TopicPartition]) -> None:
        if tps:
            self._fetches.change(lambda fetcher: fetcher.assign(_without(fetcher, tps)))
            for tp in tps:
                self._committed.pop(tp, None)

    # -- commits -----------------------------------------------------------------------------------------------------

    def commit(self, wanted: Offsets | None, timeout_s: float) -> None:
        """Commit and wait."""
        chosen = self._polled() if wanted is None else wanted
        self.commits.commit(chosen, timeout_s)
        self._note(chosen)

    def commit_async(self, wanted: Offsets | None, callback: CommitCallback | None) -> None:
        """Commit and do not wait."""
        self.commits.commit_async(self._polled() if wanted is None else wanted, callback)

    def close(self, *, commit: bool) -> None:
        """The consumer ends."""
        if self._driver.running:
            self.leave(commit=commit and self._settings.enable_auto_commit)
        elif commit and self._settings.enable_auto_commit:
            self._auto_commit(self._fetches.look(Fetcher.assignment))

    def _polled(self, tps: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        positions = self._positions()
        if positions is None:
            return {}
        some = self._fetches.look(Fetcher.assignment) if tps is None else tps
        return {tp: OffsetAndMetadata(offset) for tp, offset in positions(some).items() if offset != UNKNOWN}

    def _news(self, tps: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        return {tp: at for tp, at in self._polled(tps).items() if self._committed.get(tp) != at.offset}

    def _auto_commit(self, tps: Iterable[TopicPartition]) -> None:
        """Commit what was polled of partitions that go away. If that fails, another reads some records again, which is
        what happens with every member that dies: no reason to keep them."""
        chosen = self._news(tps)
        try:
            self.commits.commit(chosen, self._step_s())
        except RinglogError:
            return
        self._note(chosen)

    def _commit_in_background(self) -> None:
        chosen = self._news()
        if not chosen:
            return

        def done(offsets: Offsets, error: RinglogError | None) -> None:
            if error is None:
                self._note(offsets)

        try:
            self.commits.commit_async(chosen, done)
        except MemberFenced:
            return  # it is about to rejoin, and reads on from what was committed before

    def _note(self, committed: Offsets) -> None:
        self._committed.update({tp: at.offset for tp, at in committed.items()})

    def _interrupt(self) -> None:
        self._fetches.interrupt()

    def _timeout_s(self) -> float:
        return self._settings.default_api_timeout_ms / 1000

    def _step_s(self) -> float:
        return min(self._timeout_s(), _PATIENCE_S)


def _with(
    fetcher: Fetcher, more: dict[TopicPartition, tuple[Place, int | None]]
) -> dict[TopicPartition, tuple[Place, int | None]]:
    kept: dict[TopicPartition, tuple[Place, int | None]] = {
        tp: (fetcher[tp].place, None) for tp in fetcher.assignment() if tp not in more
    }
    return kept | more


def _without(
    fetcher: Fetcher, gone: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[Place, int | None]]:
    return {tp: (fetcher[tp].place, None) for tp in fetcher.assignment() if tp not in gone}
