"""The sender against a model of a node that dedupes: nothing lost, nothing twice, order kept, whatever fails.

The wire of the model delivers frames in order, and loses, delays and repeats as a real one can: a request may time out
while its frame still waits at the node, a connection may be lost with any part of its frames done.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict, deque

import pytest

from ringlog import limits
from ringlog.client.accumulator import Accumulator, TopicQueues
from ringlog.client.futures import RecordFuture
from ringlog.client.many import Chunk, Rows
from ringlog.client.partition_queue import ProducerId
from ringlog.client.sender import Sender
from ringlog.client.settings import ProducerSettings
from ringlog.errors import (
    BatchTooLarge,
    DeliveryTimeout,
    NodeUnavailable,
    OutOfOrderSequence,
    Overloaded,
    PartitionBusy,
    RequestTimeout,
    RinglogError,
    StaleMetadata,
    UnknownTopic,
)
from ringlog.net.framing import Acks
from ringlog.net.messages import PartitionMetadata, ProduceReply, TopicMetadata
from ringlog.records.builder import HEADROOM
from ringlog.records.columns import Column
from ringlog.records.decode import decode
from ringlog.records.scan import check


class ModelNode:
    """One partition with the dedupe rules of a node's."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.kept: dict[int, list[tuple[int, int, int]]] = defaultdict(list)

    def append(self, batch: bytes) -> ProduceReply:
        row = check(batch, gapless=True)[0]
        producer, first, count = (int(row[name]) for name in ("producer_id", "base_sequence", "record_count"))
        kept = self.kept[producer]
        for known_first, known_count, offset in kept:
            if producer >= 0 and (known_first, known_count) == (first, count):
                return ProduceReply(offset, -1, 0, 2, 1)
        if producer >= 0 and kept and first != kept[-1][0] + kept[-1][1]:
            raise OutOfOrderSequence("not due")
        offset = len(self.log)
        self.log += [record.value for record in decode(batch)]
        self.kept[producer] = [*kept, (first, count, offset)][-limits.PRODUCER_BATCHES_KEPT :]
        return ProduceReply(offset, -1, 0, 2)


class Simulation:
    """A sender, the model node, and the wire between them, driven by one seed."""

    def __init__(self, seed: int, *, fatal: bool = False, **settings) -> None:
        self.chance = random.Random(seed)
        self.fatal = fatal
        self.settings = ProducerSettings(**{"batch_size": 1024, **settings})
        self.accumulator = Accumulator(self.settings)
        self.sender = Sender(self.settings, self.accumulator)
        topic = TopicMetadata("t", "", 1, [PartitionMetadata(0, 7, 0, 0)], {})
        self.topic = TopicQueues(topic, self.settings.max_in_flight_requests_per_connection)
        self.queue = self.topic.queues[0]
        self.node = ModelNode()
        self.now_s = 0.0
        self.wire: list[list] = []
        """[batch object, bytes, whether an answer is still awaited]"""
        self.lent: deque[tuple[bytearray, bytes]] = deque(maxlen=20)
        """The buffers that left, and what they held then."""
        self.futures = []
        self.producer_ids = 0

    def produce_few(self, count: int) -> None:
        """Some at once, from columns."""
        values = [b"%d" % (len(self.futures) + i) + b"." * self.chance.randint(0, 300) for i in range(count)]
        chunk = Chunk(Column.gather(values), None, None, 0, count)
        part = self.accumulator.extend(self.topic, self.queue, chunk, Rows(0, count), Acks.ALL, self.now_s)
        if part is None:
            assert sum(map(len, values)) + 12 * count > self.settings.few_bytes
        else:
            places = range(part.first, part.first + part.records)
            self.futures += [
                (value, RecordFuture((part.state, place)))
                for value, place in zip(values, places, strict=True)
            ]

    def produce(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % len(self.futures) + b"." * self.chance.randint(0, 300)
            record = (value, None, 0, None)
            self.futures.append(
                (value, self.accumulator.append(self.topic, self.queue, record, Acks.ALL, self.now_s))
            )

    def pump(self) -> None:
        for queue, batch in self.sender.step(self.now_s):
            assert queue is self.queue
            assert len(queue.in_flight) <= self.settings.max_in_flight_requests_per_connection
            self.wire.append([batch, bytes(batch.data[HEADROOM:]), True])
            self.lent.append((batch.data, bytes(batch.data)))
        # The socket reads what it was given when it likes: nothing that left is changed, also not to leave again.
        assert all(data == as_it_left for data, as_it_left in self.lent)
        if self.sender.needs_producer and self.chance.random() < 0.7:
            self.producer_ids += 1
            self.sender.on_producer(ProducerId(self.producer_ids, 0))

    def answer(self, entry, outcome) -> None:
        if not entry[2]:
            return
        entry[2] = False
        if isinstance(outcome, RinglogError):
            self.sender.on_error(self.queue, entry[0], outcome, self.now_s)
        else:
            self.sender.on_reply(self.queue, entry[0], outcome)

    def work(self) -> None:
        """The node takes the oldest frame."""
        if not self.wire:
            return
        entry = self.wire.pop(0)
        if self.chance.random() < 0.15:
            self.answer(entry, Overloaded("busy"))
            return
        if self.fatal and self.chance.random() < 0.05:
            self.answer(entry, BatchTooLarge("no"))
            return
        try:
            outcome = self.node.append(entry[1])
        except OutOfOrderSequence as error:
            outcome = error
        self.answer(entry, outcome)

    def lose(self) -> None:
        """The connection breaks: of the frames on it, some were done and none will be answered."""
        for _ in range(self.chance.randint(0, len(self.wire))):
            entry = self.wire.pop(0)
            try:
                self.node.append(entry[1])
            except OutOfOrderSequence:
                assert entry[0].sequence != 0 or self.queue.failed
            self.answer(entry, NodeUnavailable("lost"))
        for entry in self.wire:
            self.answer(entry, NodeUnavailable("lost"))
        self.wire.clear()

    def delay(self) -> None:
        """The oldest request times out, and its frame still waits at the node."""
        for entry in self.wire:
            if entry[2]:
                self.answer(entry, RequestTimeout("late"))
                return

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.now_s += self.chance.random() * 0.1
            what = self.chance.random()
            if what < 0.25:
                if self.chance.random() < 0.5:
                    self.produce(self.chance.randint(1, 12))
                else:
                    self.produce_few(self.chance.randint(1, 3))
            elif what < 0.8:
                self.work()
            elif what < 0.85:
                self.lose()
            elif what < 0.92:
                self.delay()
            self.pump()

    def settle(self) -> None:
        """No more faults: everything gets an answer."""
        self.sender.flushing = 1
        self.accumulator.touched.append(self.queue)
        for _ in range(100_000):
            if all(future.done() for _, future in self.futures):
                return
            self.now_s += 0.05
            self.pump()
            while self.wire:
                entry = self.wire.pop(0)
                try:
                    outcome = self.node.append(entry[1])
                except OutOfOrderSequence as error:
                    outcome = error
                self.answer(entry, outcome)
        raise AssertionError("records are stuck")

    def check_nothing_twice_and_in_order(self) -> None:
        order = {value: i for i, (value, _) in enumerate(self.futures)}
        places = [order[value] for value in self.node.log]
        assert len(set(places)) == len(places), "a record stands twice"
        assert places == sorted(places), "records changed places"
        for value, future in self.futures:
            if future.exception(0) is None:
                assert self.node.log[future.result(0).offset] == value


@pytest.mark.parametrize("seed", range(150))
def test_all_records_arrive_once_and_in_order(seed):
    sim = Simulation(seed)
    sim.run(150)
    sim.settle()
    assert [value for value, _ in sim.futures] == sim.node.log
    sim.check_nothing_twice_and_in_order()
    assert sim.accumulator.bytes_held == 0


@pytest.mark.parametrize("seed", range(150))
def test_records_that_fail_neither_jam_nor_double_nor_move_the_others(seed):
    sim = Simulation(seed, fatal=True, delivery_timeout_ms=1500)
    sim.run(200)
    sim.settle()
    sim.check_nothing_twice_and_in_order()
    errors = {type(future.exception(0)) for _, future in sim.futures}
    assert errors <= {type(None), BatchTooLarge, DeliveryTimeout}
    assert sim.accumulator.bytes_held == 0


def test_without_idempotence_batches_carry_no_producer():
    sim = Simulation(1, enable_idempotence=False)
    sim.produce(3)
    sim.pump()
    assert not sim.sender.needs_producer
    assert check(sim.wire[0][1])["producer_id"].tolist() == [-1]


def test_a_batch_waits_for_linger_and_leaves_when_it_is_over():
    sim = Simulation(1, linger_ms=20, enable_idempotence=False)
    sim.produce(1)
    sim.pump()
    assert sim.wire == []
    assert sim.sender.next_time_s() == pytest.approx(0.02)
    sim.now_s = 0.02
    sim.pump()
    assert len(sim.wire) == 1


def test_a_flush_ends_every_linger():
    sim = Simulation(1, linger_ms=10_000, enable_idempotence=False)
    sim.produce(1)
    sim.sender.flushing = 1
    sim.pump()
    assert len(sim.wire) == 1


def test_the_first_batch_under_a_producer_id_travels_alone():
    sim = Simulation(3)
    sim.sender.on_producer(ProducerId(5, 0))
    sim.produce(60)
    sim.pump()
    assert len(sim.wire) == 1
    sim.answer(sim.wire.pop(0), ProduceReply(0, -1, 0, 2))
    sim.pump()
    assert len(sim.queue.in_flight) == 5


def test_a_record_fails_when_its_delivery_timeout_is_over_and_not_before():
    sim = Simulation(1, delivery_timeout_ms=1000, enable_idempotence=False)
    sim.produce(1)
    sim.pump()
    sim.now_s = 0.9
    sim.answer(sim.wire.pop(0), RequestTimeout("late"))
    assert not sim.futures[0][1].done()
    sim.now_s = 1.0
    sim.pump()
    assert isinstance(sim.futures[0][1].exception(0), DeliveryTimeout)


def test_a_record_that_could_never_leave_fails_when_its_time_is_over():
    sim = Simulation(1, delivery_timeout_ms=1000)
    sim.produce(1)
    for sim.now_s in (0.0, 0.5, 1.0, 1.1):
        sim.sender.step(sim.now_s)  # nobody gives it a producer id
    assert isinstance(sim.futures[0][1].exception(0), DeliveryTimeout)


def test_when_a_topic_was_deleted_all_that_is_on_its_way_there_fails_at_once():
    sim = Simulation(
        1, linger_ms=50, batch_size=4096, max_in_flight_requests_per_connection=2, enable_idempotence=False
    )
    for count in (5, 5, 5, 1):  # two batches in flight, one ready, one open
        sim.produce(count)
        if count > 1:
            sim.accumulator.close(sim.queue)
    sim.pump()
    assert (len(sim.wire), len(sim.queue.ready), sim.queue.open is None) == (2, 1, False)
    gone = UnknownTopic("deleted")
    sim.sender.on_topic_gone(sim.topic.queues, gone)
    sim.pump()
    failed = [future for _, future in sim.futures if future.done()]
    assert failed == [future for _, future in sim.futures[10:]]
    sim.answer(sim.wire.pop(0), ProduceReply(0, -1, 0, 2))
    sim.answer(sim.wire.pop(0), StaleMetadata("not here"))
    assert [future.result(0).offset for _, future in sim.futures[:5]] == list(range(5)), "taken before"
    assert {future.exception(0) for _, future in sim.futures[5:]} == {gone}
    sim.produce(1)
    sim.pump()
    assert sim.futures[-1][1].exception(0) is gone, "what comes late does not stay behind"
    assert not sim.accumulator.unfinished and sim.accumulator.bytes_held == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_topic_may_be_deleted_at_any_time(seed):
    sim = Simulation(seed)
    sim.run(30 + seed * 3)
    sim.sender.on_topic_gone(sim.topic.queues, UnknownTopic("deleted"))
    sim.produce(3)
    sim.pump()
    while sim.wire:
        sim.answer(sim.wire.pop(0), StaleMetadata("not here"))
    sim.pump()
    assert all(future.done() for _, future in sim.futures)
    assert not sim.accumulator.unfinished and not len(sim.queue) and sim.accumulator.bytes_held == 0


def test_retries_are_paced_by_a_back_off_that_grows():
    sim = Simulation(1, enable_idempotence=False, retry_backoff_ms=100, retry_backoff_max_ms=250)
    sim.produce(1)
    sim.pump()
    pauses = []
    for _ in range(4):
        sim.answer(sim.wire.pop(0), Overloaded("busy"))
        began_s = sim.now_s
        while not sim.wire:
            sim.now_s += 0.01
            sim.pump()
        pauses.append(round(sim.now_s - began_s, 2))
    assert pauses == pytest.approx([0.1, 0.2, 0.25, 0.25], abs=0.011)


def test_retries_0_fails_a_record_with_the_error_itself():
    sim = Simulation(1, retries=0, enable_idempotence=False)
    sim.produce(1)
    sim.pump()
    sim.answer(sim.wire.pop(0), Overloaded("busy"))
    assert isinstance(sim.futures[0][1].exception(0), Overloaded)


def test_a_batch_that_is_too_large_fails_only_its_own_records():
    sim = Simulation(1)
    sim.sender.on_producer(ProducerId(5, 0))
    sim.produce(1)
    sim.pump()
    sim.answer(sim.wire.pop(0), BatchTooLarge("no"))
    sim.produce(1)
    sim.settle()
    assert isinstance(sim.futures[0][1].exception(0), BatchTooLarge)
    assert sim.futures[1][1].result(0).offset == 0


def test_a_few_records_wait_while_one_batch_is_in_flight_and_leave_together():
    sim = Simulation(1, batch_size=64 * limits.KIB)
    sim.sender.on_producer(ProducerId(1, 0))
    for _ in range(10):
        sim.produce(1)
        sim.pump()
    assert [len(decode(data)) for _, data, _ in sim.wire] == [1]
    sim.answer(sim.wire[0], sim.node.append(sim.wire.pop(0)[1]))
    sim.pump()
    assert [len(decode(data)) for _, data, _ in sim.wire] == [9]


def test_much_does_not_wait_for_what_is_in_flight():
    sim = Simulation(1, batch_size=4 * limits.KIB)
    sim.sender.on_producer(ProducerId(1, 0))
    sim.produce(1)
    sim.pump()
    sim.answer(sim.wire[0], sim.node.append(sim.wire.pop(0)[1]))
    for _ in range(3):
        sim.produce(10)
        sim.pump()
    assert len(sim.wire) > 1


def test_a_flush_does_not_let_a_few_records_wait():
    sim = Simulation(1, batch_size=64 * limits.KIB)
    sim.sender.on_producer(ProducerId(1, 0))
    sim.produce(1)
    sim.pump()
    sim.answer(sim.wire[0], sim.node.append(sim.wire.pop(0)[1]))
    sim.sender.flushing = 1
    for _ in range(2):
        sim.produce(1)
        sim.pump()
    assert len(sim.wire) == 2


def test_records_without_a_key_go_round_the_partitions_also_when_batches_are_small():
    settings = ProducerSettings(batch_size=1024)
    accumulator = Accumulator(settings)
    partitions = [PartitionMetadata(index, index, 0, 0) for index in range(3)]
    topic = TopicQueues(TopicMetadata("t", "", 1, partitions, {}), 5)
    used = []
    for _ in range(30):
        future = accumulator.append(topic, None, (b"x" * 200, None, 0, None), Acks.ALL, 0.0)
        used.append(future[0].partition)
        accumulator.close(topic.queues[used[-1]])  # as linger 0 does
    assert {used.count(index) for index in range(3)} == {10}
    assert max(sum(1 for _ in same) for _, same in itertools.groupby(used)) < 5


def _sent_without_acks(simulation: Simulation) -> tuple[RecordFuture, list]:
    record = (b"loose", None, 0, None)
    future = simulation.accumulator.append(simulation.topic, simulation.queue, record, Acks.NONE, 0.0)
    assert future is not None
    return future, simulation.sender.step(1.0)


def test_a_batch_with_acks_0_is_done_when_it_leaves_and_takes_its_place_until_it_is_received():
    simulation = Simulation(1, linger_ms=0)
    future, [(queue, batch)] = _sent_without_acks(simulation)
    simulation.sender.let_go(batch)
    assert future.result(0).durability == "none"
    assert queue.in_flight == [batch]
    assert simulation.accumulator.unfinished
    simulation.sender.on_reply(queue, batch, ProduceReply(0, -1, 0, 0))
    assert not queue.in_flight
    assert not simulation.accumulator.unfinished
    assert future.result(0).offset == -1


@pytest.mark.parametrize(
    ("error", "again"),
    [(PartitionBusy("behind"), True), (Overloaded("behind"), True), (NodeUnavailable("lost"), False)],
)
def test_a_batch_with_acks_0_goes_again_only_when_it_certainly_was_not_taken(error, again):
    simulation = Simulation(1, linger_ms=0)
    future, [(queue, batch)] = _sent_without_acks(simulation)
    simulation.sender.let_go(batch)
    simulation.sender.on_error(queue, batch, error, 1.0)
    assert [batch for _, batch in simulation.sender.step(100.0)] == ([batch] if again else [])
    assert bool(simulation.accumulator.unfinished) is again
    assert future.exception(0) is None, "nobody is told"
