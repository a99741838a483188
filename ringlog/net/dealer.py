"""The client's socket: a ZeroMQ DEALER that never blocks and says at once when its peer comes and goes."""

from __future__ import annotations

from enum import Enum
from typing import Any

import zmq
from zmq.backend import zmq_poll
from zmq.utils.monitor import recv_monitor_message

from ringlog import limits
from ringlog.net.addresses import is_ipv6
from ringlog.net.descriptors import widen
from ringlog.net.lending import LENT_BYTES_MIN, send_lent, take_back

HEARTBEAT_INTERVAL_MS = 2_000
HEARTBEAT_TIMEOUT_MS = 6_000
CONNECT_MS = 2_000
"""How long one attempt to connect may take. The kernel waits twice as long with every packet that is lost, so one that
began while the network was cut would go on waiting for up to a minute after it is there again."""
RECONNECT_MS = 50
RECONNECT_MS_MAX = 1_000
_QUEUED_MESSAGES_MAX = 2 * limits.CLIENT_REQUESTS_MAX
"""Above what a session lets out, so that EAGAIN means one thing: there is no connection."""
_REPLY_BYTES_MAX = limits.FETCH_BYTES_MAX + limits.BATCH_BYTES_MAX + limits.CONTROL_BODY_BYTES_MAX
_NOBLOCK = int(zmq.NOBLOCK)
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)
"""As plain numbers: an enum of flags costs a microsecond at each use."""


class Change(Enum):
    """What happened to the connection."""

    UP = "up"
    DOWN = "down"
    REFUSED = "refused"
    """Nobody listens there now; ZeroMQ goes on trying."""


_CHANGES = {
    int(zmq.EVENT_HANDSHAKE_SUCCEEDED): Change.UP,
    int(zmq.EVENT_DISCONNECTED): Change.DOWN,
    int(zmq.EVENT_CLOSED): Change.REFUSED,
}
_CONNECTED = int(zmq.EVENT_CONNECTED)
_WATCHED = sum(_CHANGES) | _CONNECTED


class Dealer:
    """One connection to one endpoint. Everything is called on the thread that made it."""

    def __init__(
        self,
        context: zmq.Context[Any],
        endpoint: str,
        poller: zmq.Poller,
        ready: set[Any],
        *,
        message_bytes_max: int = _REPLY_BYTES_MAX,
        reconnect_ms_max: int = RECONNECT_MS_MAX,
    ) -> None:
        self.endpoint = endpoint
        self._ready = ready
        self._poller = poller
        self._socket = socket = context.socket(zmq.DEALER)
        # Without IMMEDIATE, requests would wait in a queue that outlives connections, and reach a node that
        # was started long after their deadline.
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.IPV6, is_ipv6(endpoint))
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, _QUEUED_MESSAGES_MAX)
        socket.setsockopt(zmq.RCVHWM, _QUEUED_MESSAGES_MAX)
        socket.setsockopt(zmq.MAXMSGSIZE, message_bytes_max)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, reconnect_ms_max)
        self._monitor: zmq.Socket[bytes] = socket.get_monitor_socket(_WATCHED)
        self._monitor.setsockopt(zmq.LINGER, 0)
        self._wants_room = False
        self.is_taken = False
        """Somebody listens there: the last attempt to connect was taken, whoever took it."""
        poller.register(socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        self._is_no_address = False
        """Nobody can ever listen there: told as if nobody did, since others tell us of endpoints, too."""
        try:
            socket.connect(endpoint)
        except zmq.ZMQError:
            self._is_no_address = True

    def changes(self) -> list[Change]:
        """What happened to the connection since the last call, in order."""
        seen: list[Change] = []
        if self._is_no_address:
            self._is_no_address = False
            return [Change.REFUSED]
        if self._monitor not in self._ready:
            return seen
        while self._monitor.poll(0):
            told = recv_monitor_message(self._monitor, zmq.NOBLOCK)
            event = int(told["event"])
            if event == _CONNECTED:
                self.is_taken = True
                widen(int(told["value"]))
            elif event in _CHANGES:
                self.is_taken &= _CHANGES[event] is not Change.REFUSED
                seen.append(_CHANGES[event])
        return seen

    def send(self, frame: Any) -> bool:
        """Hand one frame to the socket; False when it has no room or no connection. A large one is not copied, and must
        not be changed any more."""
        try:
            if len(frame) < LENT_BYTES_MIN or not send_lent(self._socket, frame, _NOBLOCK):
                self._socket.send(frame, _NOBLOCK, copy=True)
        except zmq.Again:
            self._want_room(True)
            return False
        if self._wants_room:
            self._want_room(False)
        return True

    @property
    def has_frames(self) -> bool:
        """Whether there was one when the last wait ended: to ask the socket when it has none costs an exception."""
        return self._socket in self._ready

    def receive(self) -> memoryview | None:
        """The next frame, None when there is none. The view keeps ZeroMQ's memory: nothing is copied."""
        if self._socket in self._ready:
            self._ready.discard(self._socket)  # of the first the poller has told
        elif not int(self._socket.get(_EVENTS)) & _POLLIN:
            return None  # asked first: to find nothing costs an exception, four times as much
        try:
            frame = self._socket.recv(_NOBLOCK, copy=False)
        except zmq.Again:
            return None  # it was room for sending that the poller told of
        take_back()  # an answer may be to the last frame that is sent for long
        while frame.more:
            frame = self._socket.recv(_NOBLOCK, copy=False)
        return memoryview(frame.buffer)

    def close(self) -> None:
        """Drop the connection and all that waits in it."""
        self._poller.unregister(self._socket)
        self._poller.unregister(self._monitor)
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(0)

    def _want_room(self, wanted: bool) -> None:
        if wanted != self._wants_room:
            self._wants_room = wanted
            self._poller.modify(self._socket, zmq.POLLIN | zmq.POLLOUT if wanted else zmq.POLLIN)


class Sockets:
    """The sockets of one client and the place where it waits for them. Made and used on its I/O thread."""

    def __init__(self, wake_fd: int) -> None:
        self._context: zmq.Context[Any] = zmq.Context(io_threads=1)
        self._poller = zmq.Poller()
        self._wake_fd = wake_fd
        self._poller.register(wake_fd, zmq.POLLIN)
        self.ready: set[Any] = set()
        """The sockets that had something when the last wait ended."""

    def dealer(self, endpoint: str) -> Dealer:
        """Begin to connect to an endpoint."""
        return Dealer(self._context, endpoint, self._poller, self.ready)

    def wait(self, timeout_s: float | None) -> bool:
        """Return when a socket or the wake-up has something, or when the time is over; whether it was the wake-up."""
        found = zmq_poll(self._poller.sockets, -1 if timeout_s is None else int(timeout_s * 1000 + 0.999))
        woken = False
        self.ready.clear()
        for source, _ in found:
            if source == self._wake_fd:
                woken = True
            else:
                self.ready.add(source)
        return woken

    def close(self) -> None:
        """End ZeroMQ's own threads. Also a socket that a bug left open does not keep them: the end would never come."""
        self._context.destroy(linger=0)
