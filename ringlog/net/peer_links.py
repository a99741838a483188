"""Messages between the controllers of a cluster over ZeroMQ: each listens at one socket and has one to every other.

Nothing is promised: a message to a node that is not connected is dropped, and so is one that finds the queue full.
Raft, and whoever asks, will say it again. Every message names its cluster, so that nodes of different clusters that
were given the same address by mistake do not talk to each other.

A connection that breaks tells at once what silence tells later: the process at its other end may have died.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Literal

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from ringlog.errors import NodeFailed
from ringlog.limits import FRAME_BYTES_MAX, PEER_MESSAGES_MAX
from ringlog.net.addresses import is_ipv6
from ringlog.net.dealer import CONNECT_MS
from ringlog.net.listening import why_not_listening

_log = logging.getLogger(__name__)
_NOBLOCK = int(zmq.NOBLOCK)


class PeerMessage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """From one controller to another."""

    cluster_id: str
    """Empty while the sender belongs to none yet."""
    source: int
    kind: Literal["raft", "ask", "answer"]
    """A message of the quorum; a request to the active controller; its answer."""
    number: int
    """Of a request and its answer."""
    body: bytes
    error: bool = False
    """Of an answer: the body is an ErrorReply."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PeerMessage)


class PeerLinks:
    """The sockets of one controller."""

    def __init__(self, node_id: int, endpoints: Mapping[int, str]) -> None:
        self.node_id = node_id
        self.cluster_id = ""
        self.refused = 0
        """Messages of another cluster, or that could not be read."""
        self.strangers: dict[int, str] = {}
        """Nodes that spoke for another cluster, and for which."""
        self.heard = False
        """Whether any node of this cluster spoke."""
        self.lost: set[int] = set()
        """Nodes whose connections broke, and are not there again."""
        self.connected: set[int] = set()
        """Nodes at whose addresses somebody listens."""
        self.met: set[int] = set()
        """Nodes that were reached since somebody took them away."""
        self.heard_of: set[int] = set()
        """Nodes of which a message came since somebody took them away."""
        self._context = zmq.Context(io_threads=1)
        self._inbox = self._context.socket(zmq.PULL)
        self._inbox.set(zmq.LINGER, 0)
        self._inbox.set(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
        self._inbox.set(zmq.RCVHWM, PEER_MESSAGES_MAX)
        self._inbox.set(zmq.IPV6, is_ipv6(endpoints[node_id]))
        try:
            self._inbox.bind(endpoints[node_id])
        except zmq.ZMQError as error:
            raise NodeFailed(why_not_listening(endpoints[node_id], error, "--cluster")) from None
        self._poller = zmq.Poller()
        self._poller.register(self._inbox, zmq.POLLIN)
        self._outlets: dict[int, zmq.Socket[bytes]] = {}
        self._monitors: dict[int, zmq.Socket[bytes]] = {}
        for peer, endpoint in endpoints.items():
            if peer != node_id:
                self._outlets[peer] = self._connect(peer, endpoint)

    def _connect(self, peer: int, endpoint: str) -> zmq.Socket[bytes]:
        outlet = self._context.socket(zmq.PUSH)
        outlet.set(zmq.LINGER, 0)
        outlet.set(zmq.IPV6, is_ipv6(endpoint))
        outlet.set(zmq.IMMEDIATE, 1)  # what cannot be sent now is of no use later
        outlet.set(zmq.SNDHWM, PEER_MESSAGES_MAX)
        outlet.set(zmq.CONNECT_TIMEOUT, CONNECT_MS)
        outlet.set(zmq.RECONNECT_IVL, 20)
        outlet.set(zmq.RECONNECT_IVL_MAX, 500)
        outlet.set(zmq.HEARTBEAT_IVL, 1_000)
        outlet.set(zmq.HEARTBEAT_TIMEOUT, 3_000)
        self._monitors[peer] = outlet.get_monitor_socket(
            zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED
        )
        self._poller.register(self._monitors[peer], zmq.POLLIN)
        outlet.connect(endpoint)
        return outlet

    @property
    def fd(self) -> int:
        """Readable when something came; edge-triggered, so `receive` must then be called until it gives nothing."""
        return int(self._inbox.get(zmq.FD))

    def watch(self, fd: int) -> None:
        """End `wait` also when this descriptor is readable."""
        self._poller.register(fd, zmq.POLLIN)

    def wait(self, wait_s: float) -> None:
        """Sleep until a message comes or a connection changes, or for this long."""
        ready = dict(self._poller.poll(max(0, int(wait_s * 1000))))
        for peer, monitor in self._monitors.items():
            if monitor in ready:
                self._follow_connection(peer, monitor)

    def _follow_connection(self, peer: int, monitor: zmq.Socket[bytes]) -> None:
        while monitor.poll(0):
            if recv_monitor_message(monitor)["event"] == zmq.Event.DISCONNECTED:
                self.lost.add(peer)
                self.connected.discard(peer)
            else:
                self.lost.discard(peer)
                self.connected.add(peer)
                self.met.add(peer)

    def send(
        self,
        to: int,
        kind: Literal["raft", "ask", "answer"],
        body: bytes,
        *,
        number: int = 0,
        error: bool = False,
    ) -> bool:
        """Send if that is possible at once; False when it was not."""
        message = PeerMessage(self.cluster_id, self.node_id, kind, number, body, error)
        outlet = self._outlets.get(to)
        if outlet is None:
            return False  # a voter that this node was not told of: others reach it
        try:
            outlet.send(_encoder.encode(message), _NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> list[PeerMessage]:
        """All that came and belongs to this cluster, a bounded number at a time."""
        received: list[PeerMessage] = []
        while len(received) < PEER_MESSAGES_MAX:
            try:
                data = self._inbox.recv(_NOBLOCK)
            except zmq.Again:
                break
            try:
                message = _decoder.decode(data)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.refused += 1
                continue
            if message.source not in self._outlets or not self._same_cluster(message):
                self.refused += 1
                continue
            self.heard = True
            self.heard_of.add(message.source)
            received.append(message)
        return received

    def _same_cluster(self, message: PeerMessage) -> bool:
        if not message.cluster_id or not self.cluster_id or message.cluster_id == self.cluster_id:
            return True
        if self.strangers.get(message.source) != message.cluster_id:
            self.strangers[message.source] = message.cluster_id
            _log.error(
                "node %d belongs to cluster %s, and this node to %s: they are kept apart. Check --cluster and the "
                "data directories",
                message.source,
                message.cluster_id,
                self.cluster_id,
            )
        return False

    def close(self) -> None:
        """Close all sockets. Does nothing the second time."""
        if self._context.closed:
            return
        for outlet in self._outlets.values():
            outlet.disable_monitor()
        for socket in (self._inbox, *self._outlets.values(), *self._monitors.values()):
            socket.close(linger=0)
        self._context.term()
