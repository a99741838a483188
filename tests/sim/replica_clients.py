"""Clients of the simulated cluster: producers that retry, consumers that follow the leader, and their history."""

from __future__ import annotations

import abc

from ringlog.errors import OutOfOrderSequence
from ringlog.replication.view import PartitionView
from tests.sim.network import Network
from tests.sim.replica_broker import Poll, Polls, Produce, Produced
from tests.sim.replica_controller import CONTROLLER, AskLeader
from tests.sim.scheduler import Scheduler
from tests.support.checkers.recording import Acked, AnyEvent, Polled, Positioned, RecordId, Sent

TIMEOUT_MS = 400.0
RETRY_MS = 40.0


class _Client(abc.ABC):
    """Knows who leads its partition, asks again when that was wrong, and has one request under way at a time."""

    def __init__(self, client: int, partition: int, scheduler: Scheduler, network: Network) -> None:
        self.client = client
        self.partition = partition
        self.name = f"t-{partition}"
        self._scheduler = scheduler
        self._network = network
        self._leader = -1
        self._correlation = 0
        self._over = False
        network.join(client, self._receive)

    def begin(self) -> None:
        """Start to work."""
        self._ask()

    def stop(self) -> None:
        """Finish what is under way, and begin nothing new."""
        self._over = True

    def _ask(self) -> None:
        """Send the request of the moment to the leader, or ask who that is."""
        self._correlation += 1
        correlation = self._correlation
        if self._leader < 0:
            self._network.send(self.client, CONTROLLER, AskLeader(self.partition))
        else:
            self._network.send(self.client, self._leader, self._request(correlation))
        self._scheduler.after(TIMEOUT_MS, lambda: self._timed_out(correlation))

    def _timed_out(self, correlation: int) -> None:
        if correlation == self._correlation:
            self._leader = -1
            self._ask()

    def _receive(self, source: int, message: object) -> None:
        if isinstance(message, PartitionView):
            if self._leader < 0:
                self._leader = message.leader
                self._later(RETRY_MS if message.leader < 0 else 0.0)
        elif isinstance(message, Produced | Polls) and message.correlation == self._correlation:
            if message.error:
                self._refused(message.error)
            else:
                self._answered(message)

    def _later(self, delay_ms: float) -> None:
        self._correlation += 1
        correlation = self._correlation

        def act() -> None:
            if correlation == self._correlation:
                self._ask()

        self._scheduler.after(delay_ms, act)

    def _refused(self, code: str) -> None:
        """The request of the moment was not taken; it is sent again, to whoever leads then."""
        self._leader = -1
        self._later(RETRY_MS)

    @abc.abstractmethod
    def _request(self, correlation: int) -> object:
        """The request of the moment."""

    @abc.abstractmethod
    def _answered(self, message: Produced | Polls) -> None:
        """Its answer came."""


class SimProducer(_Client):
    """Sends numbered records, and each batch until it is acknowledged."""

    pauses_ms: tuple[float, ...] = (0.0, 0.0, 5.0, 60.0)
    """Between an acknowledgement and the next batch: one of these."""

    def __init__(
        self, client: int, partition: int, scheduler: Scheduler, network: Network, history: list[AnyEvent]
    ) -> None:
        super().__init__(client, partition, scheduler, network)
        self.worker = f"p{client}"
        self._history = history
        self._next = 0
        self._count = 0
        self.idle = True
        self.acked = 0
        self._next_batch()

    def _next_batch(self) -> None:
        self._count = self._scheduler.random.choice((1, 1, 2, 3))
        numbers = list(range(self._next, self._next + self._count))
        self._history.append(Sent(self.worker, self.name, numbers))
        self.idle = False

    def _request(self, correlation: int) -> object:
        records = tuple((self.worker, self._next + at) for at in range(self._count))
        return Produce(correlation, self.partition, self.client, self._next, records)

    def _answered(self, message: Produced | Polls) -> None:
        assert isinstance(message, Produced)
        for at in range(self._count):
            self._history.append(
                Acked(self.worker, self.name, self._next + at, message.base_offset + at, "committed")
            )
        self.acked += self._count
        self._next += self._count
        self.idle = True
        if not self._over:
            self._next_batch()
            self._later(self._scheduler.random.choice(self.pauses_ms))
        else:
            self._correlation += 1


class LossyProducer(SimProducer):
    """One that goes on, under another producer id, when what it had sent before is lost."""

    def __init__(
        self, client: int, partition: int, scheduler: Scheduler, network: Network, history: list[AnyEvent]
    ) -> None:
        super().__init__(client, partition, scheduler, network, history)
        self._producer_id = client
        self._first = 0
        self.acks: list[tuple[int, int, RecordId]] = []
        """Of each acknowledged record: the epoch that committed it, its offset, and what it is."""

    def _refused(self, code: str) -> None:
        if code == OutOfOrderSequence.code:
            self._producer_id += 10_000
            self._first = self._next
        super()._refused(code)

    def _request(self, correlation: int) -> object:
        records = tuple((self.worker, self._next + at) for at in range(self._count))
        return Produce(correlation, self.partition, self._producer_id, self._next - self._first, records)

    def _answered(self, message: Produced | Polls) -> None:
        assert isinstance(message, Produced)
        for at in range(self._count):
            record = (self.worker, self._next + at)
            self.acks.append((message.leader_epoch, message.base_offset + at, record))
        super()._answered(message)


class SimConsumer(_Client):
    """Reads a partition from its start, up to what is committed."""

    def __init__(
        self, client: int, partition: int, scheduler: Scheduler, network: Network, history: list[AnyEvent]
    ) -> None:
        super().__init__(client, partition, scheduler, network)
        self.worker = f"c{client}"
        self._history = history
        self.offset = 0
        history.append(Positioned(self.worker, self.name, 0))

    def _request(self, correlation: int) -> object:
        return Poll(correlation, self.partition, self.offset)

    def _answered(self, message: Produced | Polls) -> None:
        assert isinstance(message, Polls)
        offsets, records = [], []
        for batch in message.batches:
            for at, record in enumerate(batch.records):
                if batch.base_offset + at >= self.offset:
                    offsets.append(batch.base_offset + at)
                    records.append(record)
        if offsets:
            self._history.append(Polled(self.worker, self.name, offsets, records))
            self.offset = offsets[-1] + 1
        self._later(0.0 if offsets else 20.0)
