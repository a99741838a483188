"""Calls between nodes, as a table of states: those that this node makes, and those that it has taken. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ringlog.errors import check
from ringlog.net.peer_near import Landing, Places

Lane = tuple[int, int]
"""Of a call: a shard of this node, and one of the other, that speak with each other."""


class CallState(Enum):
    """How far a call to another node is."""

    DOWN = "down"
    """There is no connection."""
    GREETING = "greeting"
    """There is one, and the other node has not let us in yet."""
    READY = "ready"
    """Frames may go."""


_NEXT: dict[tuple[CallState, str], CallState] = {
    (CallState.DOWN, "up"): CallState.GREETING,
    # A connection may be lost and made again faster than one hears of it.
    (CallState.GREETING, "up"): CallState.GREETING,
    (CallState.READY, "up"): CallState.GREETING,
    (CallState.GREETING, "welcome"): CallState.READY,
    (CallState.READY, "welcome"): CallState.READY,
    # It was let in, and is not any more: one of the two nodes began a new life.
    (CallState.READY, "stranger"): CallState.GREETING,
    (CallState.GREETING, "stranger"): CallState.GREETING,
    (CallState.DOWN, "down"): CallState.DOWN,
    (CallState.GREETING, "down"): CallState.DOWN,
    (CallState.READY, "down"): CallState.DOWN,
    # Words of a connection that is gone already.
    (CallState.DOWN, "welcome"): CallState.DOWN,
    (CallState.DOWN, "stranger"): CallState.DOWN,
}


class Call:
    """A call that this node makes to another one.

    >>> call = Call(2, "tcp://10.0.0.2:9402")
    >>> call.step("up"), call.step("welcome"), call.step("down")
    (False, False, True)
    """

    __slots__ = ("endpoint", "greet_ms", "landing", "lanes", "node", "state", "told")

    def __init__(self, node: int, endpoint: str) -> None:
        self.node = node
        self.endpoint = endpoint
        self.state = CallState.DOWN
        self.greet_ms = 0
        """When the next hello is due, while one is."""
        self.lanes: set[Lane] = set()
        """Those that have asked something since the call was ready."""
        self.told = ""
        """Why we were not let in, as it was logged."""
        self.landing: Landing | None = None
        """What this node shares for answers; never the same again after the call was ready and is not any more."""

    def step(self, event: str) -> bool:
        """Something happened; whether frames that were sent are not answered any more because of it."""
        before = self.state
        check((before, event) in _NEXT, f"a call that is {before.value} cannot see {event}")
        self.state = _NEXT[before, event]
        was_lost = before is CallState.READY and self.state is not CallState.READY
        if event == "up" or was_lost:
            self.greet_ms = 0
        return was_lost

    @property
    def is_ready(self) -> bool:
        return self.state is CallState.READY


class Caller(NamedTuple):
    """A node that called, and was let in."""

    routing_id: bytes
    node: int
    broker_epoch: int
    places: Places | None = None
    """For answers, in memory that the node shares."""


class Callers:
    """The nodes that were let in: one call of each counts, its last."""

    def __init__(self) -> None:
        self.by_routing_id: dict[bytes, Caller] = {}
        self.by_node: dict[int, Caller] = {}
        self._strangers: set[bytes] = set()
        """Connections that were told to say hello, or why they are not let in."""

    def let_in(self, caller: Caller) -> None:
        before = self.by_node.get(caller.node)
        if before is not None:
            self.left(before.routing_id)
        self._strangers.discard(caller.routing_id)
        self.by_routing_id[caller.routing_id] = self.by_node[caller.node] = caller

    def left(self, routing_id: bytes) -> Caller | None:
        """A connection ended, or counts no more."""
        self._strangers.discard(routing_id)
        caller = self.by_routing_id.pop(routing_id, None)
        if caller is not None and self.by_node.get(caller.node) is caller:
            del self.by_node[caller.node]
        return caller

    def is_news(self, routing_id: bytes) -> bool:
        """Whether a stranger has not been told yet that it is one: once is enough, whatever it goes on to send."""
        if routing_id in self._strangers:
            return False
        self._strangers.add(routing_id)
        return True
