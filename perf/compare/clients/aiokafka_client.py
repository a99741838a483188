"""aiokafka: Kafka from Python code that is asyncio. Measured for what its users get, record by record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from perf.compare.clients.api import ConsumerClient, Place, ProducerClient, Timed
from perf.compare.model import Durability
from perf.compare.payload import Payload
from perf.peers.settings import AIOKAFKA_CONSUMER, AIOKAFKA_PRODUCER, Setting

FETCH_RECORDS = 10_000
WAIT_MS = 1_000
PATIENCE_S = 60.0


def arguments(settings: Sequence[Setting]) -> dict[str, Any]:
    """Settings as keyword arguments.

    >>> arguments([Setting("linger_ms", "5", "fills batches"), Setting("check_crcs", "true", "as others do")])
    {'linger_ms': 5, 'check_crcs': True}
    """
    return {
        name: value == "true" if value in ("true", "false") else int(value) for name, value, _ in settings
    }


class AioProducer(ProducerClient):
    """send() for each record, its future kept until all are flushed."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._loop = asyncio.new_event_loop()
        self._producer: Any = self._loop.run_until_complete(self._started())

    async def _started(self) -> Any:
        from aiokafka import AIOKafkaProducer

        acks: int | str = 0 if self._place.durability is Durability.D0 else "all"
        producer = AIOKafkaProducer(
            bootstrap_servers=self._place.address, acks=acks, **arguments(AIOKAFKA_PRODUCER)
        )
        await producer.start()
        await producer.partitions_for(self._place.topic)
        return producer

    def produce(self, payload: Payload, records: int) -> Timed:
        return self._loop.run_until_complete(self._produce(payload.rows(), records))

    async def _produce(self, rows: Sequence[bytes], records: int) -> Timed:
        topic, send = self._place.topic, self._producer.send
        sent: list[asyncio.Future[Any]] = []
        began = time.perf_counter()
        for at in range(0, records, len(rows)):
            sent += [await send(topic, row) for row in rows[: records - at]]
        await self._producer.flush()
        took_s = time.perf_counter() - began
        for future in sent:
            future.result()  # raises what a delivery failed with
        return Timed(records, took_s)

    def close(self) -> None:
        self._loop.run_until_complete(self._producer.stop())
        self._loop.close()


class AioConsumer(ConsumerClient):
    """getmany(), each value taken."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._loop = asyncio.new_event_loop()
        self._consumer: Any = self._loop.run_until_complete(self._started())

    async def _started(self) -> Any:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._place.address, group_id=None, **arguments(AIOKAFKA_CONSUMER)
        )
        await consumer.start()
        places = [TopicPartition(self._place.topic, number) for number in range(self._place.partitions)]
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        return consumer

    def consume(self, records: int) -> Timed:
        return self._loop.run_until_complete(self._consume(records))

    async def _consume(self, records: int) -> Timed:
        began = fed = time.perf_counter()
        read = 0
        while read < records:
            found = await self._consumer.getmany(timeout_ms=WAIT_MS, max_records=FETCH_RECORDS)
            values = [record.value for some in found.values() for record in some]
            read += len(values)
            if values:
                fed = time.perf_counter()
            elif time.perf_counter() - fed > PATIENCE_S:
                raise TimeoutError(f"aiokafka brought {read} of {records} records")
        return Timed(read, time.perf_counter() - began)

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()
