"""Heartbeats that wait for news: one of each member, until a moment. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ringlog.coordination.sessions import MemberAt, Ticket


class Waiting(NamedTuple):
    """A heartbeat that waits."""

    ticket: Ticket
    epoch: int
    deadline_ms: int


class WaitingRoom:
    """All heartbeats that wait at one coordinator."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Waiting]] = {}
        self._due: list[tuple[int, MemberAt]] = []

    @property
    def next_due_ms(self) -> int | None:
        return self._due[0][0] if self._due else None

    def enter(self, at: MemberAt, ticket: Ticket, epoch: int, deadline_ms: int) -> None:
        self._groups.setdefault(at.group_id, {})[at.member_id] = Waiting(ticket, epoch, deadline_ms)
        heapq.heappush(self._due, (deadline_ms, at))

    def leave(self, at: MemberAt) -> Waiting | None:
        """The heartbeat of a member, which waits no more."""
        group = self._groups.get(at.group_id)
        if group is None:
            return None
        found = group.pop(at.member_id, None)
        if not group:
            del self._groups[at.group_id]
        return found

    def of(self, group_id: str) -> list[tuple[MemberAt, Waiting]]:
        """The heartbeats of a group's members."""
        group = self._groups.get(group_id, {})
        return [(MemberAt(group_id, member_id), found) for member_id, found in group.items()]

    def over(self, now_ms: int) -> Iterator[Waiting]:
        """Heartbeats that have waited long enough."""
        while self._due and self._due[0][0] <= now_ms:
            _, at = heapq.heappop(self._due)
            found = self._groups.get(at.group_id, {}).get(at.member_id)
            if found is not None and found.deadline_ms <= now_ms:
                self.leave(at)
                yield found

    def forget(self, gone: Callable[[Ticket], bool]) -> None:
        """Nobody is there any more behind tickets of which `gone` is true."""
        for group_id in list(self._groups):
            for at, found in self.of(group_id):
                if gone(found.ticket):
                    self.leave(at)

    def empty(self) -> list[Ticket]:
        """All who waited: they must be answered by somebody else."""
        tickets = [found.ticket for group in self._groups.values() for found in group.values()]
        self._groups.clear()
        self._due.clear()
        return tickets
