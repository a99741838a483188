"""The bridge's socket: the router of a network process, with one place to wait for it and for finished work."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

import zmq

from ringlog.limits import CONNECTIONS_MAX
from ringlog.net.router import RouterSocket, descriptor

_GONE_KEPT = 256
_RECEIVE_MAX = 256
"""Messages taken before finished work gets its turn."""


class BridgeSocket:
    """Used by one thread, but for `wake`."""

    def __init__(self, endpoints: list[str]) -> None:
        self._router = RouterSocket(endpoints, connections_max=CONNECTIONS_MAX)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller = zmq.Poller()
        for source in (self._router.socket, self._router.monitor, self._wake_fd):
            self._poller.register(source, zmq.POLLIN)
        self._known: set[bytes] = set()
        self._gone: deque[bytes] = deque(maxlen=_GONE_KEPT)
        """Those who left last: a message of theirs may come behind the news of it, and nobody would take the answer."""
        self._left: list[bytes] = []
        """Those of whom nobody was told yet."""

    @property
    def endpoints(self) -> list[str]:
        """Where it listens, with the ports that the system chose."""
        return self._router.endpoints

    def wait(self, timeout_ms: int) -> None:
        """Return when there is something to do, or the time is over."""
        self._poller.poll(timeout_ms)
        try:
            os.eventfd_read(self._wake_fd)
        except BlockingIOError:
            return

    def wake(self) -> None:
        """Let `wait` return; from any thread."""
        os.eventfd_write(self._wake_fd, 1)

    def receive(self) -> Iterator[tuple[bytes, memoryview]]:
        """The messages that came: who sent each, and its frame."""
        socket = self._router.socket
        for _ in range(_RECEIVE_MAX):
            try:
                client, *parts = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            name = bytes(client.buffer)
            if name in self._gone:
                continue
            if name not in self._known:
                # The news of whoever had this descriptor before must not be taken for news of this one.
                self._follow()
                if name in self._gone:
                    continue
                self._known.add(name)
                self._router.connections.met(descriptor(parts[0]), name)
            self._router.connections.took(name, sum(len(part) for part in parts))
            yield name, memoryview(parts[0].buffer)

    def send(self, client: bytes, frame: bytes) -> bool:
        """False when the client is gone."""
        return self._router.send(client, frame)

    def left(self) -> list[bytes]:
        """The clients whose connections ended."""
        self._follow()
        left, self._left = self._left, []
        return left

    def _follow(self) -> None:
        gone = [client for client, _ in self._router.follow_connections(None)]
        self._known.difference_update(gone)
        self._gone.extend(gone)
        self._left.extend(gone)

    def close(self) -> None:
        self._router.close()
        os.close(self._wake_fd)
