"""A producer and a consumer made of plain requests: the calls of the library that load uses, and none of its code.

With them a fault test says whether the node keeps its promises, whatever the library does.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future
from types import TracebackType
from typing import Any, NamedTuple

from ringlog.errors import DeliveryTimeout, RinglogError
from ringlog.model import Durability
from ringlog.net.framing import Api
from ringlog.net.messages import InitProducerReply, decode_body
from ringlog.records.encode import encode
from tests.support.raw_client import RawClient

BATCH_RECORDS_MAX = 500
PAUSE_S = 0.02


class Place(NamedTuple):
    """Where a record stands."""

    topic: str
    partition: int
    offset: int
    durability: Durability


class PlainProducer:
    """Idempotent, one batch of one partition at a time, each sent until it is answered."""

    def __init__(
        self, bootstrap: str, delivery_timeout_ms: int = 60_000, request_timeout_ms: int = 1_000
    ) -> None:
        self._client = RawClient(f"tcp://{bootstrap}", request_timeout_ms / 1000)
        self._delivery_s = delivery_timeout_ms / 1000
        self._buffers: dict[tuple[str, int], deque[tuple[bytes, Future[Place]]]] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._ids: dict[str, list[int]] = {}
        self._producer_id = -1
        self._changed = threading.Condition()
        self._is_closed = False
        self._sending = False
        self._thread = threading.Thread(target=self._run, name="plain-producer", daemon=True)
        self._thread.start()

    def produce(self, topic: str, value: bytes, partition: int) -> Future[Place]:
        future: Future[Place] = Future()
        with self._changed:
            self._buffers.setdefault((topic, partition), deque()).append((value, future))
            self._changed.notify_all()
        return future

    def flush(self, timeout_s: float) -> None:
        """Wait until nothing is left to be sent."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: not self._sending and not any(self._buffers.values()), timeout_s
            )

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(30)
        self._client.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._sending = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_closed or any(self._buffers.values()))
                if self._is_closed:
                    return
                self._sending = True
                work = [(place, _some(waiting)) for place, waiting in self._buffers.items() if waiting]
            for place, records in work:
                self._deliver(place, records)

    def _deliver(self, place: tuple[str, int], records: list[tuple[bytes, Future[Place]]]) -> None:
        topic, partition = place
        until = time.monotonic() + self._delivery_s
        while True:
            try:
                base = self._send(place, [value for value, _ in records])
                break
            except RinglogError as error:
                if error.code == "STALE_METADATA":
                    self._ids.clear()
                given_up = error if not error.retriable else None
                if given_up is None and (time.monotonic() > until or self._is_closed):
                    given_up = DeliveryTimeout(f"not delivered in time: {error}")
                if given_up is not None:
                    # Whether it was appended nobody knows, so nor does anybody know the next sequence.
                    self._producer_id = -1
                    for _, future in records:
                        future.set_exception(given_up)
                    return
                time.sleep(PAUSE_S)
        for number, (_, future) in enumerate(records):
            future.set_result(Place(topic, partition, base.base_offset + number, Durability(base.durability)))

    def _send(self, place: tuple[str, int], values: list[bytes]) -> Any:
        topic, partition = place
        if self._producer_id < 0:
            body = self._client.request(Api.INIT_PRODUCER, b"\x90")
            self._producer_id = decode_body(body, InitProducerReply).producer_id
            self._sequences.clear()
        if topic not in self._ids:
            self._ids[topic] = self._client.partition_ids(topic)
        sequence = self._sequences.get(place, 0)
        data = encode(
            values,
            timestamps=int(time.time() * 1000),
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        reply = self._client.produce_bytes(self._ids[topic][partition], bytes(data))
        self._sequences[place] = sequence + len(values)
        return reply

    def __enter__(self) -> PlainProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PlainRecord(NamedTuple):
    """What a poll returns."""

    topic: str
    partition: int
    offset: int
    value: bytes | None


class PlainConsumer:
    """Fetches its partitions in turn, each from where it stands."""

    def __init__(self, bootstrap: str, auto_offset_reset: str = "earliest") -> None:
        assert auto_offset_reset == "earliest"
        self._client = RawClient(f"tcp://{bootstrap}", 1.0)
        self._positions: dict[tuple[str, int], int] = {}

    def assign(self, partitions: list[tuple[str, int]]) -> None:
        self._positions = dict.fromkeys(partitions, 0)

    def poll(self, timeout_ms: int, max_records: int) -> list[PlainRecord]:
        until = time.monotonic() + timeout_ms / 1000
        found: list[PlainRecord] = []
        while not found:
            for (topic, index), at in self._positions.items():
                try:
                    partition = self._client.partition_ids(topic)[index]
                    records, following = self._client.read(partition, at, bytes_max=1 << 18)
                except RinglogError:
                    if found:
                        return found  # the error can wait until the next poll; what was read cannot
                    raise
                found += [PlainRecord(topic, index, one.offset, one.value) for one in records]
                self._positions[topic, index] = max(at, following)
                if len(found) >= max_records:
                    break
            if time.monotonic() > until:
                break
            if not found:
                time.sleep(PAUSE_S)
        return found

    def __enter__(self) -> PlainConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()


def _some(waiting: deque[tuple[bytes, Future[Place]]]) -> list[tuple[bytes, Future[Place]]]:
    return [waiting.popleft() for _ in range(min(len(waiting), BATCH_RECORDS_MAX))]
