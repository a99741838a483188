"""Redis Streams by its own protocol: whole pipelines of XADD, answers parsed by hiredis. One stream per partition."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from perf.compare.clients.api import Look, Place, Reader, Timed, stamps_of
from perf.compare.clients.pipeline import (
    NO_WINDOW,
    PATIENCE_S,
    Pipeline,
    StepProducer,
    connect,
    received,
    rows_between,
)
from perf.compare.model import Durability
from perf.compare.payload import Payload
from perf.peers.settings import REDIS_CLIENT, number_of

PIPELINE_BYTES = number_of(REDIS_CLIENT, "pipeline_bytes")
PIPELINES_AHEAD = number_of(REDIS_CLIENT, "pipelines_ahead")
RANGE_BYTES = 1 << 20
"""About what one XRANGE is to bring."""


def command(*words: bytes | str | int) -> bytes:
    """A command as it goes over the wire.

    >>> command("XLEN", b"k")
    b'*2\\r\\n$4\\r\\nXLEN\\r\\n$1\\r\\nk\\r\\n'
    """
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        raw = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(raw), raw))
    return b"".join(parts)


def additions(key: str, values: npt.NDArray[np.uint8]) -> bytes:
    """One XADD for each row, one behind the other.

    >>> additions("k", np.array([[97, 98]], dtype=np.uint8)) == command("XADD", "k", "*", "v", b"ab")
    True
    """
    head = command("XADD", key, "*", "v", b"").removesuffix(b"$0\r\n\r\n") + b"$%d\r\n" % values.shape[1]
    return rows_between(head, values, b"\r\n")


class RedisProducer(StepProducer):
    """Pipelines go round the partitions, a few of them ahead of their answers."""

    def __init__(self, place: Place) -> None:
        import hiredis

        self._place = place
        self._reader = hiredis.Reader()
        connection = connect(place.address)
        self._silent = place.durability is Durability.D0
        if self._silent:
            connection.sendall(command("CLIENT", "REPLY", "OFF"))
        self._connection = connection
        self._pipeline = None if self._silent else Pipeline(connection, self._count, NO_WINDOW)
        self._next = 0

    def _count(self, data: bytes) -> int:
        import hiredis

        self._reader.feed(data)
        answers = 0
        while (answer := self._reader.gets()) is not False:
            if isinstance(answer, hiredis.ReplyError):
                raise ValueError(f"redis refused: {answer}")
            answers += 1
        return answers

    def produce(self, payload: Payload, records: int) -> Timed:
        step = max(PIPELINE_BYTES // payload.record_bytes, 1)
        if self._pipeline is not None:
            self._pipeline.window = step * PIPELINES_AHEAD
        return self.steps(payload, records, step)

    def send(self, values: npt.NDArray[np.uint8]) -> None:
        key = f"{self._place.topic}-{self._next % self._place.partitions}"
        self._next += 1
        data = additions(key, values)
        if self._pipeline is None:
            self._connection.sendall(data)
        else:
            self._pipeline.send(data, len(values))

    def finish(self) -> None:
        """Where nobody answers, an answer is asked for at the end: commands of a connection go in order."""
        if self._pipeline is not None:
            self._pipeline.finish()
        else:
            self._connection.sendall(command("CLIENT", "REPLY", "ON"))
            while not self._count(received(self._connection)):
                continue
            self._connection.sendall(command("CLIENT", "REPLY", "OFF"))

    def close(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
        else:
            self._connection.close()


class RedisConsumer(Reader):
    """XRANGE over all partitions in one pipeline; XREAD that blocks, for records as they come."""

    def __init__(self, place: Place) -> None:
        import hiredis

        self._reader = hiredis.Reader()
        self._connection = connect(place.address)
        self._after = {f"{place.topic}-{number}".encode(): b"0" for number in range(place.partitions)}

    def _answer(self) -> Any:
        import hiredis

        while (answer := self._reader.gets()) is False:
            self._reader.feed(received(self._connection))
        if isinstance(answer, hiredis.ReplyError):
            raise ValueError(f"redis refused: {answer}")
        return answer

    def read(self, records: int, look: Look | None) -> Timed:
        read, count = 0, 1_000
        began = fed = time.perf_counter()
        while read < records:
            ranges = (
                command("XRANGE", key, b"(" + after, "+", "COUNT", count)
                for key, after in self._after.items()
            )
            self._connection.sendall(b"".join(ranges))
            found = [self._answer() for _ in self._after]
            for key, entries in zip(list(self._after), found, strict=True):
                if not entries:
                    continue
                self._after[key] = entries[-1][0]
                values = [fields[1] for _, fields in entries]
                count = max(RANGE_BYTES // len(values[0]), 1)
                read += len(values)
                if look is not None:
                    look(values)
            if any(found):
                fed = time.perf_counter()
            elif time.perf_counter() - fed > PATIENCE_S:
                raise TimeoutError(f"redis has {read} of {records} records")
            else:
                time.sleep(0.001)
        return Timed(read, time.perf_counter() - began)

    def receive_stamps(self, timeout_s: float) -> npt.NDArray[np.int64]:
        wait_ms = max(int(timeout_s * 1e3), 1)
        words: list[bytes | str | int] = [
            "XREAD",
            "COUNT",
            10_000,
            "BLOCK",
            wait_ms,
            "STREAMS",
            *self._after,
            *self._after.values(),
        ]
        self._connection.sendall(command(*words))
        values = []
        for key, entries in self._answer() or []:
            self._after[key] = entries[-1][0]
            values += [fields[1] for _, fields in entries]
        return stamps_of(values)

    def close(self) -> None:
        self._connection.close()
