"""Sessions of members: who was heard of when, and whose time is over. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple


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
        self._due: list[tuple[int, MemberAt]] = []
        self._looked_for: dict[MemberAt, int] = {}
        """The one entry of `_due` that counts for each member; its session ends then or later."""

    @property
    def next_due_ms(self) -> int | None:
        return self._due[0][0] if self._due else None

    def hear(self, at: MemberAt, *, timeout_ms: int, now_ms: int) -> None:
        """The member lives: its session goes on for `timeout_ms`."""
        self._heard_ms[at] = now_ms
        self._end_ms[at] = now_ms + timeout_ms
        if self._looked_for.get(at, now_ms + timeout_ms + 1) > now_ms + timeout_ms:
            self._look_at(at, now_ms + timeout_ms)

    def end_at(self, at: MemberAt, end_ms: int) -> None:
        """Unless it is heard of again, the member's session ends by then."""
        if at in self._end_ms and end_ms < self._end_ms[at]:
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
        for known in (self._heard_ms, self._end_ms, self._looked_for):
            known.pop(at, None)

    def _look_at(self, at: MemberAt, due_ms: int) -> None:
        self._looked_for[at] = due_ms
        heapq.heappush(self._due, (due_ms, at))
