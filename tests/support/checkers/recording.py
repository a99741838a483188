"""What load on a node writes down about itself: one file per worker, one line per event, whole after kill -9.

Values are made so that each is unique, and so that every byte of it can be checked: the worker, the number of the
record, and a filling that follows from both.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType

import msgspec

RecordId = tuple[str, int]
"""The worker that sent a record, and the number that the worker gave it: numbers only increase."""


class Event(msgspec.Struct, tag_field="event", frozen=True):
    """One line of a recording."""


class Sent(Event, tag="sent"):
    """Records are about to be sent to a partition, in this order. Written before the client gets them."""

    worker: str
    partition: str
    numbers: list[int]


class Acked(Event, tag="acked"):
    """A record was acknowledged."""

    worker: str
    partition: str
    number: int
    offset: int
    durability: str


class Failed(Event, tag="failed"):
    """A record was given up: it may be in the log or not."""

    worker: str
    partition: str
    number: int
    code: str


class Positioned(Event, tag="positioned"):
    """A consumer begins to read at an offset."""

    worker: str
    partition: str
    offset: int


class Polled(Event, tag="polled"):
    """A poll returned these records of a partition. None stands for bytes that nobody can have sent."""

    worker: str
    partition: str
    offsets: list[int]
    ids: list[RecordId | None]


class ReadAll(Event, tag="read-all"):
    """A consumer that was positioned at the log's start has polled all below this offset, the log's end, while
    nobody produced."""

    worker: str
    partition: str
    end_offset: int


AnyEvent = Sent | Acked | Failed | Positioned | Polled | ReadAll
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyEvent)


def value_of(worker: str, number: int, size_bytes: int = 0) -> bytes:
    """The value of a record; longer than `size_bytes` only where its name needs it.

    >>> value_of("p1", 7, 20)
    b'p1/7|p1/7|p1/7|p1/7|'
    """
    name = f"{worker}/{number}|".encode()
    return (name * (size_bytes // len(name) + 1))[: max(size_bytes, len(name))]


def id_of(value: bytes | memoryview | None) -> RecordId | None:
    """Whose value it is, or None when no worker can have made it.

    >>> id_of(value_of("p1", 7, 20)), id_of(b"p1/7|p1/8|")
    (('p1', 7), None)
    """
    if value is None:
        return None
    data = bytes(value)
    worker, slash, number = data.partition(b"|")[0].partition(b"/")
    if not slash or not number.isdigit() or not worker.isascii():
        return None
    found = (worker.decode(), int(number))
    return found if data == value_of(*found, len(data)) else None


def filling(worker: str, number: int, size_bytes_max: int) -> int:
    """A size for a record's value, the same at every run, small ones more often.

    >>> filling("p1", 7, 1000) == filling("p1", 7, 1000) <= 1000
    True
    """
    mixed = zlib.crc32(f"{worker}/{number}".encode())
    return mixed % (size_bytes_max if mixed % 16 == 0 else max(1, size_bytes_max // 8))


class Recorder:
    """Appends events to one file. Every call is one write to it, so that a kill can only cut the last line."""

    def __init__(self, directory: str, worker: str) -> None:
        self.worker = worker
        self._lock = threading.Lock()
        path = os.path.join(directory, f"{worker}.jsonl")
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)

    def write(self, events: Iterable[AnyEvent]) -> None:
        lines = b"".join(_encoder.encode(event) + b"\n" for event in events)
        with self._lock:
            if self._fd >= 0 and lines:
                os.write(self._fd, lines)

    def sent(self, partition: str, numbers: Sequence[int]) -> None:
        self.write([Sent(self.worker, partition, list(numbers))])

    def acked(self, partition: str, number: int, offset: int, durability: str) -> None:
        self.write([Acked(self.worker, partition, number, offset, durability)])

    def failed(self, partition: str, number: int, code: str) -> None:
        self.write([Failed(self.worker, partition, number, code)])

    def positioned(self, partition: str, offset: int) -> None:
        self.write([Positioned(self.worker, partition, offset)])

    def polled(self, partition: str, offsets: Sequence[int], values: Sequence[bytes | None]) -> None:
        self.write([Polled(self.worker, partition, list(offsets), [id_of(value) for value in values])])

    def read_all(self, partition: str, end_offset: int) -> None:
        self.write([ReadAll(self.worker, partition, end_offset)])

    def close(self) -> None:
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_recording(path: str) -> Iterator[AnyEvent]:
    """The events of one file; a last line that a kill cut is left out."""
    with open(path, "rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield _decoder.decode(line)


def read_recordings(directory: str) -> list[AnyEvent]:
    """The events of all workers, those of each in their order."""
    names = sorted(name for name in os.listdir(directory) if name.endswith(".jsonl"))
    return [event for name in names for event in read_recording(os.path.join(directory, name))]
