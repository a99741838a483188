"""What a Consumer reads, from where, and in which order. Its connection is a model of a node."""

from __future__ import annotations

import itertools
import time

import pytest

from ringlog.client import fetch_driver
from ringlog.client.consumer import Consumer
from ringlog.client.offsets import OffsetAndTimestamp
from ringlog.errors import CorruptBatch, InvalidRequest, OffsetOutOfRange
from ringlog.model import TopicPartition
from tests.support.fake_connection import FakeConnection
from tests.support.model_broker import value_of
from tests.support.model_reading import TP, reading


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
