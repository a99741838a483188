"""NATS JetStream by its own protocol: publishes with acks ahead, pull consumers. One stream per partition."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from perf.compare.clients.api import Place, Timed
from perf.compare.clients.pipeline import (
    Pipeline,
    SocketReader,
    StepProducer,
    connect,
    received,
    rows_between,
)
from perf.compare.model import Durability
from perf.compare.payload import Payload
from perf.peers.settings import NATS_CLIENT, number_of

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"lang":"perf","version":"1","protocol":1}\r\nPING\r\n'
ACKS_AHEAD = number_of(NATS_CLIENT, "acks_ahead")
PULL_RECORDS = 2_000
PULL_EXPIRES_NS = 30_000_000_000
BURST_RECORDS = 256


class Messages:
    """Cuts what a socket brings into messages.

    >>> parts = Messages()
    >>> list(parts.feed(b"MSG a 1 2\\r\\nhi\\r\\nPONG\\r\\nMSG a.b 7 re.ply 3\\r\\nth"))
    [(b'MSG a 1 2', b'hi'), (b'PONG', b'')]
    >>> list(parts.feed(b"e\\r\\n"))
    [(b'MSG a.b 7 re.ply 3', b'the')]
    """

    def __init__(self) -> None:
        self._left = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        data = self._left + data if self._left else data
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at:end]
            body = end + 2
            stop = body
            if line.startswith((b"MSG ", b"HMSG ")):
                stop = body + int(line[line.rindex(b" ") + 1 :]) + 2
                if stop > len(data):
                    break
            yield line, data[body : stop - 2] if stop > body else b""
            at = stop
        self._left = data[at:]


def login(address: str) -> socket.socket:
    """A connection that the server has accepted."""
    connection = connect(address)
    connection.sendall(CONNECT)
    said = b""
    while b"PONG\r\n" not in said:
        said += received(connection)
    return connection


def request(connection: socket.socket, subject: str, body: bytes) -> dict[str, Any]:
    """Ask the server's JetStream interface; what it answers."""
    connection.sendall(
        b"SUB _ask 9\r\nUNSUB 9 1\r\nPUB %s _ask %d\r\n%s\r\n" % (subject.encode(), len(body), body)
    )
    messages = Messages()
    while True:
        for line, said in messages.feed(received(connection)):
            if line.startswith(b"MSG _ask "):
                answer: dict[str, Any] = json.loads(said)
                if "error" in answer:
                    raise OSError(f"nats: {subject}: {answer['error']}")
                return answer


def publishes(subject: str, reply: str, values: npt.NDArray[np.uint8]) -> bytes:
    """One PUB for each row, one behind the other.

    >>> publishes("s.0", "_in", np.array([[97, 98]], dtype=np.uint8))
    b'PUB s.0 _in 2\\r\\nab\\r\\n'
    """
    head = f"PUB {subject} {reply + ' ' if reply else ''}{values.shape[1]}\r\n".encode()
    return rows_between(head, values, b"\r\n")


class NatsProducer(StepProducer):
    """Bursts go round the partitions; acks are counted, an error among them raises."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._silent = place.durability is Durability.D0
        self._connection = login(place.address)
        self._messages = Messages()
        self._next = 0
        self._pipeline: Pipeline | None = None
        if not self._silent:
            self._connection.sendall(b"SUB _in 1\r\n")
            self._pipeline = Pipeline(self._connection, self._count, ACKS_AHEAD)

    def _count(self, data: bytes) -> int:
        acks = 0
        for line, body in self._messages.feed(data):
            if line.startswith(b"MSG _in "):
                if b'"error"' in body:
                    raise ValueError(f"nats refused: {body.decode()}")
                acks += 1
            elif line == b"PING":
                self._connection.sendall(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise ValueError(f"nats: {line.decode()}")
        return acks

    def produce(self, payload: Payload, records: int) -> Timed:
        began = time.perf_counter()
        done = self.steps(payload, records, BURST_RECORDS)
        if not self._silent:
            return done
        self._wait_stored(records)
        return Timed(records, time.perf_counter() - began)

    def send(self, values: npt.NDArray[np.uint8]) -> None:
        place = self._place
        subject = f"{place.topic}.{self._next % place.partitions}"
        self._next += 1
        if self._pipeline is None:
            self._connection.sendall(publishes(subject, "", values))
        else:
            self._pipeline.send(publishes(subject, "_in", values), len(values))

    def finish(self) -> None:
        if self._pipeline is not None:
            self._pipeline.finish()

    def _wait_stored(self, records: int) -> None:
        """Nobody answers: the streams are asked how much they hold, until they hold it all or no more comes."""
        with login(self._place.address) as asking:
            stored, patience = -1, 50
            while stored < records and patience:
                before = stored
                names = [f"{self._place.topic}-{number}" for number in range(self._place.partitions)]
                infos = [request(asking, f"$JS.API.STREAM.INFO.{name}", b"") for name in names]
                stored = sum(int(info["state"]["messages"]) for info in infos)
                patience = 50 if stored > before else patience - 1
                time.sleep(0.02)

    def close(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
        else:
            self._connection.close()


class NatsConsumer(SocketReader):
    """A pull consumer without acks for each stream, asked for more before it runs dry."""

    def __init__(self, place: Place) -> None:
        self._connection = login(place.address)
        self._messages = Messages()
        self._subjects: list[bytes] = []
        config = {
            "ack_policy": "none",
            "deliver_policy": "all",
            "max_waiting": 512,
            "inactive_threshold": 300_000_000_000,
        }
        for number in range(place.partitions):
            stream = f"{place.topic}-{number}"
            body = json.dumps({"stream_name": stream, "config": config}).encode()
            made = request(self._connection, f"$JS.API.CONSUMER.CREATE.{stream}", body)
            self._subjects.append(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{made['name']}".encode())
        self._connection.sendall(b"SUB _out.* 1\r\n")
        self._asked = [0] * place.partitions
        for number in range(place.partitions):
            self._ask(number)

    def _ask(self, number: int) -> None:
        body = b'{"batch":%d,"expires":%d}' % (PULL_RECORDS, PULL_EXPIRES_NS)
        self._connection.sendall(
            b"PUB %s _out.%d %d\r\n%s\r\n" % (self._subjects[number], number, len(body), body)
        )
        self._asked[number] += PULL_RECORDS

    def arrived(self, timeout_s: float) -> list[list[bytes]]:
        self._connection.settimeout(timeout_s)
        values: list[bytes] = []
        for line, body in self._messages.feed(received(self._connection)):
            if line.startswith(b"MSG "):
                values.append(body)
                # Records keep their subject, whose last word is the partition; a word of the server has ours.
                number = int(line.split(b" ", 2)[1].rpartition(b".")[2])
                self._asked[number] -= 1
                if self._asked[number] < PULL_RECORDS // 2:
                    self._ask(number)
            elif line.startswith(b"HMSG "):
                number = int(line.split(b" ", 2)[1].rpartition(b".")[2])
                self._asked[number] = 0  # a pull has expired
                self._ask(number)
            elif line == b"PING":
                self._connection.sendall(b"PONG\r\n")
        return [values]

    def close(self) -> None:
        self._connection.close()
