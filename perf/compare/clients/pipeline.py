"""A socket with many requests on their way: one thread writes, another reads answers, a window holds them together."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

RECEIVE_BYTES = 1 << 20
PATIENCE_S = 60.0


def connect(address: str) -> socket.socket:
    """A connection without delays for small writes, and with room for large ones."""
    host, port = address.rsplit(":", 1)
    made = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        made.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
    return made


class Pipeline:
    """Sends requests ahead of their answers, at most `window` of them."""

    def __init__(self, connection: socket.socket, count_answers: Callable[[bytes], int], window: int) -> None:
        self._connection = connection
        self._count = count_answers
        self._window = window
        self._sent = 0
        self._answered = 0
        self._changed = threading.Condition()
        self._failed: Exception | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def send(self, data: bytes, requests: int) -> None:
        """Send some requests once there is room in the window for them."""
        self._wait_until(lambda: self._sent - self._answered + requests <= max(self._window, requests))
        self._sent += requests
        self._connection.sendall(data)

    def finish(self) -> None:
        """Wait until everything is answered."""
        self._wait_until(lambda: self._answered >= self._sent)

    def close(self) -> None:
        self._closing = True
        self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def _wait_until(self, holds: Callable[[], bool]) -> None:
        with self._changed:
            in_time = self._changed.wait_for(lambda: self._failed is not None or holds(), PATIENCE_S)
        if self._failed is not None:
            raise self._failed
        if not in_time:
            raise TimeoutError(f"{self._answered} of {self._sent} requests were answered")

    def _read(self) -> None:
        try:
            while True:
                data = self._connection.recv(RECEIVE_BYTES)
                if not data:
                    raise ConnectionError("the server has closed the connection")
                answers = self._count(data)
                with self._changed:
                    self._answered += answers
                    self._changed.notify_all()
        except (OSError, ValueError) as failed:
            with self._changed:
                if not self._closing:
                    self._failed = failed
                self._changed.notify_all()
