"""`poll_batches` of a Consumer: whole batches as the node sent them, each once, and nothing of a log passed over."""

from __future__ import annotations

import pytest

from ringlog.client import consumer as module
from ringlog.client.consumer import Consumer
from ringlog.errors import ClientClosed, OffsetOutOfRange, UnknownTopic
from ringlog.model import Codec, TopicPartition
from ringlog.records.decode import decode
from tests.support.fake_connection import FakeConnection
from tests.support.model_broker import ModelBroker, value_of
from tests.support.node import wait_for

TP = TopicPartition("t", 0)


@pytest.fixture
def broker(monkeypatch):
    broker = ModelBroker(partitions=2)
    monkeypatch.setattr(FakeConnection, "broker", broker, raising=False)
    monkeypatch.setattr(module, "Connection", FakeConnection)
    return broker


def reading(*places, **settings) -> Consumer:
    consumer = Consumer(auto_offset_reset="error", **settings)
    consumer.assign(places or [(*TP, 0)])
    return consumer


def offsets(found) -> list[int]:
    return [record.offset for record in decode(found.data)]


def test_batches_come_as_they_lie_in_the_log_whatever_their_codec(broker):
    for codec in Codec:
        broker.append(0, 3, codec=codec)
    found = reading().poll_batches(0)
    assert bytes(found.data) == b"".join(data for _, _, data in broker.batches[0])
    assert (found.tp, found.position, found.next_offset) == (TP, 0, 3 * len(Codec))
    assert [record.value for record in decode(found.data)] == [value_of(0, at) for at in offsets(found)]


def test_each_poll_goes_on_where_the_last_one_ended(broker):
    consumer, seen = reading(max_partition_fetch_bytes=1), []
    for _ in range(4):
        broker.append(0, 5)
    consumer._connection.wake()
    while (found := consumer.poll_batches(0)) is not None:
        assert found.position == (seen[-1] + 1 if seen else 0)
        seen += offsets(found)
        assert consumer.position(TP) == found.next_offset
    assert seen == list(range(20))


def test_a_position_inside_of_a_batch_gets_the_whole_batch_and_is_told(broker):
    broker.append(0, 10)
    found = reading((*TP, 4)).poll_batches(0)
    assert offsets(found) == list(range(10)), "a batch is never cut"
    assert (found.position, found.next_offset) == (4, 10)


def test_where_compaction_has_emptied_the_end_the_next_offset_says_so(broker):
    broker.append(0, 3)
    base, _, data = broker.batches[0][0]
    broker.batches[0][0] = (base, 9, data)
    consumer = reading()
    found = consumer.poll_batches(0)
    assert (offsets(found), found.next_offset) == ([0, 1, 2], 9)
    assert consumer.position(TP) == 9


def test_a_chunk_is_of_one_partition_and_all_have_their_turn(broker):
    for partition in range(2):
        broker.append(partition, 2)
    consumer = reading(("t", 0, 0), ("t", 1, 0))
    found = {one.tp.partition: offsets(one) for one in iter(lambda: consumer.poll_batches(0), None)}
    assert found == {0: [0, 1], 1: [0, 1]}


def test_bytes_that_no_one_could_read_are_handed_over_unopened(broker):
    broker.append(0, 1)
    base, behind, data = broker.batches[0][0]
    broker.batches[0][0] = (base, behind, data[:-2] + b"??")
    assert bytes(reading().poll_batches(0).data).endswith(b"??")


def test_records_that_a_loop_did_not_come_to_are_polled_again_as_batches(broker):
    broker.append(0, 5)
    consumer = reading()
    assert next(consumer).offset == 0
    found = consumer.poll_batches(0)
    assert (found.position, found.next_offset) == (1, 5)


def test_what_retention_took_is_raised_until_a_seek_and_never_passed_over(broker):
    for _ in range(2):
        broker.append(0, 5)
    broker.truncate(0, 5)
    consumer = reading((*TP, 2), retry_backoff_ms=1)

    def raises() -> bool:
        consumer._connection.wake()
        try:
            assert consumer.poll_batches(0) is None
        except OffsetOutOfRange:
            return True
        return False

    for _ in range(2):
        wait_for("the error", raises, within_s=10)
    consumer.seek(TP, 5)
    assert offsets(consumer.poll_batches(0)) == [5, 6, 7, 8, 9]


def test_nothing_new_is_none_and_errors_without_hope_are_raised(broker):
    consumer = reading()
    assert consumer.poll_batches(1) is None
    broker.errors[0] = UnknownTopic("deleted")
    consumer._connection._outbox.clear()
    consumer.assign([(*TP, 0)])
    with pytest.raises(UnknownTopic):
        consumer.poll_batches(0)
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.poll_batches(0)
