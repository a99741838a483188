"""The ROUTER socket of a network process and its loop: one poller for sockets and doorbells.

Sends never block: the bytes that a client has not received yet are bounded by its credit (`peers.py`), so the
socket's own queue needs no bound of its own. A router learns of connections only through its monitor.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import resource
import time
from collections.abc import Callable
from functools import partial

import zmq
from zmq.backend import zmq_poll
from zmq.utils.monitor import recv_monitor_message

from ringlog.errors import InvalidRequest, NodeFailed
from ringlog.limits import FRAME_BYTES_MAX, KIB, MIB
from ringlog.net.addresses import is_ipv6
from ringlog.net.connections import Connections
from ringlog.net.departed import Departed
from ringlog.net.descriptors import cut, widen
from ringlog.net.lending import LENT_BYTES_MIN, send_lent
from ringlog.net.listening import why_not_listening
from ringlog.net.messages import ShareMemoryRequest
from ringlog.net.near import SharedMemory
from ringlog.net.ring_side import RingSide
from ringlog.net.service import NetService
from ringlog.net.shared_memory import map_shared
from ringlog.ring.board import Board, Links, ProcessState
from ringlog.ring.stats import LoopClock, Stats

RECEIVE_MESSAGES_MAX = 256
"""Messages taken from the socket before replies get their turn."""
CONNECTION_EVENTS_MAX = 64
"""Connections that come or go which are looked at in one pass: thousands at once must not hold up requests."""
IDLE_WAIT_MS = 500
SHOW_US = 250_000
EXPIRE_US = 10_000_000
QUIET_BYTES = 48 * MIB
QUIET_BYTES_PER_CONNECTION = 32 * KIB
"""While a network process has grown by less than these, nobody can be flooding it, and nobody is looked at."""
TRIMS = 40
"""Looks after a cut at which freed memory is given back."""
DRAIN_S = 5.0
"""How long a stop waits for requests that are under way."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Of mallopt(3)."""

_NOBLOCK = int(zmq.NOBLOCK)
_MORE_NOBLOCK = int(zmq.SNDMORE | zmq.NOBLOCK)
_POLLIN = int(zmq.POLLIN)
"""As plain numbers: an enum of flags costs a microsecond at each use."""

_log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None)


class RouterSocket:
    """The socket: bound to a tcp:// and an ipc:// address, and counted by its monitor."""

    def __init__(
        self,
        endpoints: list[str],
        *,
        connections_max: int,
        queued_messages_max: int = 0,
        setting: str = "--listen",
    ) -> None:
        """`queued_messages_max`: to one peer; more are not sent. 0: who sends keeps account of bytes (`peers.py`).
        `setting`: what says where it listens."""
        self._setting = setting
        self._context = zmq.Context(io_threads=1)
        self._context.set(zmq.MAX_SOCKETS, 64)
        self.socket = self._context.socket(zmq.ROUTER)
        socket = self.socket
        socket.set(zmq.ROUTER_MANDATORY, 1)
        socket.set(zmq.ROUTER_HANDOVER, 1)
        socket.set(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
        socket.set(zmq.SNDHWM, queued_messages_max)
        socket.set(zmq.RCVHWM, 256)
        socket.set(zmq.LINGER, 200)
        socket.set(zmq.HEARTBEAT_IVL, 5_000)
        socket.set(zmq.HEARTBEAT_TIMEOUT, 20_000)
        socket.set(zmq.HANDSHAKE_IVL, 5_000)
        socket.set(zmq.BACKLOG, 1024)
        self.monitor = socket.get_monitor_socket(
            zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_ACCEPT_FAILED
        )
        self._send_part = partial(zmq.backend.Socket.send, socket)
        """`socket.send` without its options for sockets of other kinds, which cost a call for each part."""
        self.connections = Connections()
        self.has_events = True
        """Whether the monitor may have some that were not read. Its descriptor tells only of what comes after it was
        found empty."""
        self._near_numbers = itertools.count(1)
        self.connections_max = connections_max
        self.connections_refused = 0
        """Those who were cut because there were enough."""
        self._trims_left = 0
        self._endpoints: list[str] = []
        self._is_full = False
        for endpoint in endpoints:
            self._bind(endpoint)

    def _bind(self, endpoint: str) -> None:
        try:
            self._listen(endpoint)
        except zmq.ZMQError as error:
            raise NodeFailed(why_not_listening(endpoint, error, self._setting)) from None
        bound = self.socket.get_string(zmq.LAST_ENDPOINT)
        self._endpoints.append(bound.rstrip("\0"))

    def _listen(self, endpoint: str) -> None:
        self.socket.set(zmq.IPV6, is_ipv6(endpoint))
        self.socket.bind(endpoint)

    @property
    def endpoints(self) -> list[str]:
        """Where it listens, with the ports that the system chose."""
        return list(self._endpoints)

    def send(self, routing_id: bytes, message: bytes | bytearray) -> bool:
        """Hand over a message; False when the client is gone."""
        try:
            self._send_part(routing_id, _MORE_NOBLOCK)
            if len(message) < LENT_BYTES_MIN or not send_lent(self.socket, message, _NOBLOCK):
                self._send_part(message, _NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def near(self, routing_id: bytes, offer: ShareMemoryRequest) -> SharedMemory:
        """Memory that a client shares. Only of one whose id this socket made: an id that a client chose could be taken
        over by another connection, and with it what that client shares."""
        if routing_id[:1] != b"\0":
            raise InvalidRequest("a client that chose its routing id shares no memory")
        process = self.connections.process(routing_id)
        if process is None:
            raise InvalidRequest("memory is shared by clients that came through ipc:// only")
        # Also where shards will read it, and nobody here: it is refused now or never.
        mapped = map_shared(process, offer.descriptor, offer.nbytes, writable=offer.writable)
        landing = mapped if offer.writable else None
        return SharedMemory(next(self._near_numbers), process, offer.descriptor, offer.nbytes, landing)

    def follow_connections(self, events_max: int | None) -> list[tuple[bytes, int | None]]:
        """Read so many events of the monitor, None: all; the clients that have left, and their processes if they are on
        this host. Who comes at the bound is cut, and tries again: without descriptors libzmq spins, and a socket that
        stops listening ends all its connections in silence."""
        left: list[tuple[bytes, int | None]] = []
        seen = 0
        while seen != events_max and self.monitor.poll(0):
            seen += 1
            event = recv_monitor_message(self.monitor)
            if event["event"] == zmq.EVENT_ACCEPTED:
                self.connections.accepted(event["value"])
                self._welcome(event["value"])
            elif event["event"] == zmq.EVENT_DISCONNECTED:
                process = self.connections.process_of(event["value"])
                client = self.connections.ended(event["value"])
                if client is not None:
                    left.append((client, process))
        self.has_events = seen == events_max
        if len(self.connections) < self.connections_max * 0.95:
            self._is_full = False
        return left

    def _welcome(self, fd: int) -> None:
        """Have a connection that was just accepted, or cut it when there are enough."""
        if len(self.connections) <= self.connections_max:
            widen(fd)
            return
        self.connections_refused += 1
        if not self._is_full:
            self._is_full = True  # told once, until there is room again
            _log.warning("%d connections: no more are accepted until some are closed", self.connections_max)
        cut(fd)

    def count_connections(self, counts: dict[str, int]) -> None:
        """Say how many there are, and may be."""
        counts["connections"] = len(self.connections)
        counts["connections_max"] = self.connections_max
        counts["connections_refused"] = self.connections_refused

    def cut_floods(self) -> None:
        """End the connections that fill memory with messages which never become whole, and give that memory back: the
        library frees it some time after the cut, and the allocator would keep it."""
        for fd in self.connections.floods():
            _log.warning("a connection is cut: it sent more than any client may without finishing a message")
            cut(fd)
            self._trims_left = TRIMS
        if self._trims_left:
            self._trims_left -= 1
            _libc.malloc_trim(0)

    def close(self) -> None:
        self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close()
        self._context.term()


class RouterAgent:
    """One network process's work."""

    def __init__(
        self,
        process: int,
        board: Board,
        links: Links,
        regions: Callable[[int], memoryview | None],
        open_socket: Callable[[], tuple[RouterSocket, NetService]],
        stats: Stats,
        stopping: Callable[[], bool],
        *,
        spin_us: int = 0,
    ) -> None:
        """`spin_us`: how long it looks for more to do before it sleeps."""
        self._process = process
        self._board = board
        self._links = links
        self._stats = stats
        self._stopping = stopping
        self._spin_us = spin_us
        self._spins_until_us = 0
        self._socket, self.service = open_socket()
        self._rings = RingSide(links, self.service, regions)
        self._departed = Departed()
        self._bell_fd = links.bell.fd
        # A descriptor, not the socket: to ask a socket what it has costs four system calls for each sleep.
        self._monitor_fd = int(self._socket.monitor.get(zmq.FD))
        self._from_clients: list[tuple[zmq.Socket[bytes] | int, int]] = [(self._socket.socket, _POLLIN)]
        self._from_others: list[tuple[zmq.Socket[bytes] | int, int]] = [
            (fd, _POLLIN) for fd in (self._bell_fd, self._monitor_fd, self._departed.fd)
        ]
        self._sources = self._from_others
        """What ends a sleep. Not the socket while nothing is taken from it: what waits there would end each at once."""
        self._clock = LoopClock(stats)
        self._quiet_bytes = _private_bytes()
        self._has_messages = True
        """Whether the socket may have some: told by the poller, and true until it was found empty."""
        self._is_ready = False
        self._shown_us = 0
        self._expired_us = 0

    def run(self) -> None:
        """Work until told to stop, then until all that is under way is answered."""
        while not self._stopping():
            self.cycle()
        self._sources = self._from_others  # nothing new is taken
        self.service.end_heartbeats()
        until = time.monotonic() + DRAIN_S
        while self.service.peers.pending_count and time.monotonic() < until:
            self.cycle(receive=False)
        self._stats.show()
        self._departed.close()
        self._socket.close()

    def cycle(self, *, receive: bool = True) -> None:
        """One pass."""
        now_us = time.monotonic_ns() // 1000
        service = self.service
        service.now_us = now_us
        self._clock.work(now_us)
        self._rings.follow_links()
        may_receive = receive and service.has_image
        busy = self._rings.take_frames()
        if self._has_messages and may_receive:
            self._has_messages = self._receive()
            busy = True
        if busy:
            self._spins_until_us = now_us + self._spin_us
        room = not service.overflow or service.retry_overflow()
        room = self._rings.pump() and room  # also while something waits: one full ring holds up no other
        if now_us - self._shown_us >= SHOW_US:
            self._show(now_us)
        if service.has_image and not self._is_ready:
            self._is_ready = True
            self._sources = [*self._from_clients, *self._from_others]
            self._board.set_state(self._process, ProcessState.READY)
        if now_us < self._spins_until_us:
            self._poll(0)
        elif not (self._has_messages and may_receive):
            self._sleep(IDLE_WAIT_MS if room else 1)

    def _sleep(self, wait_ms: int) -> None:
        """Wait for a message, a connection or a doorbell, unless a ring has something already."""
        if not self._links.announce_wait():
            wait_ms = 0
        self._clock.rest(time.monotonic_ns() // 1000)
        self._links.end_wait(rung=self._poll(wait_ms))

    def _poll(self, wait_ms: int) -> bool:
        """Whether the doorbell was rung."""
        rung, socket = False, self._socket
        for source, _ in zmq_poll(self._sources, 0 if socket.has_events else wait_ms):
            if source == self._bell_fd:
                rung = True
            elif source == self._monitor_fd:
                socket.has_events = True
            elif source == self._departed.fd:
                self._report_deaths()
            else:
                self._has_messages = True
        if socket.has_events:
            self._follow_connections()
        return rung

    def _receive(self) -> bool:
        """Take what the socket has; whether it may have more."""
        socket, connections = self._socket.socket, self._socket.connections
        take, known, counted = self.service.take, connections.descriptors, connections.counted
        for number in range(RECEIVE_MESSAGES_MAX):
            # Asked first: to find nothing costs an exception, four times as much. Of the first the poller has told.
            if number and not zmq_poll(self._from_clients, 0):
                return False
            try:
                routing_id = socket.recv(_NOBLOCK)
            except zmq.Again:
                return False
            frame = socket.recv(copy=False)
            if routing_id not in known:
                # What happened to descriptors before this message must be known before it is said whose this one is.
                self._follow_connections(None)
                connections.met(descriptor(frame), routing_id)
            if routing_id in counted:
                connections.took(routing_id, len(frame))
            extra = frame.more
            while extra:
                part = socket.recv(copy=False)
                connections.took(routing_id, len(part))
                extra = part.more
            # A message of several frames is not ours: what came first is judged alone, and will be refused or not.
            take(routing_id, frame.buffer)
        return True

    def _follow_connections(self, events_max: int | None = CONNECTION_EVENTS_MAX) -> None:
        for routing_id, process in self._socket.follow_connections(events_max):
            session = self.service.peers.left(routing_id)
            if session is not None and process is not None:
                now_us = time.monotonic_ns() // 1000
                self._departed.add(session=session, pid=process, now_us=now_us)
        self._report_deaths()

    def _report_deaths(self) -> None:
        if self._departed.is_watching:
            dead = self._departed.dead(time.monotonic_ns() // 1000)
            if dead:
                self.service.clients_died(dead)

    def _show(self, now_us: int) -> None:
        self._shown_us = now_us
        self._follow_connections()  # also when there is always something else to do
        quiet_bytes = QUIET_BYTES + QUIET_BYTES_PER_CONNECTION * len(self._socket.connections)
        if _private_bytes() - self._quiet_bytes > quiet_bytes:
            self._socket.cut_floods()
        counts, peers = self._stats.counts, self.service.peers
        self._socket.count_connections(counts)
        counts["sessions"] = len(peers)
        counts["pending_requests"] = peers.pending_count
        counts["pending_bytes"] = peers.in_flight_bytes
        self._stats.show()
        if peers.pending_count:
            self.service.refuse_misled()
        if now_us - self._expired_us >= EXPIRE_US:
            self._expired_us = now_us
            peers.expire(now_us // 1000, self._socket.connections.knows)
        self.service.tell_gone()


def descriptor(frame: zmq.Frame) -> int:
    """The connection that a message came through; -1 when its peer speaks a dialect without that."""
    try:
        return int(frame.get(zmq.SRCFD))
    except zmq.ZMQError:
        return -1


def _private_bytes() -> int:
    """Resident memory of this process that it shares with nobody."""
    with open("/proc/self/statm", "rb") as file:
        fields = file.read().split()
    return (int(fields[1]) - int(fields[2])) * resource.getpagesize()


def keep_freed_memory() -> None:
    """Let malloc keep what it frees: messages of a quarter megabyte would otherwise be mapped, zeroed page by page and
    unmapped each time, at a tenth of this process's work."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, 32 * MIB)
    libc.mallopt(_M_TRIM_THRESHOLD, 128 * MIB)
    libc.mallopt(_M_ARENA_MAX, 1)


def raise_descriptor_limit() -> int:
    """Allow as many descriptors as the system lets us; how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
