"""A Consumer, on a connection that is a model of a node."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
import time
import weakref

import pytest

from ringlog.client import consumer as module
from ringlog.client import fetch_driver
from ringlog.client.commits import check_offsets
from ringlog.client.consumer import Consumer
from ringlog.client.consumer_settings import ConsumerSettings
from ringlog.client.offsets import OffsetAndTimestamp
from ringlog.client.settings import check_topic_name
from ringlog.controller.commands import create_topic
from ringlog.controller.image import MetadataImage
from ringlog.errors import ClientClosed, CorruptBatch, InvalidRequest, OffsetOutOfRange, UnknownTopic
from ringlog.model import TopicPartition
from ringlog.net.messages import EARLIEST, LATEST, CreateTopicRequest
from tests.support.fake_connection import FakeConnection
from tests.support.model_broker import ModelBroker, value_of
from tests.support.node import wait_for

TP = TopicPartition("t", 0)


@pytest.fixture
def broker(monkeypatch):
    broker = ModelBroker(partitions=3, lanes=2)
    monkeypatch.setattr(FakeConnection, "broker", broker, raising=False)
    monkeypatch.setattr(module, "Connection", FakeConnection)
    return broker


def reading(*partitions, **settings) -> Consumer:
    consumer = Consumer(auto_offset_reset="earliest", **settings)
    consumer.assign(partitions or [TP])
    return consumer


def test_without_a_group_nothing_is_committed_or_subscribed():
    consumer = Consumer()
    for call in (lambda: consumer.subscribe(["t"]), consumer.commit, lambda: consumer.committed(("t", 0))):
        with pytest.raises(InvalidRequest, match="there is no group"):
            call()


@pytest.mark.parametrize("wrong", ["", "x" * 300, 7, "\ud800"])
def test_a_group_has_a_name(wrong):
    with pytest.raises(InvalidRequest, match="group_id"):
        Consumer(group_id=wrong)


@pytest.mark.parametrize("name", ["café", "", "a b", ".", "..", "x" * 201, "orders/eu"])
def test_a_name_that_no_topic_can_have_is_refused_with_the_rule(broker, name):
    with pytest.raises(InvalidRequest, match=r"topic '.*': use 1 to 200 of the letters a-z A-Z 0-9 \. _ -"):
        Consumer(group_id="g").subscribe(["orders", name])
    with pytest.raises(InvalidRequest, match=r"use 1 to 200|a partition is named like"):
        Consumer().assign([(name, 0)])
    with pytest.raises(InvalidRequest):  # which is why
        create_topic(MetadataImage(), CreateTopicRequest(name), shards=1, default_partitions=1)


@pytest.mark.parametrize("name", ["orders", "a.b_C-9", "x" * 200, "__offsets"])
def test_a_name_that_a_topic_can_have_is_taken(broker, name):
    check_topic_name(name)
    create_topic(MetadataImage(), CreateTopicRequest(name), shards=1, default_partitions=1, internal=True)


@pytest.mark.parametrize("wrong", [{"topics": [7]}, {"topics": ["\ud800"]}, {"pattern": "\ud800-*"}])
def test_what_is_subscribed_to_has_a_name(broker, wrong):
    with pytest.raises(InvalidRequest, match="topic"):
        Consumer(group_id="g").subscribe(**wrong)


@pytest.mark.parametrize("wrong", [-1, 2**63, 2**70, True, 1.5, "3", None])
def test_an_offset_that_no_log_could_have_is_refused_and_the_consumer_lives(broker, wrong):
    broker.append(0, 3)
    consumer = reading()
    for call in (
        lambda: consumer.seek(TP, wrong),
        lambda: consumer.assign([(*TP, wrong)]),
        lambda: check_offsets({TP: wrong}),
    ):
        with pytest.raises(InvalidRequest, match="an offset is a number"):
            call()
    with pytest.raises(InvalidRequest, match="a time is milliseconds"):
        consumer.offsets_for_times({TP: wrong})
    assert len(consumer.poll(0)) == 3
    consumer.seek(TP, 2**63 - 1)


@pytest.mark.parametrize("wrong", [(1, "\ud800"), (1, 7), (1, "x" * 5000), (1, "x", 2)])
def test_what_cannot_be_noted_with_a_commit_is_refused(wrong):
    with pytest.raises(InvalidRequest):
        check_offsets({TP: wrong})


def test_polling_returns_at_most_what_was_asked_for(broker):
    broker.append(0, 700)
    consumer = reading()
    assert len(consumer.poll(0)) == 500
    assert len(consumer.poll(0, max_records=3)) == 3
    assert [record.offset for record in consumer.poll(0, max_records=None)] == list(range(503, 700))
    assert consumer.poll(0) == []
    assert consumer.position(TP) == 700


def test_a_poll_gathers_records_of_several_partitions(broker):
    for i in range(3):
        broker.append(i, 2)
    consumer = reading(("t", 0), ("t", 1), ("t", 2))
    assert sorted((r.partition, r.offset) for r in consumer.poll(0)) == list(
        itertools.product(range(3), range(2))
    )


def test_a_poll_that_finds_nothing_waits_as_long_as_it_was_told(broker):
    consumer = reading()
    begun = time.monotonic()
    assert consumer.poll(timeout_ms=60) == []
    assert consumer.poll_arrow(timeout_ms=60) is None
    assert 0.1 < time.monotonic() - begun < 5


def test_arrow_batches_hold_what_records_would(broker):
    broker.append(0, 5)
    broker.append(0, 5)
    consumer = reading()
    first = consumer.poll_arrow(0, max_records=7)
    assert first["value"].to_pylist() == [value_of(0, i) for i in range(7)]
    assert first["topic"].to_pylist() == ["t"] * 7
    assert consumer.position(TP) == 7
    assert [record.offset for record in consumer.poll(0)] == [7, 8, 9]


def test_an_offset_can_be_given_with_the_assignment(broker):
    broker.append(0, 5)
    assert [record.offset for record in reading(("t", 0, 3)).poll(0)] == [3, 4]


def test_a_partition_that_is_not_there_cannot_be_assigned(broker):
    consumer = Consumer()
    with pytest.raises(UnknownTopic, match="partitions 0 to 2"):
        consumer.assign([("t", 7)])
    with pytest.raises(UnknownTopic):
        consumer.assign([("u", 0)])
    for wrong in ("t", ("t", -1), ("t", "0"), ("t", 0, -1), ("", 0)):
        with pytest.raises(InvalidRequest):
            consumer.assign([wrong])
    assert consumer.assignment() == set()


def test_latest_is_fixed_when_assign_returns(broker):
    broker.append(0, 5)
    consumer = Consumer()
    consumer.assign([TP])
    broker.append(0, 1)
    consumer._connection.wake()
    assert [record.offset for record in consumer.poll(0)] == [5]


def test_seeks_move_the_position(broker):
    broker.append(0, 5)
    consumer = reading()
    consumer.seek(TP, 4)
    assert [record.offset for record in consumer.poll(0)] == [4]
    consumer.seek_to_beginning()
    assert consumer.position(TP) == 0
    assert len(consumer.poll(0)) == 5
    consumer.seek_to_beginning(("t", 0))
    consumer.seek_to_end(("t", 0))
    assert consumer.position(TP) == 5
    with pytest.raises(InvalidRequest, match="not assigned"):
        consumer.seek(("t", 1), 0)


def test_lag_counts_from_the_position_and_is_never_negative(broker):
    broker.append(0, 5)
    consumer = reading()
    assert consumer.lag(TP) == 5
    consumer.poll(0, max_records=2)
    assert consumer.lag(TP) == 3
    beyond = Consumer(auto_offset_reset="error")
    beyond.assign([("t", 0, 100)])
    assert beyond.lag(TP) == 0


def test_offsets_are_found_by_time_and_at_both_ends(broker):
    broker.append(0, 5)
    broker.append(0, 5)
    broker.truncate(0, 5)
    consumer = Consumer()
    assert consumer.beginning_offsets([TP, ("t", 1)]) == {TP: 5, TopicPartition("t", 1): 0}
    assert consumer.end_offsets([TP]) == {TP: 10}
    assert consumer.offsets_for_times({TP: 1007, ("t", 1): 1}) == {
        TP: OffsetAndTimestamp(7, 1007),
        TopicPartition("t", 1): None,
    }
    assert consumer.partitions_for_topic("t") == {0, 1, 2}


def test_a_paused_partition_gives_nothing_until_it_is_resumed(broker):
    broker.append(0, 2)
    broker.append(1, 2)
    consumer = reading(("t", 0), ("t", 1))
    consumer.pause(TP)
    assert consumer.paused() == {TP}
    assert {record.partition for record in consumer.poll(0)} == {1}
    consumer.resume(TP)
    assert {record.partition for record in consumer.poll(0)} == {0}


def test_a_partition_is_read_on_though_paused_ones_fill_the_buffers(broker, monkeypatch):
    monkeypatch.setattr(fetch_driver, "_TELL_ROOM_S", 1e9)
    for _ in range(8):
        broker.append(0, 10)
        broker.append(1, 10)
    size = len(broker.batches[0][0][2])
    consumer = reading(("t", 0), ("t", 1), fetch_max_bytes=2 * size, max_partition_fetch_bytes=size)
    consumer.pause(TP)
    found = []
    for _ in range(16):
        found += [record.value for record in consumer.poll(20, 10)]
    assert found == [value_of(1, i) for i in range(80)]


def test_while_there_is_plenty_room_is_told_of_from_time_to_time_and_at_once_when_there_is_not(
    broker, monkeypatch
):
    monkeypatch.setattr(fetch_driver, "_TELL_ROOM_S", 1e9)
    for partition in (0, 1, 2):
        for _ in range(8):
            broker.append(partition, 10)
    size = len(broker.batches[0][0][2])
    consumer = reading(*[("t", i) for i in range(3)], max_partition_fetch_bytes=size)
    consumer.poll(0, 10)
    told = []
    wake = FakeConnection.wake
    monkeypatch.setattr(FakeConnection, "wake", lambda self: (told.append(buffered()), wake(self)))

    def buffered() -> int:
        return consumer._driver.look(lambda fetcher: fetcher.buffered_bytes)

    while not told:
        assert consumer.poll(0, 10)
    assert told == [3 * size], "half of two replies for each of three partitions"


def test_a_loop_that_is_left_loses_nothing(broker):
    broker.append(0, 10)
    consumer = reading()
    assert [record.offset for record in itertools.islice(consumer, 3)] == [0, 1, 2]
    assert consumer.position(TP) == 3
    assert next(consumer).offset == 3
    assert [record.offset for record in consumer.poll(0, max_records=2)] == [4, 5]
    assert next(consumer).offset == 6
    assert consumer.poll_arrow(0)["offset"].to_pylist() == [7, 8, 9]


def test_seeking_in_a_loop_moves_the_loop(broker):
    broker.append(0, 10)
    consumer = reading()
    assert next(consumer).offset == 0
    consumer.seek(TP, 8)
    assert next(consumer).offset == 8


def test_a_batch_that_came_broken_is_raised_and_fetched_again(broker):
    broker.append(0, 2)
    base, behind, good = broker.batches[0][0]
    broker.batches[0][0] = (base, behind, good[:-3] + b"???")
    consumer = reading(retry_backoff_ms=1)
    with pytest.raises(CorruptBatch) as raised:
        consumer.poll(0)
    assert "t-0, in the batch at offset 0" in str(raised.value)
    broker.batches[0][0] = (base, behind, good)
    time.sleep(0.01)
    consumer._connection.wake()
    try:
        records = consumer.poll(0)
    except CorruptBatch:  # fetched again before it was whole: the test was slow
        time.sleep(0.01)
        consumer._connection.wake()
        records = consumer.poll(0)
    assert [record.offset for record in records] == [0, 1]


@pytest.mark.parametrize("as_arrow", [False, True])
def test_a_broken_batch_keeps_back_no_records_before_it_and_a_seek_goes_on_behind_it(broker, as_arrow):
    for _ in range(3):
        broker.append(0, 2)
    base, behind, good = broker.batches[0][1]
    broker.batches[0][1] = (base, behind, good[:-3] + b"???")
    consumer = reading(retry_backoff_ms=1)

    def poll() -> list[int]:
        return (
            consumer.poll_arrow(0)["offset"].to_pylist() if as_arrow else [r.offset for r in consumer.poll(0)]
        )

    assert poll() == [0, 1]
    with pytest.raises(CorruptBatch, match="t-0, in the batch at offset 2"):
        poll()
    assert consumer.position(TP) == 2
    consumer.seek(TP, 4)
    consumer._connection.wake()
    assert poll() == [4, 5]


def test_without_a_reset_a_consumer_must_seek_first(broker):
    broker.append(0, 2)
    consumer = Consumer(auto_offset_reset="error")
    consumer.assign([TP])
    with pytest.raises(OffsetOutOfRange):
        consumer.position(TP)
    with pytest.raises(OffsetOutOfRange):
        consumer.poll(0)
    consumer.seek(TP, 1)
    assert len(consumer.poll(0)) == 1


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


def test_a_poll_of_nothing_says_what_is_missing(broker):
    with Consumer() as consumer:
        for poll in (consumer.poll, consumer.poll_arrow, consumer.poll_batches, consumer.__next__):
            with pytest.raises(InvalidRequest, match=r"assign\(\) or subscribe\(\)"):
                poll()


def test_nobody_but_its_user_holds_a_consumer(broker):
    consumer = reading()
    gone = weakref.ref(consumer)
    driver = weakref.ref(consumer._driver)
    consumer._connection._ticks.clear()  # the real connection holds ticks weakly
    del consumer
    gc.collect()
    assert gone() is None
    assert driver() is None


def test_offsets_are_asked_for_again_when_the_metadata_were_stale(broker, monkeypatch):
    broker.append(0, 3)
    stale = broker.metadata()
    broker.first_id = 500
    consumer = Consumer(retry_backoff_ms=1)
    connection = consumer._connection
    monkeypatch.setattr(
        connection, "topic", lambda name, **_: broker.metadata() if connection.forgotten else stale
    )
    assert consumer.end_offsets([TP]) == {TP: 3}
    assert connection.forgotten == ["t"]


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto_offset_reset", "newest"),
        ("fetch_max_wait_ms", -1),
        ("fetch_max_bytes", 0),
        ("max_partition_fetch_bytes", 2**40),
        ("max_poll_records", 0),
        ("fetch_min_bytes", "1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(name, value):
    with pytest.raises(InvalidRequest, match=name):
        Consumer(**{name: value})


def test_settings_have_the_meaning_that_kafka_gives_them():
    assert ConsumerSettings().reset == LATEST
    assert ConsumerSettings(auto_offset_reset="earliest").reset == EARLIEST
    assert ConsumerSettings(auto_offset_reset="none").reset is None


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


@pytest.mark.parametrize("wrong", [1, "t", ("t",), ("t", 0, 0, 0), None])
def test_what_is_no_partition_is_named(wrong):
    with pytest.raises(InvalidRequest, match="a partition is named like"):
        Consumer().assign([wrong])


@pytest.mark.parametrize("wrong", [5, "t", [], [("t", 0)]])
def test_offsets_and_times_are_given_by_partition(broker, wrong):
    consumer = Consumer(group_id="g")
    for call in (consumer.commit, consumer.commit_async, consumer.offsets_for_times):
        with pytest.raises(InvalidRequest, match="give a dict such as"):
            call(wrong)


def test_what_is_no_callback_of_a_commit_is_refused_at_once(broker):
    with pytest.raises(InvalidRequest, match="a callback is a function"):
        Consumer(group_id="g").commit_async(callback=5)


@pytest.mark.parametrize("wrong", [-1, "5", 1.5, float("nan"), []])
def test_a_number_of_records_that_is_none_is_refused_and_nothing_is_taken(broker, wrong):
    broker.append(0, 3)
    consumer = reading()
    for poll in (consumer.poll, consumer.poll_arrow):
        with pytest.raises(InvalidRequest, match="max_records must be a whole number"):
            poll(0, max_records=wrong)
    assert len(consumer.poll(0)) == 3
