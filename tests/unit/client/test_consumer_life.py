"""A Consumer among threads, signals, forks and closes loses no record, and outlives nobody."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref

import pytest

from ringlog.errors import ClientClosed, InvalidRequest, UnknownTopic
from tests.support.model_reading import TP, reading
from tests.support.node import wait_for


def test_ctrl_c_interrupts_a_poll(broker):
    consumer = reading()
    timer = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(timeout_ms=20_000)
    assert time.monotonic() - begun < 10
    timer.join()


def test_an_interrupt_between_taking_and_returning_loses_nothing(broker, monkeypatch):
    broker.append(0, 4)
    consumer = reading()
    advance = consumer._driver.advance

    def interrupted(*args) -> None:
        advance(*args)
        raise KeyboardInterrupt

    for poll in (consumer.poll, consumer.poll_arrow):
        monkeypatch.setattr(consumer._driver, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            poll(0)
    monkeypatch.setattr(consumer._driver, "advance", advance)
    assert [record.offset for record in consumer.poll(0)] == [0, 1, 2, 3]


def test_records_that_a_poll_has_in_its_hands_are_not_polled_for_those_who_commit_meanwhile(
    broker, monkeypatch
):
    for partition in range(3):
        broker.append(partition, 10)
    consumer = reading(*[("t", partition) for partition in range(3)])
    seen = []
    next_head = consumer._driver.next_head

    def look_in_the_middle():
        seen.append(sum(consumer._user_positions(consumer.assignment()).values()))
        return next_head()

    monkeypatch.setattr(consumer._driver, "next_head", look_in_the_middle)
    assert len(consumer.poll(0)) == 30
    assert seen and set(seen) == {0}
    assert sum(consumer._user_positions(consumer.assignment()).values()) == 30


def test_a_closed_consumer_says_so(broker):
    with reading() as consumer:
        consumer.poll(0)
    consumer.close()
    for use in (
        lambda: consumer.poll(0),
        lambda: consumer.poll_arrow(0),
        lambda: next(consumer),
        lambda: consumer.assign([("t", 0)]),
        lambda: consumer.seek(("t", 0), 1),
        lambda: consumer.seek_to_end(),
        lambda: consumer.position(("t", 0)),
        lambda: consumer.pause(("t", 0)),
    ):
        with pytest.raises(ClientClosed):
            use()


def test_a_close_ends_the_poll_of_another_thread(broker):
    consumer = reading()
    raised = []

    def poll():
        try:
            consumer.poll(600_000)
        except ClientClosed as error:
            raised.append(error)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    wait_for("the poll", lambda: consumer._driver._changed._waiters, within_s=30)
    consumer.close()
    thread.join(30)
    assert raised


def test_nobody_but_its_user_holds_a_consumer(broker):
    consumer = reading()
    gone = weakref.ref(consumer)
    driver = weakref.ref(consumer._driver)
    consumer._connection._ticks.clear()  # the real connection holds ticks weakly
    del consumer
    gc.collect()
    assert gone() is None
    assert driver() is None


def test_the_child_of_a_fork_reads_on_where_its_parent_was(broker):
    broker.append(0, 4)
    consumer = reading()
    consumer.poll(0, max_records=1)
    locked = threading.Event()
    release = threading.Event()

    def busy(fetcher) -> None:
        locked.set()
        release.wait(5)

    # Another thread is in the middle of something when the fork comes: the fork waits for it.
    thread = threading.Thread(target=consumer._driver.look, args=[busy])
    thread.start()
    locked.wait()
    threading.Timer(0.1, release.set).start()
    child = os.fork()
    if child == 0:
        offsets = [record.offset for record in consumer.poll(0)]
        consumer.seek(TP, 3)
        os._exit(0 if offsets == [1, 2, 3] and consumer.poll(0)[0].offset == 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()
    assert [record.offset for record in consumer.poll(0)] == [1, 2, 3]


def test_a_second_thread_is_refused_while_one_polls_and_nothing_is_lost(broker):
    broker.append(0, 10)
    consumer = reading()
    refused = []

    def meddle():
        for call in (lambda: consumer.poll(0), lambda: next(consumer), lambda: consumer.seek(TP, 0)):
            with pytest.raises(InvalidRequest, match="another thread"):
                call()
            refused.append(call)

    real = consumer._poller.records

    def interrupted(*arguments):
        other = threading.Thread(target=meddle)
        other.start()
        other.join()
        return real(*arguments)

    consumer._poller.records = interrupted
    assert [record.offset for record in consumer.poll(0)] == list(range(10))
    assert len(refused) == 3
    consumer._poller.records = real
    assert consumer.poll(0) == []  # and others may have their turn afterwards


def test_every_poll_says_that_the_topic_was_deleted_until_it_is_there_again(broker):
    """Nothing but the polls themselves stirs the connection here."""
    broker.append(0, 2)
    consumer = reading(retry_backoff_ms=1, retry_backoff_max_ms=2)
    assert len(consumer.poll(0)) == 2
    broker.delete()
    consumer._connection.wake()
    for _ in range(5):
        with pytest.raises(UnknownTopic, match="there is no t-0"):
            consumer.poll(5)
    broker.make_anew()
    broker.append(0, 1)

    def comes_back() -> bool:
        try:
            return [record.offset for record in consumer.poll(5)] == [0]
        except UnknownTopic:
            return False

    wait_for("the topic that was made anew", comes_back, within_s=10)


def test_a_loop_over_a_consumer_ends_with_the_error_of_a_deleted_topic(broker):
    broker.append(0, 1)
    consumer = reading()
    assert next(consumer).offset == 0
    broker.delete()
    consumer._connection.wake()
    with pytest.raises(UnknownTopic):
        next(consumer)
