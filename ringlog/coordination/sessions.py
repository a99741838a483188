"""Sessions of members: who was heard of when, and whose time is over. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Ticket = Any
"""Who waits for a reply; it is only handed back."""


class MemberAt(NamedTuple):
    """A member, by its group and its own id."""

    group_id: str
    member_id: str


class Sessions:
    """When each member was last heard of.

    >>> sessions = Sessions()
    >>> sessions.hear(MemberAt("g", "m"), timeout_ms=100, now_ms=0)
    >>> sessions.hear(MemberAt("g", "m"), timeout_ms=100, now_ms=90)
    >>> sessions.over(150), sessions.next_due_ms, sessions.over(190)
    ([], 190, [MemberAt(group_id='g', member_id='m')])
    """

    def __init__(self) -> None:
        self._heard_ms: dict[MemberAt, int] = {}
        self._end_ms: dict[MemberAt, int] = {}
        self._tickets: dict[MemberAt, Ticket] = {}
        """Of each member's last heartbeat."""
        self._due: list[tuple[int, MemberAt]] = []
        self._looked_for: dict[MemberAt, int] = {}
        """The one entry of `_due` that counts for each member; its session ends then or later."""

    @property
    def next_due_ms(self) -> int | None:
        return self._due[0][0] if self._due else None

    def hear(self, at: MemberAt, *, timeout_ms: int, now_ms: int, ticket: Ticket = None) -> None:
        """The member lives: its session goes on for `timeout_ms`."""
        self._heard_ms[at] = now_ms
        self._tickets[at] = ticket
        self._end_ms[at] = now_ms + timeout_ms
        if self._looked_for.get(at, now_ms + timeout_ms + 1) > now_ms + timeout_ms:
            self._look_at(at, now_ms + timeout_ms)

    def end_at(self, end_ms: int, gone: Callable[[Ticket], bool]) -> None:
        """Members whose last ticket is `gone` end by then, unless they are heard of again."""
        for at in [at for at, ticket in self._tickets.items() if ticket is not None and gone(ticket)]:
            if end_ms < self._end_ms[at]:
                self._end_ms[at] = end_ms
                self._look_at(at, end_ms)

    def over(self, now_ms: int) -> list[MemberAt]:
        """Members whose sessions have ended. They are forgotten."""
        ended: list[MemberAt] = []
        while self._due and self._due[0][0] <= now_ms:
            due_ms, at = heapq.heappop(self._due)
            if self._looked_for.get(at) != due_ms:
                continue
            del self._looked_for[at]
            if self._end_ms[at] <= now_ms:
                self.forget(at)
                ended.append(at)
            else:
                self._look_at(at, self._end_ms[at])
        return ended

    def heard_ms(self, group_id: str, members: Iterable[str]) -> dict[str, int]:
        """When members of a group were last heard of."""
        known = self._heard_ms
        return {name: known[at] for name in members if (at := MemberAt(group_id, name)) in known}

    def forget(self, at: MemberAt) -> None:
        for known in (self._heard_ms, self._end_ms, self._looked_for, self._tickets):
            known.pop(at, None)

    def _look_at(self, at: MemberAt, due_ms: int) -> None:
        self._looked_for[at] = due_ms
        heapq.heappush(self._due, (due_ms, at))
