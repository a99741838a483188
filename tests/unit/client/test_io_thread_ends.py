"""A bug that ends a client's I/O thread: every future fails with it, every wait ends, the next call raises it."""

from __future__ import annotations

import sys
import threading
import time

import pytest
import zmq

from ringlog import Consumer, Producer
from ringlog.client.loop import Sockets
from ringlog.errors import CorruptFrame, InvariantBroken
from ringlog.net.framing import Api

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


def break_io_thread(client) -> None:
    """The next pass of the thread meets a bug."""
    client._connection.on_tick(lambda now_s: 1 // 0)


def keep_silent(node) -> None:
    """Let no produce request be answered."""
    node.before = lambda header, body: b"" if header.api_key == Api.PRODUCE else None


def test_records_in_flight_waiting_and_open_all_fail_with_the_bug(node):
    producer = Producer(node.bootstrap, linger_ms=60_000, batch_size=1024, delivery_timeout_ms=120_000)
    producer.produce("t", b"first", partition=0)
    keep_silent(node)
    futures = [producer.produce("t", bytes(400), partition=0) for _ in range(50)]
    many = producer.produce_many("t", [b"x"] * 10, partition=1)
    told: list[object] = []
    futures[-1].add_done_callback(told.append)
    break_io_thread(producer)
    for future in futures:
        with pytest.raises(InvariantBroken, match="ZeroDivisionError"):
            future.result(5)
    with pytest.raises(InvariantBroken) as caught:
        many.result(5)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert told == [futures[-1]]


def test_every_later_call_of_a_producer_raises_the_bug_and_leaves_no_future_behind(node):
    producer = Producer(node.bootstrap, linger_ms=60_000)
    producer.produce("t", b"first")
    break_io_thread(producer)
    _wait_ended(producer)
    for _ in range(3):  # a second record must not find a batch that the first one left open
        with pytest.raises(InvariantBroken, match="ZeroDivisionError"):
            producer.produce("t", b"later")
    calls = [
        lambda: producer.produce_many("t", [b"later"]),
        lambda: producer.produce("another topic", b"later"),
        lambda: producer.flush(5),
        lambda: producer.close(5),
    ]
    for call in calls:
        with pytest.raises(InvariantBroken, match="ZeroDivisionError"):
            call()
    assert not producer._accumulator.unfinished
    producer.close()  # it is closed by now


def test_those_who_wait_for_room_or_in_flush_are_woken(node):
    producer = Producer(
        node.bootstrap, linger_ms=0, batch_size=1024, buffer_memory=4000, max_block_ms=60_000, acks="all"
    )
    producer.produce("t", b"first", partition=0).result(5)
    keep_silent(node)
    ends: dict[str, BaseException] = {}

    def wait_for_room() -> None:
        while True:
            producer.produce("t", bytes(500), partition=0)

    def note(name: str, work) -> None:
        try:
            work()
        except InvariantBroken as error:
            ends[name] = error

    waiters = [threading.Thread(target=note, args=("room", wait_for_room))]
    waiters[0].start()
    time.sleep(0.2)
    waiters.append(threading.Thread(target=producer.flush, args=(60,)))
    waiters[1].start()
    time.sleep(0.2)
    break_io_thread(producer)
    for waiter in waiters:
        waiter.join(10)
        assert not waiter.is_alive()
    assert "ZeroDivisionError" in str(ends["room"])


def test_a_poll_that_waits_raises_the_bug_and_so_does_the_next(node):
    def no_fetches(header, body):
        return b"" if header.api_key == Api.FETCH else None

    node.create("t", 1)
    node.before = no_fetches
    consumer = Consumer(bootstrap=node.bootstrap)
    consumer.assign([("t", 0, 0)])
    threading.Timer(0.3, break_io_thread, (consumer,)).start()
    for _ in range(2):
        began_s = time.monotonic()
        with pytest.raises(InvariantBroken, match="ZeroDivisionError"):
            consumer.poll(timeout_ms=30_000)
        assert time.monotonic() - began_s < 15
    with pytest.raises(InvariantBroken):
        consumer.poll(timeout_ms=0)


def test_a_client_that_gets_no_sockets_says_so(node, monkeypatch):
    def no_sockets(self, endpoint):
        raise zmq.ZMQError(24)

    monkeypatch.setattr(Sockets, "dealer", no_sockets)
    with pytest.raises(InvariantBroken, match="Too many open files"):
        Producer(node.bootstrap).produce("t", b"v")


def test_a_callback_that_ends_its_thread_does_not_end_the_clients(node):
    with Producer(node.bootstrap) as producer:
        done = threading.Event()

        def leave(future) -> None:
            done.set()
            sys.exit(1)

        producer.produce("t", b"v", on_delivery=leave).result(5)
        assert done.wait(5)
        assert producer.produce("t", b"again").result(5).durability == "flushed"


def test_a_reply_that_cannot_be_read_fails_its_request_alone(node):
    with Producer(node.bootstrap) as producer:
        producer.produce("t", b"first").result(5)
        node.before = lambda header, body: b"short" if header.api_key == Api.PRODUCE else None
        with pytest.raises(CorruptFrame, match="5 bytes"):
            producer.produce("t", b"v").result(5)
        node.before = lambda header, body: None
        assert producer.produce("t", b"again").result(5).durability == "flushed"


def _wait_ended(producer: Producer) -> None:
    until_s = time.monotonic() + 5
    thread = producer._connection._loop._thread
    while thread.is_alive():
        assert time.monotonic() < until_s
        time.sleep(0.01)
