"""The sockets between nodes: one ROUTER that other nodes call, and a DEALER for each node that this one calls.

They are apart from those of clients, in a process of their own: however many clients there are, replication waits
for none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import zmq

from ringlog.limits import FRAME_BYTES_MAX, PEER_CONNECTIONS_MAX, PEER_MESSAGES_MAX
from ringlog.net.dealer import Change, Dealer
from ringlog.net.peer_calls import Call
from ringlog.net.peer_service import PeerService
from ringlog.net.router import RouterSocket, descriptor

RECEIVE_MESSAGES_MAX = 64
"""Messages of one node that are taken before others get their turn."""
RECONNECT_MS_MAX = 200
"""Between two attempts to reach a node that is down: when it is back, its partitions wait for no more than this."""
_NOBLOCK = int(zmq.NOBLOCK)
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)


class PeerSockets:
    """All sockets of the peer process, and the place where it waits for them."""

    def __init__(self, listen: str, wake_fd: int) -> None:
        self._router = RouterSocket(
            [listen],
            connections_max=PEER_CONNECTIONS_MAX,
            queued_messages_max=PEER_MESSAGES_MAX,
            setting="--cluster",
        )
        self._context: zmq.Context[Any] = zmq.Context(io_threads=1)
        self._wake_fd = wake_fd
        self._poller = zmq.Poller()
        for source in (self._router.socket, self._router.monitor, wake_fd):
            self._poller.register(source, zmq.POLLIN)
        self._ready: set[Any] = set()
        """What had something when the last wait ended."""
        self._dealers: dict[int, Dealer] = {}
        self._calls: dict[int, Call] = {}
        """Which call each of them serves."""

    @property
    def endpoint(self) -> str:
        """Where it listens, with the port that the system chose."""
        return self._router.endpoints[0]

    def count_connections(self, counts: dict[str, int]) -> None:
        """Say how many of those who called there are, and may be."""
        self._router.count_connections(counts)

    # -- sending -----------------------------------------------------------------------------------------------

    def follow(self, calls: Mapping[int, Call]) -> None:
        """Begin to call the nodes that are to be called, and hang up on the others. A call that was made anew, be it to
        the same place, waits to hear of a connection of its own."""
        for node, dealer in list(self._dealers.items()):
            if calls.get(node) is not self._calls[node]:
                del self._dealers[node], self._calls[node]
                dealer.close()
        for node, call in calls.items():
            if node not in self._dealers:
                self._calls[node] = call
                self._dealers[node] = Dealer(
                    self._context,
                    call.endpoint,
                    self._poller,
                    self._ready,
                    message_bytes_max=FRAME_BYTES_MAX,
                    reconnect_ms_max=RECONNECT_MS_MAX,
                )

    def send(self, node: int, message: bytes | bytearray) -> bool:
        """Through a call of this node; False when there is no connection, or no room."""
        dealer = self._dealers.get(node)
        return dealer is not None and dealer.send(message)

    def answer(self, routing_id: bytes, message: bytes | bytearray) -> bool:
        """To who called; False when it is gone, or reads nothing of what it was sent."""
        return self._router.send(routing_id, message)

    # -- receiving ---------------------------------------------------------------------------------------------

    def wait(self, wait_ms: int) -> bool:
        """Return when a socket or the wake-up has something, or when the time is over; whether it was the wake-up."""
        found = self._poller.poll(wait_ms)
        self._ready.clear()
        self._ready.update([source for source, _ in found])
        return self._wake_fd in self._ready

    def pump(self, service: PeerService) -> bool:
        """Hand over what came, some of each node; whether there was something."""
        busy = False
        for node, dealer in self._dealers.items():
            for change in dealer.changes():
                (service.connected if change is Change.UP else service.disconnected)(node)
            if dealer.has_frames:
                busy = True
                self._take_answers(service, node, dealer)
        if self._router.monitor in self._ready:
            self.follow_connections(service)
        if self._router.socket in self._ready:
            busy = True
            self._take_calls(service)
        return busy

    def _take_answers(self, service: PeerService, node: int, dealer: Dealer) -> None:
        for _ in range(RECEIVE_MESSAGES_MAX):
            frame = dealer.receive()
            if frame is None:
                return
            service.take_answer(node, frame)

    def _take_calls(self, service: PeerService) -> None:
        socket, connections = self._router.socket, self._router.connections
        for _ in range(RECEIVE_MESSAGES_MAX):
            if not int(socket.get(_EVENTS)) & _POLLIN:
                return
            routing_id = socket.recv(_NOBLOCK)
            frame = socket.recv(copy=False)
            if routing_id not in connections.descriptors:
                # What happened to descriptors before this message must be known before it is said whose this one is.
                self.follow_connections(service)
                connections.met(descriptor(frame), routing_id)
            connections.took(routing_id, len(frame))
            extra = frame.more
            while extra:
                part = socket.recv(copy=False)
                connections.took(routing_id, len(part))
                extra = part.more
            service.take_call(routing_id, frame.buffer)

    def follow_connections(self, service: PeerService) -> None:
        """Tell of those who called and are gone."""
        for routing_id, _ in self._router.follow_connections(None):
            service.left(routing_id)

    def cut_floods(self) -> None:
        """End connections that fill memory with messages which never become whole."""
        self._router.cut_floods()

    def close(self) -> None:
        for dealer in self._dealers.values():
            dealer.close()
        self._dealers.clear()
        self._router.close()
        self._context.term()
