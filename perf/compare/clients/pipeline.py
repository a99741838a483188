"""What clients of wire protocols share: requests ahead of their answers, which a thread counts, and values that a
socket brings."""

from __future__ import annotations

import abc
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from perf.compare.clients.api import Look, PacedProducer, Reader, Timed, stamps_of
from perf.compare.payload import Payload

RECEIVE_BYTES = 1 << 20
PATIENCE_S = 60.0
NO_WINDOW = 1 << 30


def connect(address: str) -> socket.socket:
    """A connection without delays for small writes, and with room for large ones."""
    host, port = address.rsplit(":", 1)
    made = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        made.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
    return made


def received(connection: socket.socket) -> bytes:
    """What has come, waiting for the first of it as long as the socket is told to."""
    data = connection.recv(RECEIVE_BYTES)
    if not data:
        raise ConnectionError("the server has closed the connection")
    return data


def rows_between(head: bytes, values: npt.NDArray[np.uint8], tail: bytes = b"") -> bytes:
    """All rows one behind the other, each between the same bytes: no Python per record.

    >>> rows_between(b"<", np.array([[97, 98], [99, 100]], dtype=np.uint8), b">")
    b'<ab><cd>'
    """
    count, record_bytes = values.shape
    row = np.empty((count, len(head) + record_bytes + len(tail)), dtype=np.uint8)
    row[:, : len(head)] = np.frombuffer(head, dtype=np.uint8)
    row[:, len(head) : len(head) + record_bytes] = values
    row[:, len(head) + record_bytes :] = np.frombuffer(tail, dtype=np.uint8)
    return row.tobytes()


class StepProducer(PacedProducer):
    """Goes through the pool in steps of many records, each step a `send`."""

    def steps(self, payload: Payload, records: int, step: int) -> Timed:
        """Send records from the pool and wait until all are acknowledged."""
        pool, sent = payload.pool, 0
        began = time.perf_counter()
        while sent < records:
            at = sent % len(pool)
            values = pool[at : at + min(step, records - sent)]
            self.send(values)
            sent += len(values)
        self.finish()
        return Timed(records, time.perf_counter() - began)


class SocketReader(Reader):
    """A reader that values come to by themselves, once it has asked for them."""

    @abc.abstractmethod
    def arrived(self, timeout_s: float) -> list[Any]:
        """What the next read of a socket brings: sequences of values. TimeoutError when nothing comes."""

    def read(self, records: int, look: Look | None) -> Timed:
        began, read = time.perf_counter(), 0
        while read < records:
            for values in self.arrived(PATIENCE_S):
                read += len(values)
                if look is not None:
                    look(values)
        return Timed(read, time.perf_counter() - began)

    def receive_stamps(self, timeout_s: float) -> npt.NDArray[np.int64]:
        try:
            came = self.arrived(timeout_s)
        except TimeoutError:
            came = []
        return stamps_of([value for values in came for value in values])


class Pipeline:
    """Sends requests ahead of their answers, at most `window` of them: one thread writes, another counts answers."""

    def __init__(self, connection: socket.socket, count_answers: Callable[[bytes], int], window: int) -> None:
        self._connection = connection
        self._count = count_answers
        self.window = window
        self._sent = 0
        self._answered = 0
        self._changed = threading.Condition()
        self._failed: Exception | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def send(self, data: bytes, requests: int) -> None:
        """Send some requests once there is room in the window for them."""
        self._wait_until(lambda: self._sent - self._answered + requests <= max(self.window, requests))
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
                answers = self._count(received(self._connection))
                with self._changed:
                    self._answered += answers
                    self._changed.notify_all()
        except (OSError, ValueError) as failed:
            with self._changed:
                if not self._closing:
                    self._failed = failed
                self._changed.notify_all()
