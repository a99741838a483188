"""RabbitMQ Streams by its own protocol: frames of batched entries with confirms ahead, and credits for chunks. A
stream is a partition; one connection serves 256 of them."""

from __future__ import annotations

import select
import socket
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
from perf.peers.settings import (
    RABBITMQ_CREDITS,
    RABBITMQ_ENTRY_BYTES,
    RABBITMQ_FRAME_BYTES,
    RABBITMQ_FRAMES_AHEAD,
)

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
        """The next frame of a key; others that come before it are left for whoever reads on."""
        while True:
            for number, (key, body) in enumerate(self._waiting):
                if key == wanted:
                    del self._waiting[number]
                    return body
            self._waiting += self._frames.feed(received(self.socket))

    def arrived(self) -> Iterator[tuple[int, bytes]]:
        """The frames that the next read brings, after those that came between answers."""
        if self._waiting:
            came, self._waiting = self._waiting, []
            yield from came
        else:
            yield from self._frames.feed(received(self.socket))

    def confirmed(self, data: bytes) -> int:
        """How many entries are confirmed by what was read of the socket."""
        entries = 0
        for key, body in self._frames.feed(data):
            if key != wire.PUBLISH_CONFIRM:
                raise ValueError(f"rabbitmq sent {key:#x} instead of a confirmation: {body[:80]!r}")
            entries += wire.confirmed(body)
        return entries

    @property
    def has_frames(self) -> bool:
        """Frames are here already: the socket may stay silent."""
        return bool(self._waiting)

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
        step = max(RABBITMQ_FRAME_BYTES // payload.record_bytes, 1)
        if self._place.durability is not Durability.D0:
            entries = -(-step // entry_records(payload.record_bytes))
            for pipeline in self._pipelines:
                pipeline.window = entries * RABBITMQ_FRAMES_AHEAD
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
    return min(max(RABBITMQ_ENTRY_BYTES // record_bytes, 1), ENTRY_RECORDS_MAX)


class RabbitmqConsumer(SocketReader):
    """A subscription to each stream from its first record; each chunk that comes is a credit for another."""

    def __init__(self, place: Place) -> None:
        self._links = links_for(place)
        for number in range(place.partitions):
            link, subscription = divmod(number, wire.PUBLISHERS_MAX)
            self._links[link].ask(
                wire.SUBSCRIBE,
                bytes([subscription]),
                wire.text(stream_of(place.topic, number)),
                struct.pack(">HH", wire.FROM_FIRST, RABBITMQ_CREDITS),
                wire.properties(),
            )

    def arrived(self, timeout_s: float) -> list[Any]:
        values: list[Any] = []
        for link in self._ready(timeout_s):
            credits = []
            for key, body in link.arrived():
                if key != wire.DELIVER:
                    raise ValueError(f"rabbitmq sent {key:#x} instead of records: {body[:80]!r}")
                subscription, found = wire.delivered(body)
                values += found
                credits.append(wire.frame(wire.CREDIT, bytes([subscription]), struct.pack(">H", 1)))
            link.socket.sendall(b"".join(credits))
        return values

    def _ready(self, timeout_s: float) -> list[Link]:
        """The connections that have something to read."""
        early = [link for link in self._links if link.has_frames]
        if early:
            return early
        by_socket: dict[socket.socket, Link] = {link.socket: link for link in self._links}
        ready, _, _ = select.select(list(by_socket), [], [], timeout_s)
        if not ready:
            raise TimeoutError(f"rabbitmq has sent nothing for {timeout_s:g} s")
        return [by_socket[found] for found in ready]

    def close(self) -> None:
        for link in self._links:
            link.close()


def links_for(place: Place) -> list[Link]:
    """As many connections as the partitions need."""
    return [Link(place.address) for _ in range(0, place.partitions, wire.PUBLISHERS_MAX)]
