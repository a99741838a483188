"""When a sender looks at its queues again: few timers however much is sent, and retries that do not march in step."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace

import pytest

from ringlog import Producer
from ringlog.client import connection
from ringlog.client.accumulator import Accumulator, TopicQueues
from ringlog.client.sender import Send, Sender
from ringlog.client.settings import ClientSettings, ProducerSettings
from ringlog.errors import Overloaded, RequestTimeout
from ringlog.net.framing import Acks, Api
from ringlog.net.messages import (
    InitProducerReply,
    InitProducerRequest,
    PartitionMetadata,
    ProduceReply,
    TopicMetadata,
)
from ringlog.records.builder import BatchBuilder
from tests.support.router import RouterNode

PARTITIONS = 20


class Rig:
    """A sender of one topic, its clock, and what it has sent."""

    def __init__(self, jitter=lambda: 1.0, **settings) -> None:
        self.settings = ProducerSettings(batch_size=1024, enable_idempotence=False, **settings)
        self.accumulator = Accumulator(self.settings)
        self.sender = Sender(self.settings, self.accumulator, jitter)
        places = [PartitionMetadata(i, i, 0, 0) for i in range(PARTITIONS)]
        self.topic = TopicQueues(TopicMetadata("t", "", 1, places, {}), 1)
        self.now_s = 0.0
        self.sent: list[Send] = []

    def produce(self, partition: int, value: bytes) -> None:
        queue = self.topic.queues[partition]
        self.accumulator.append(self.topic, queue, (value, None, 0, None), Acks.ALL, self.now_s)

    def put(self, partition: int) -> None:
        """A batch that was made whole."""
        queue = self.topic.queues[partition]
        made = BatchBuilder(tuple, None, bytes_target=1024)
        made.append(b"whole", None, 0, None)
        self.accumulator.put(queue, made.finish(), self.accumulator.new_state(queue), Acks.ALL, self.now_s)

    def step(self, seconds: float) -> None:
        self.now_s += seconds
        self.sent += self.sender.step(self.now_s)

    def answer(self, at: int) -> None:
        queue, batch = self.sent.pop(at)
        self.sender.on_reply(queue, batch, ProduceReply(0, -1, 0, 2))


@pytest.mark.parametrize("linger_ms", [0, 1, 5])
def test_timers_do_not_gather_while_small_batches_are_sent(linger_ms):
    rig, chance = Rig(linger_ms=linger_ms), random.Random(linger_ms)
    most = 0
    for _ in range(20_000):
        rig.produce(chance.randrange(PARTITIONS), b"x" * chance.choice((10, 600)))
        rig.step(chance.choice((0.0, 0.0005, 0.002, 0.06)))
        while len(rig.sent) > chance.randint(0, PARTITIONS):
            rig.answer(chance.randrange(len(rig.sent)))
        most = max(most, len(rig.sender._timers))
    assert most <= 2 * PARTITIONS + 65


@pytest.mark.parametrize("linger_ms", [0, 1])
def test_timers_of_delivery_timeouts_do_not_gather_when_earlier_ones_take_their_place(linger_ms):
    """A whole batch waits behind one in flight, until its delivery timeout; then a small one does, for a moment."""
    rig = Rig(linger_ms=linger_ms)
    most = 0
    for _ in range(1_000):
        rig.produce(0, b"in flight")
        rig.step(0.002)
        rig.put(0)
        rig.step(0.0)
        rig.produce(0, b"small")
        rig.step(0.0)
        while rig.sent:
            rig.answer(0)
            rig.step(0.06)
        most = max(most, len(rig.sender._timers))
    assert not rig.accumulator.unfinished
    assert most <= 2 + 65


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_what_waits_is_sent_by_time_alone(linger_ms):
    """However timers were replaced by earlier ones: nobody but the clock wakes the sender."""
    rig, chance = Rig(linger_ms=linger_ms), random.Random(7)
    for _ in range(2_000):
        rig.produce(chance.randrange(PARTITIONS), b"x" * chance.choice((10, 600)))
        rig.step(chance.choice((0.0, 0.002, 0.06)))
        while len(rig.sent) > chance.randint(0, PARTITIONS):
            rig.answer(chance.randrange(len(rig.sent)))
    while rig.accumulator.unfinished:
        while rig.sent:
            rig.answer(0)
        next_s = rig.sender.next_time_s()
        assert rig.accumulator.touched or next_s is not None, (
            "something waits, and nothing would wake the sender"
        )
        rig.step(0.0 if rig.accumulator.touched else max(0.0, next_s - rig.now_s))
    assert rig.now_s < 200


def test_a_batch_that_is_opened_behind_one_in_flight_leaves_with_its_answer():
    rig = Rig()
    rig.produce(0, b"in flight")
    rig.step(0.0)
    rig.produce(0, b"behind it")
    assert not rig.accumulator.is_urgent, "nobody is to be woken for what must wait"
    rig.answer(0)
    rig.step(0.0)
    assert len(rig.sent) == 1


def test_a_large_batch_behind_one_in_flight_leaves_at_once():
    rig = Rig()
    rig.topic.queues[0]._in_flight_max = 2
    rig.produce(0, b"in flight")
    rig.step(0.0)
    rig.produce(0, b"x" * rig.settings.few_bytes)
    assert rig.accumulator.is_urgent
    rig.step(0.0)
    assert len(rig.sent) == 2


@pytest.mark.parametrize(
    ("pauses_s", "leave"),
    [
        pytest.param([0.001], 2, id="one by one: the node is faster than its sender"),
        pytest.param([0.0001], 1, id="one upon the other: they are worth gathering"),
        pytest.param([0.006], 1, id="the node is slow: it is not given more requests"),
        pytest.param([0.001, 0.001, 0.001], 3, id="three at most"),
    ],
)
def test_a_small_batch_follows_those_in_flight_where_waiting_gains_nothing(pauses_s, leave):
    rig = Rig()
    rig.topic.queues[0]._in_flight_max = 5
    rig.produce(0, b"first")
    rig.step(0.0)
    for pause_s in pauses_s:
        rig.now_s += pause_s
        rig.produce(0, b"next")
        assert rig.accumulator.is_urgent == (len(rig.sent) < leave), "who need not wait wakes the sender"
        rig.step(0.0)
    assert len(rig.sent) == leave
    while rig.sent:
        rig.answer(0)
        rig.step(0.0)
    assert not rig.accumulator.unfinished


@pytest.mark.parametrize("jitter", [0.8, 1.0, 1.2])
def test_a_retry_waits_by_its_jitter_longer_or_shorter(jitter):
    rig = Rig(jitter=lambda: jitter, retry_backoff_ms=100)
    rig.produce(0, b"v")
    rig.step(0.0)
    queue, batch = rig.sent.pop()
    rig.sender.on_error(queue, batch, Overloaded("busy"), rig.now_s)
    rig.step(0.0)
    assert not rig.sent
    rig.step(0.1 * jitter - 0.001)
    assert not rig.sent
    rig.step(0.002)
    assert len(rig.sent) == 1


def test_producers_do_not_retry_in_step():
    with RouterNode() as node, Producer(node.bootstrap) as producer:
        drawn = {producer._sender._jitter() for _ in range(200)}
    assert len(drawn) > 100
    assert 0.8 <= min(drawn) < 0.9 < 1.1 < max(drawn) <= 1.2


def test_calls_do_not_retry_in_step(monkeypatch):
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=pauses.append)
    monkeypatch.setattr(connection, "time", clock)

    def busy(header, body):
        if header.api_key == Api.INIT_PRODUCER:
            raise Overloaded("busy")

    with RouterNode() as node:
        node.before = busy
        made = connection.Connection(
            ClientSettings(bootstrap=node.bootstrap, retry_backoff_ms=50, retry_backoff_max_ms=50)
        )
        with pytest.raises((Overloaded, RequestTimeout)):
            made.call(Api.INIT_PRODUCER, InitProducerRequest(), InitProducerReply, timeout_s=0.5)
        made.close()
    assert len(pauses) > 5
    assert len(set(pauses)) > 5, "all retries wait equally long"
    assert all(0.04 <= pause_s <= 0.06 for pause_s in pauses)
