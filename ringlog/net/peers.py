"""What a network process knows of its clients: who they are, what they wait for, how much they may have. Pure.

A client is known by the routing id that it chose, which proves nothing; inside the node it is a session number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ringlog.errors import InvalidRequest, Overloaded
from ringlog.limits import (
    CLIENT_BYTES_IN_FLIGHT_MAX,
    CLIENT_REPLY_BYTES_MAX,
    CLIENT_REQUESTS_MAX,
    NODE_BYTES_IN_FLIGHT_MAX,
    SESSION_IDLE_MS,
)
from ringlog.net.near import SharedMemory
from ringlog.ring.drain import NO_PARTITION

_DEAF_BYTES = 2 * CLIENT_REPLY_BYTES_MAX


class PendingRequest(msgspec.Struct, frozen=True, gc=False):
    """A request on its way through the node."""

    process: int
    """Who answers it."""
    api_key: int
    nbytes: int
    came_us: int
    landing: memoryview | None = None
    """Of a fetch: where in the client's memory its reply may be put."""
    partition: int = NO_PARTITION


class HeldFetch(NamedTuple):
    """A fetch that waits until its client has received more."""

    frame: bytearray
    due_ms: int
    """When the client gives up, as `ring.frame.due_at` says it."""
    landing: memoryview | None
    """Where in the client's memory its reply may be put."""


class Peer:
    """One client."""

    __slots__ = (
        "held",
        "in_flight_bytes",
        "near",
        "pending",
        "received_bytes",
        "routing_id",
        "seen_ms",
        "sent_bytes",
        "session",
    )

    def __init__(self, routing_id: bytes, session: int, now_ms: int) -> None:
        self.routing_id = routing_id
        self.session = session
        self.seen_ms = now_ms
        self.pending: dict[int, PendingRequest] = {}
        """Requests that are not answered, by their correlation."""
        self.in_flight_bytes = 0
        self.near: SharedMemory | None = None
        """Memory of its process, if it is on this host and shares some."""
        self.sent_bytes = 0
        self.received_bytes = 0
        """Of what was sent, as far as the client has said."""
        self.held: deque[HeldFetch] = deque()
        """Fetches that wait until it has received more of what it asked for."""

    @property
    def unreceived_bytes(self) -> int:
        return self.sent_bytes - self.received_bytes

    @property
    def must_hold(self) -> bool:
        """Too much that it asked for is still on its way."""
        return self.sent_bytes - self.received_bytes > CLIENT_REPLY_BYTES_MAX

    @property
    def deaf(self) -> bool:
        """It does not read its replies at all: answering it would only fill memory."""
        return self.sent_bytes - self.received_bytes > _DEAF_BYTES


class Peers:
    """All clients of a network process."""

    def __init__(self) -> None:
        self.by_routing_id: dict[bytes, Peer] = {}
        self.by_session: dict[int, Peer] = {}
        self._next_session = 1
        self.in_flight_bytes = 0
        self.pending_count = 0
        self.near_count = 0
        """Clients that share memory."""
        self.dropped: list[int] = []
        """Sessions that are over, until shards are told."""

    def __len__(self) -> int:
        return len(self.by_session)

    def left(self, routing_id: bytes) -> int | None:
        """The connection of a client is gone, and with it the client: a new connection has a new id. The session
        that it had."""
        peer = self.by_routing_id.get(routing_id)
        if peer is None:
            return None
        self.drop(peer)
        return peer.session

    def seen(self, routing_id: bytes, now_ms: int) -> Peer:
        """The client with this routing id, new or known."""
        peer = self.by_routing_id.get(routing_id)
        if peer is None:
            peer = Peer(routing_id, self._next_session, now_ms)
            self._next_session += 1
            self.by_routing_id[routing_id] = self.by_session[peer.session] = peer
        peer.seen_ms = now_ms
        return peer

    def note_received(self, peer: Peer, received_bytes: int) -> None:
        """The client says how much of its replies has arrived. It may only grow, and not beyond what was sent: a client
        that could begin anew could have any amount on its way."""
        if peer.received_bytes <= received_bytes <= peer.sent_bytes:
            peer.received_bytes = received_bytes

    def admit(self, peer: Peer, correlation: int, request: PendingRequest) -> None:
        """Note a request that will be answered by a process; raises when it must be refused."""
        nbytes = request.nbytes
        if correlation in peer.pending:
            raise InvalidRequest(f"correlation {correlation} is that of a request that is not answered yet")
        if len(peer.pending) >= CLIENT_REQUESTS_MAX:
            raise Overloaded(f"{len(peer.pending)} requests of this client are not answered yet")
        if peer.in_flight_bytes + nbytes > CLIENT_BYTES_IN_FLIGHT_MAX:
            raise Overloaded(f"{peer.in_flight_bytes} bytes of this client's requests are not answered yet")
        if self.in_flight_bytes + nbytes > NODE_BYTES_IN_FLIGHT_MAX:
            raise Overloaded(f"{self.in_flight_bytes} bytes of requests are not answered yet")
        peer.pending[correlation] = request
        peer.in_flight_bytes += nbytes
        self.in_flight_bytes += nbytes
        self.pending_count += 1

    def settle(self, peer: Peer, correlation: int) -> int | None:
        """A request is answered: when it came, in µs; None when it was not waited for."""
        found = peer.pending.pop(correlation, None)
        if found is None:
            return None
        peer.in_flight_bytes -= found.nbytes
        self.in_flight_bytes -= found.nbytes
        self.pending_count -= 1
        return found.came_us

    def drop(self, peer: Peer) -> None:
        """The client is gone."""
        for correlation in list(peer.pending):
            self.settle(peer, correlation)
        peer.held.clear()
        self.share(peer, None)
        self.by_routing_id.pop(peer.routing_id, None)
        if self.by_session.pop(peer.session, None) is not None:
            self.dropped.append(peer.session)

    def share(self, peer: Peer, memory: SharedMemory | None) -> None:
        """From now on a client shares this memory instead of what it shared before; None: nothing."""
        self.near_count += (memory is not None) - (peer.near is not None)
        peer.near = memory

    def waiting_for(self, process: int) -> list[tuple[Peer, int, PendingRequest]]:
        """Client and correlation of all requests that a process has not answered."""
        return [
            (peer, correlation, request)
            for peer in self.by_session.values()
            for correlation, request in peer.pending.items()
            if request.process == process
        ]

    def expire(self, now_ms: int, is_connected: Callable[[bytes], bool]) -> None:
        """Forget clients that have been silent for long, unless their connection is known to be open: such a one counts
        on what it received, and would have no credit with who counts anew."""
        gone = [
            peer
            for peer in self.by_session.values()
            if now_ms - peer.seen_ms > SESSION_IDLE_MS and not is_connected(peer.routing_id)
        ]
        for peer in gone:
            self.drop(peer)
