"""Kafka's clients: its own Java tools, and confluent-kafka from Python."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perf.compare.clients.api import (
    ConsumerClient,
    Look,
    PacedProducer,
    Place,
    ProducerClient,
    Reader,
    Timed,
    stamps_of,
)
from perf.compare.model import Durability
from perf.compare.payload import Payload, text_record
from perf.peers.fetch import kafka_jars
from perf.peers.kafka import run_tool
from perf.peers.settings import (
    CONFLUENT_CONSUMER,
    CONFLUENT_PRODUCER,
    CONFLUENT_PRODUCER_LATENCY,
    KAFKA_CONSUMER,
    KAFKA_PRODUCER,
    values_of,
)

PATIENCE_S = 60
FETCH_RECORDS = 10_000
WARM_UP_SHARE = 0.6
_STEADY = re.compile(r"(\d+) steady state records sent, ([\d.]+) records/sec")


class JavaProducer(ProducerClient):
    """kafka-producer-perf-test: the first part of its records warms the JVM up and is not counted."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def produce(self, payload: Payload, records: int) -> Timed:
        acks = "0" if self._place.durability is Durability.D0 else "all"
        with tempfile.NamedTemporaryFile(prefix="payload-") as file:
            file.write(text_record(payload.record_bytes))
            file.flush()
            properties = [f"{name}={value}" for name, value in values_of(KAFKA_PRODUCER).items()]
            said = run_tool(
                kafka_jars(fetch=False), "org.apache.kafka.tools.ProducerPerformance",
                "--topic", self._place.topic, "--bootstrap-server", self._place.address,
                "--num-records", str(records), "--warmup-records", str(int(records * WARM_UP_SHARE)),
                "--payload-file", file.name, "--throughput", "-1",
                "--command-property", f"acks={acks}", *properties,
            )  # fmt: skip
        return steady_state(said)


class JavaConsumer(ConsumerClient):
    """kafka-consumer-perf-test: the time to join its group is not counted."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def consume(self, records: int) -> Timed:
        with tempfile.NamedTemporaryFile("w", prefix="consumer-", suffix=".properties") as file:
            file.writelines(f"{name}={value}\n" for name, value in values_of(KAFKA_CONSUMER).items())
            file.flush()
            said = run_tool(
                kafka_jars(fetch=False), "org.apache.kafka.tools.ConsumerPerformance",
                "--topic", self._place.topic, "--bootstrap-server", self._place.address,
                "--num-records", str(records), "--group", f"compare-{os.getpid()}",
                "--command-config", file.name, "--timeout", "60000", "--hide-header",
            )  # fmt: skip
        return fetched(said)


def steady_state(said: str) -> Timed:
    """What the producer's tool says after its warm-up.

    >>> steady_state("100000 steady state records sent, 50000.0 records/sec (4.77 MB/sec), 2.9 ms avg latency")
    Timed(records=100000, seconds=2.0)
    """
    found = _STEADY.search(said)
    if found is None:
        raise ValueError(f"Kafka's producer tool said nothing of a steady state: {said[-300:]}")
    return Timed(int(found[1]), int(found[1]) / float(found[2]))


def fetched(said: str) -> Timed:
    """What the consumer's tool says: records, and milliseconds without those that joining took.

    >>> fetched("2026-01-01 00:00:00:1, 2026-01-01 00:00:06:1, 19.07, 3.1, 200000, 32610.4, 3376, 2500, 6.9, 72542.6")
    Timed(records=200000, seconds=2.5)
    """
    for line in reversed(said.splitlines()):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 10 and fields[4].isdigit():
            return Timed(int(fields[4]), int(fields[7]) / 1e3)
    raise ValueError(f"Kafka's consumer tool said nothing of what it read: {said[-300:]}")


class ConfluentProducer(PacedProducer):
    """confluent-kafka: produce() for each record, failed deliveries counted."""

    def __init__(self, place: Place) -> None:
        from confluent_kafka import Producer

        acks = "0" if place.durability is Durability.D0 else "all"
        settings: dict[str, Any] = {
            "bootstrap.servers": place.address,
            "acks": acks,
            "on_delivery": self._delivered,
        }
        settings |= values_of(CONFLUENT_PRODUCER)
        if place.paced:
            settings |= values_of(CONFLUENT_PRODUCER_LATENCY)
        self._producer = Producer(settings)
        self._producer.list_topics(place.topic, timeout=30)
        self._topic = place.topic
        self._errors: list[Any] = []

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._errors.append(error)

    def produce(self, payload: Payload, records: int) -> Timed:
        rows, topic, produce, poll = payload.rows(), self._topic, self._producer.produce, self._producer.poll
        began = time.perf_counter()
        for at in range(0, records, len(rows)):
            for number, row in enumerate(rows[: records - at]):
                while True:
                    try:
                        produce(topic, row)
                        break
                    except BufferError:
                        poll(0.01)
                if number % 1_000 == 0:
                    poll(0)
        self._flush()
        return Timed(records, time.perf_counter() - began)

    def send(self, values: npt.NDArray[np.uint8]) -> None:
        for row in values:
            self._producer.produce(self._topic, row.tobytes())
        self._producer.poll(0)

    def finish(self) -> None:
        self._flush()

    def _flush(self) -> None:
        left = self._producer.flush(PATIENCE_S)
        if left or self._errors:
            raise OSError(
                f"{left} records were not acknowledged, {len(self._errors)} failed: {self._errors[:1]}"
            )


class ConfluentConsumer(Reader):
    """confluent-kafka: consume() many at a time, each value taken."""

    def __init__(self, place: Place) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"bootstrap.servers": place.address, "group.id": f"compare-{os.getpid()}"}
        self._consumer = Consumer({**settings, **values_of(CONFLUENT_CONSUMER)})
        self._consumer.assign([TopicPartition(place.topic, number, 0) for number in range(place.partitions)])

    def read(self, records: int, look: Look | None) -> Timed:
        began, read = time.perf_counter(), 0
        while read < records:
            values = self._values(self._consumer.consume(min(FETCH_RECORDS, records - read), timeout=1.0))
            read += len(values)
            if look is not None:
                look(values)
        return Timed(read, time.perf_counter() - began)

    def receive_stamps(self, timeout_s: float) -> npt.NDArray[np.int64]:
        first = self._consumer.poll(timeout_s)
        messages = [] if first is None else [first, *self._consumer.consume(FETCH_RECORDS, timeout=0)]
        return stamps_of(self._values(messages))

    @staticmethod
    def _values(messages: Sequence[Any]) -> list[bytes]:
        for message in messages:
            if message.error() is not None:
                raise OSError(f"confluent-kafka: {message.error()}")
        return [message.value() for message in messages]

    def close(self) -> None:
        self._consumer.close()
