"""Load on a node: producers and consumers at a bounded rate that write down all they see, for the judges.

As a program it is a client that somebody else will kill: `python -m tests.support.load --help`.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections import Counter, defaultdict, deque
from types import TracebackType
from typing import Any

from ringlog.client.consumer import Consumer
from ringlog.client.producer import Producer
from ringlog.errors import RinglogError
from tests.support.checkers.recording import Recorder, filling, value_of
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.plain_clients import PlainConsumer, PlainProducer
from tests.support.raw_client import RawClient

TICK_S = 0.01
PENDING_RECORDS_MAX = 5_000
"""Of one producer: past it, it waits for acknowledgements. Keeps an outage from filling memory with futures."""


class Producing(threading.Thread):
    """Sends records to all partitions of a topic in turn, from a seed, until it is told to stop."""

    def __init__(
        self,
        bootstrap: str,
        recorder: Recorder,
        topic: str,
        partitions: int,
        rate: float,
        *,
        plain: bool = False,
        value_bytes_max: int = 4096,
        **settings: Any,
    ) -> None:
        super().__init__(name=f"producing-{recorder.worker}", daemon=True)
        self.errors: Counter[str] = Counter()
        """Codes of the errors that records were given up with, or refused with."""
        self.acked = 0
        self.last_acked_sending: dict[int, float] = {}
        """By partition: when the youngest acknowledged record was sent."""
        self._address, self._settings, self._plain = bootstrap, settings, plain
        self._recorder, self._topic, self._partitions, self._rate = recorder, topic, partitions, rate
        self._value_bytes_max = value_bytes_max
        self._rng = random.Random(recorder.worker)
        self._number = 0
        self._pending: dict[int, deque[tuple[int, float, Any]]] = defaultdict(deque)
        self._is_stopped = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            kind = PlainProducer if self._plain else Producer
            with kind(bootstrap=self._address, **self._settings) as producer:
                self._produce_until_stopped(producer)
                producer.flush(30)
                self._harvest(wait_s=30)
        except BaseException as error:  # raised again where the load is stopped
            self.failure = error

    def stop(self) -> None:
        self._is_stopped.set()

    def _produce_until_stopped(self, producer: Any) -> None:
        due = time.monotonic()
        while not self._is_stopped.is_set():
            self._harvest()
            due = max(due + TICK_S, time.monotonic() - 0.1)
            if sum(map(len, self._pending.values())) < PENDING_RECORDS_MAX:
                self._send(producer, max(1, int(self._rate * TICK_S)))
            self._is_stopped.wait(max(0.0, due - time.monotonic()))

    def _send(self, producer: Any, count: int) -> None:
        partition = self._rng.randrange(self._partitions)
        numbers = range(self._number, self._number + count)
        self._number += count
        self._recorder.sent(f"{self._topic}-{partition}", numbers)
        for number in numbers:
            value = value_of(
                self._recorder.worker, number, filling(self._recorder.worker, number, self._value_bytes_max)
            )
            sent_at = time.monotonic()
            try:
                future = producer.produce(self._topic, value, partition=partition)
            except RinglogError as error:
                self._give_up(partition, number, error)
                continue
            self._pending[partition].append((number, sent_at, future))

    def _harvest(self, wait_s: float = 0.0) -> None:
        """Write down what was acknowledged. Within a partition acknowledgements come in order."""
        for partition, waiting in self._pending.items():
            while waiting and (wait_s or waiting[0][2].done()):
                number, sent_at, future = waiting.popleft()
                try:
                    place = future.result(wait_s)
                except RinglogError as error:
                    self._give_up(partition, number, error)
                    continue
                name = f"{place.topic}-{place.partition}"
                self._recorder.acked(name, number, place.offset, _word(place.durability))
                self.last_acked_sending[partition] = sent_at
                self.acked += 1

    def _give_up(self, partition: int, number: int, error: RinglogError) -> None:
        self.errors[error.code] += 1
        self._recorder.failed(f"{self._topic}-{partition}", number, error.code)


class Consuming(threading.Thread):
    """Follows all partitions of a topic from the start until it is told to stop."""

    def __init__(
        self,
        bootstrap: str,
        recorder: Recorder,
        topic: str,
        partitions: int,
        *,
        plain: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(name=f"consuming-{recorder.worker}", daemon=True)
        self.errors: Counter[str] = Counter()
        self.polled = 0
        self.next_offsets: dict[int, int] = {}
        self.failure: BaseException | None = None
        self._address, self._settings, self._plain = bootstrap, settings, plain
        self._recorder, self._topic, self._partitions = recorder, topic, partitions
        self._is_stopped = threading.Event()

    def run(self) -> None:
        try:
            settings = {"auto_offset_reset": "earliest", **self._settings}
            kind = PlainConsumer if self._plain else Consumer
            with kind(bootstrap=self._address, **settings) as consumer:
                consumer.assign([(self._topic, partition) for partition in range(self._partitions)])
                for partition in range(self._partitions):
                    self._recorder.positioned(f"{self._topic}-{partition}", 0)
                while not self._is_stopped.is_set():
                    self._poll(consumer)
        except BaseException as error:  # raised again where the load is stopped
            self.failure = error

    def stop(self) -> None:
        self._is_stopped.set()

    def _poll(self, consumer: Any) -> None:
        try:
            records = consumer.poll(timeout_ms=100, max_records=1000)
        except RinglogError as error:
            self.errors[error.code] += 1
            if not error.retriable:
                raise
            self._is_stopped.wait(TICK_S)
            return
        by_partition: dict[int, list[Any]] = defaultdict(list)
        for record in records:
            by_partition[record.partition].append(record)
        for partition, some in by_partition.items():
            name = f"{self._topic}-{partition}"
            self._recorder.polled(name, [one.offset for one in some], [one.value for one in some])
            self.next_offsets[partition] = some[-1].offset + 1
        self.polled += len(records)


class Load:
    """Producers and consumers in threads of this process, on one topic. `plain`: without the client library."""

    def __init__(
        self,
        bootstrap: str,
        directory: str,
        topic: str,
        *,
        partitions: int = 4,
        producers: int = 2,
        consumers: int = 1,
        rate: float = 1000.0,
        name: str = "",
        plain: bool = False,
        **producer_settings: Any,
    ) -> None:
        self._topic, self._partitions = topic, partitions
        self._recorders: list[Recorder] = []
        self.producers = [
            Producing(
                bootstrap,
                self._recorder(directory, f"{name}p{number}"),
                topic,
                partitions,
                rate / producers,
                plain=plain,
                **producer_settings,
            )
            for number in range(producers)
        ]
        self.consumers = [
            Consuming(
                bootstrap, self._recorder(directory, f"{name}c{number}"), topic, partitions, plain=plain
            )
            for number in range(consumers)
        ]

    def _recorder(self, directory: str, worker: str) -> Recorder:
        self._recorders.append(Recorder(directory, worker))
        return self._recorders[-1]

    @property
    def acked(self) -> int:
        return sum(producer.acked for producer in self.producers)

    def __enter__(self) -> Load:
        for worker in [*self.producers, *self.consumers]:
            worker.start()
        return self

    def wait_writable(self, since: float, within_s: float) -> float:
        """Seconds from `since` (of time.monotonic) until each partition acknowledged a record sent after it."""

        def is_writable() -> bool:
            self._raise_failures()
            youngest: dict[int, float] = {}
            for producer in self.producers:
                for partition, sent_at in list(producer.last_acked_sending.items()):
                    youngest[partition] = max(sent_at, youngest.get(partition, 0.0))
            return len(youngest) == self._partitions and min(youngest.values()) > since

        left_s = within_s - (time.monotonic() - since)
        wait_for("an acknowledgement from every partition", is_writable, left_s, every_s=0.005)
        return time.monotonic() - since

    def wait_warm(self, within_s: float = 5.0) -> None:
        """Return when every partition has acknowledged something."""
        self.wait_writable(time.monotonic(), stretched(within_s))

    def stop(self) -> None:
        """End all workers: producers flush first. What went wrong in one of them is raised here."""
        for worker in [*self.producers, *self.consumers]:
            worker.stop()
        for worker in [*self.producers, *self.consumers]:
            if worker.ident is not None:
                worker.join(60)
            assert not worker.is_alive(), f"{worker.name} does not end"
        for recorder in self._recorders:
            recorder.close()
        self._raise_failures()

    def _raise_failures(self) -> None:
        for worker in [*self.producers, *self.consumers]:
            if worker.failure is not None:
                raise worker.failure

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            for worker in [*self.producers, *self.consumers]:
                worker.stop()


def audit(endpoint: str, directory: str, topic: str, name: str = "auditor") -> int:
    """Read a whole topic while nobody produces, by plain fetches, for the judge of the history; the records in it."""
    count = 0
    with RawClient(endpoint) as client, Recorder(directory, name) as recorder:
        for index, partition in enumerate(client.partition_ids(topic)):
            label, at, end = f"{topic}-{index}", client.start_offset(partition), client.end_offset(partition)
            recorder.positioned(label, at)
            while at < end:
                records, following = client.read(partition, at)
                assert following > at, f"a fetch of {label} at {at} brings nothing, and the log ends at {end}"
                recorder.polled(
                    label, [record.offset for record in records], [record.value for record in records]
                )
                count += len(records)
                at = following
            recorder.read_all(label, end)
    return count


def _word(durability: Any) -> str:
    """A durability as a word, whether it came as an enum or as its name."""
    return str(getattr(durability, "name", durability)).lower()


def main() -> None:
    """A client that produces and consumes until it is killed. Prints a line when it has its first acknowledgements."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--recordings", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rate", type=float, default=500.0)
    given = parser.parse_args()
    load = Load(
        given.bootstrap,
        given.recordings,
        given.topic,
        partitions=given.partitions,
        producers=1,
        rate=given.rate,
        name=given.name,
    )
    with load:
        load.wait_warm(30)
        print("warm", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
