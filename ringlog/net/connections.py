"""The TCP connections of a router: which client each belongs to, and which fill memory with unfinished messages.

libzmq keeps the parts of a message until its last one has come, without any bound; a peer that never sends the last
one could take all memory there is. So the bytes that the kernel has received for a connection are compared with
those that have come out of the socket, and a connection with too many in between is cut. Sockets of ipc:// need no
guard: only the owner of the data directory reaches them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ringlog.limits import UNFINISHED_BYTES_MAX
from ringlog.net.descriptors import peer_process, received_bytes

_SMALL_FRAME_BYTES = 255
LOOKED_AT_MAX = 256
"""Connections that one look takes in, at some 10 µs each."""
_DRIFT_BYTES = 4096
"""Heartbeats are received and never come out: so much may be forgiven at each look."""


def wire_bytes(nbytes: int) -> int:
    """What a part of a message takes on the wire: its length is one byte or eight, after a byte of flags.

    >>> wire_bytes(100), wire_bytes(1000)
    (102, 1009)
    """
    return nbytes + (2 if nbytes <= _SMALL_FRAME_BYTES else 9)


class Connections:
    """The connections that are open, by their descriptors.

    >>> connections = Connections(received=lambda fd: 90 * 1024 * 1024)
    >>> connections.accepted(7); connections.floods()
    [7]
    """

    def __init__(self, received: Callable[[int], int | None] = received_bytes) -> None:
        self._received = received
        self._taken: dict[int, int] = {}
        """Bytes that came out of each connection, or need not come out any more."""
        self._turn: deque[int] = deque()
        self._clients: dict[int, bytes] = {}
        self.descriptors: dict[bytes, int] = {}
        """Of clients whose messages came through one of them."""
        self.counted: dict[bytes, int] = {}
        """Those of clients whose connections the kernel counts bytes of: what the others send need not be counted."""
        self._processes: dict[int, int] = {}
        """Those at the other ends of ipc:// connections."""

    def __len__(self) -> int:
        return len(self._taken)

    def knows(self, client: bytes) -> bool:
        """Whether messages of this client came through one of them."""
        return client in self.descriptors

    def accepted(self, fd: int) -> None:
        """A connection began. What it sent before anybody looked counts too: no message of it came out unseen."""
        self._taken[fd] = 0
        process = peer_process(fd)
        if process is not None:
            self._processes[fd] = process

    def process_of(self, fd: int) -> int | None:
        """The process at the other end, if it is on this host and came through ipc://."""
        return self._processes.get(fd)

    def process(self, client: bytes) -> int | None:
        """That of a client whose messages came through one of them, as `process_of`."""
        return self._processes.get(self.descriptors.get(client, -1))

    def met(self, fd: int, client: bytes) -> None:
        """A message of a client came, through this connection; or through one that is gone by now, and whose descriptor
        this one has. Who is met last counts: whose connection it is will be met again, should it send more."""
        if fd in self._taken:
            self._forget(self._clients.get(fd))
            self._clients[fd] = client
            self.descriptors[client] = fd
            if self._received(fd) is not None:
                self.counted[client] = fd

    def took(self, client: bytes, nbytes: int) -> None:
        """A part of so many bytes came out of the socket."""
        fd = self.counted.get(client)
        if fd is not None:
            self._taken[fd] += wire_bytes(nbytes)

    def ended(self, fd: int) -> bytes | None:
        """A connection is gone; the client that it belonged to, if it ever sent anything."""
        self._taken.pop(fd, None)
        self._processes.pop(fd, None)
        client = self._clients.pop(fd, None)
        self._forget(client)
        return client

    def _forget(self, client: bytes | None) -> None:
        if client is not None:
            self.descriptors.pop(client, None)
            self.counted.pop(client, None)

    def floods(self) -> list[int]:
        """Descriptors of connections with more unfinished bytes than an honest client has, among those whose turn it is
        to be looked at: with thousands, a look at all of them would hold up requests."""
        found: list[int] = []
        if not self._turn:
            self._turn.extend(self._taken)
        for _ in range(min(LOOKED_AT_MAX, len(self._turn))):
            fd = self._turn.popleft()
            taken = self._taken.get(fd)
            if taken is None:
                continue  # it left meanwhile
            received = self._received(fd)
            if received is None:
                continue
            unfinished = received - taken
            if unfinished > UNFINISHED_BYTES_MAX:
                found.append(fd)
            elif unfinished <= _DRIFT_BYTES:
                self._taken[fd] = max(taken, received)
        return found
