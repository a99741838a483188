"""RabbitMQ Streams by its own protocol: frames of batched entries with confirms ahead, and credits for chunks. A
stream is a partition; one connection serves 256 of them."""

from __future__ import annotations

import select
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from perf.compare.clients import rabbitmq_wire as wire
from perf.compare.clients.api import Place, Timed
from perf.compare.clients.pipeline import (
    NO_WINDOW,
    Pipeline,
    SocketReader,
    StepProducer,
    connect,
    received,
)
from perf.compare.model import Durability
from perf.compare.payload import Payload
from perf.peers.settings import RABBITMQ_CLIENT, number_of

FRAME_BYTES = number_of(RABBITMQ_CLIENT, "frame_bytes")
ENTRY_BYTES = number_of(RABBITMQ_CLIENT, "entry_bytes")
FRAMES_AHEAD = number_of(RABBITMQ_CLIENT, "frames_ahead")
CREDITS = number_of(RABBITMQ_CLIENT, "credits")
ENTRY_RECORDS_MAX = 65_535


class Link:
    """A connection that the server has accepted."""

    def __init__(self, address: str) -> None:
        self.socket = connect(address)
        self._frames = wire.Frames()
        self._asked = 0
        self._waiting: list[tuple[int, bytes]] = []
        self.ask(wire.PEER_PROPERTIES, wire.properties(product="perf"))
        self.ask(wire.SASL_HANDSHAKE)
        who = b"\0guest\0guest"
        self.ask(wire.SASL_AUTHENTICATE, wire.text("PLAIN"), struct.pack(">I", len(who)), who)
        limits = self._next(wire.TUNE)
        self.socket.sendall(wire.frame(wire.TUNE, limits))
        self.ask(wire.OPEN, wire.text("/"))

    def ask(self, key: int, *content: bytes) -> None:
        """Send a request and wait until it is granted; OSError when it is not."""
        self._asked += 1
        self.socket.sendall(wire.frame(key, struct.pack(">I", self._asked), *content))
        code = struct.unpack_from(">H", self._next(key | wire.ANSWER), 4)[0]
        if code != wire.OK:
            raise OSError(f"rabbitmq refused a request {key:#x} with code {code:#x}")

    def _next(self, wanted: int) -> bytes:
        """The next frame, which has to have this key: nothing comes unasked before a publish or a credit. Except that
        the server's limits follow the login at once, and may come with its answer."""
        while not self._waiting:
            self._waiting += self.arrived()
        key, body = self._waiting.pop(0)
        if key != wanted:
            raise OSError(f"rabbitmq sent {key:#x} instead of {wanted:#x}: {body[:80]!r}")
        return body

    def arrived(self) -> Iterator[tuple[int, bytes]]:
        """The frames that the next read brings."""
        return self._frames.feed(received(self.socket))

    def confirmed(self, data: bytes) -> int:
        """How many entries are confirmed by what was read of the socket."""
        entries = 0
        for key, body in self._frames.feed(data):
            if key != wire.PUBLISH_CONFIRM:
                raise ValueError(f"rabbitmq sent {key:#x} instead of a confirmation: {body[:80]!r}")
            entries += wire.confirmed(body)
        return entries

    def close(self) -> None:
        self.socket.close()


def create_streams(address: str, topic: str, partitions: int) -> None:
    """A stream for each partition."""
    link = Link(address)
    for number in range(partitions):
        link.ask(wire.CREATE, wire.text(stream_of(topic, number)), wire.properties())
    link.close()


def delete_streams(address: str, topic: str, partitions: int) -> None:
    link = Link(address)
    for number in range(partitions):
        link.ask(wire.DELETE, wire.text(stream_of(topic, number)))
    link.close()


def stream_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


class RabbitmqProducer(StepProducer):
    """Frames go round the partitions. The server confirms always; at D0 nobody waits for it before the end."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._links = links_for(place)
        for number in range(place.partitions):
            link, publisher = divmod(number, wire.PUBLISHERS_MAX)
            declared = [bytes([publisher]), wire.text(""), wire.text(stream_of(place.topic, number))]
            self._links[link].ask(wire.DECLARE_PUBLISHER, *declared)
        self._pipelines = [Pipeline(link.socket, link.confirmed, NO_WINDOW) for link in self._links]
        self._entries = 0
        self._next = 0

    def produce(self, payload: Payload, records: int) -> Timed:
        step = max(FRAME_BYTES // payload.record_bytes, 1)
        if self._place.durability is not Durability.D0:
            entries = -(-step // entry_records(payload.record_bytes))
            for pipeline in self._pipelines:
                pipeline.window = entries * FRAMES_AHEAD
        return self.steps(payload, records, step)

    def send(self, values: npt.NDArray[np.uint8]) -> None:
        link, publisher = divmod(self._next % self._place.partitions, wire.PUBLISHERS_MAX)
        self._next += 1
        data, entries = wire.publish(publisher, self._entries, values, entry_records(values.shape[1]))
        self._entries += entries
        self._pipelines[link].send(data, entries)

    def finish(self) -> None:
        for pipeline in self._pipelines:
            pipeline.finish()

    def close(self) -> None:
        for pipeline in self._pipelines:
            pipeline.close()


def entry_records(record_bytes: int) -> int:
    """How many records share an entry.

    >>> entry_records(1_000_000)
    1
    """
    return min(max(ENTRY_BYTES // record_bytes, 1), ENTRY_RECORDS_MAX)


class RabbitmqConsumer(SocketReader):
    """A subscription to each stream from its first record. Chunks come for credits: none before the clock runs, then
    more whenever half of them are used."""

    def __init__(self, place: Place) -> None:
        self._links = links_for(place)
        self._used = [0] * place.partitions
        for number in range(place.partitions):
            link, subscription = divmod(number, wire.PUBLISHERS_MAX)
            self._links[link].ask(
                wire.SUBSCRIBE,
                bytes([subscription]),
                wire.text(stream_of(place.topic, number)),
                struct.pack(">HH", wire.FROM_FIRST, 0),
                wire.properties(),
            )
        self._begun = False

    def arrived(self, timeout_s: float) -> list[Any]:
        if not self._begun:
            self._begun = True
            for number in range(len(self._used)):
                self._credit(number, CREDITS)
        values: list[Any] = []
        for at, link in self._ready(timeout_s):
            for key, body in link.arrived():
                if key != wire.DELIVER:
                    raise ValueError(f"rabbitmq sent {key:#x} instead of records: {body[:80]!r}")
                subscription, found = wire.delivered(body)
                values += found
                number = at * wire.PUBLISHERS_MAX + subscription
                self._used[number] += 1
                if self._used[number] >= CREDITS // 2:
                    self._credit(number, self._used[number])
                    self._used[number] = 0
        return values

    def _credit(self, number: int, chunks: int) -> None:
        link, subscription = divmod(number, wire.PUBLISHERS_MAX)
        self._links[link].socket.sendall(wire.frame(wire.CREDIT, struct.pack(">BH", subscription, chunks)))

    def _ready(self, timeout_s: float) -> list[tuple[int, Link]]:
        """The connections that have something to read, with their numbers."""
        sockets = [link.socket for link in self._links]
        ready, _, _ = select.select(sockets, [], [], timeout_s)
        if not ready:
            raise TimeoutError(f"rabbitmq has sent nothing for {timeout_s:g} s")
        return [(sockets.index(found), self._links[sockets.index(found)]) for found in ready]

    def close(self) -> None:
        for link in self._links:
            link.close()


def links_for(place: Place) -> list[Link]:
    """As many connections as the partitions need."""
    return [Link(place.address) for _ in range(0, place.partitions, wire.PUBLISHERS_MAX)]
