"""A fetcher: in order, each record once, whatever becomes of its requests; and what it does about errors."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlog.client.consumer_settings import ConsumerSettings
from ringlog.client.fetcher import Fetcher
from ringlog.client.lookups import Ask, place_of
from ringlog.errors import (
    CorruptSegment,
    FetchSessionLost,
    OffsetOutOfRange,
    PartitionFenced,
    RequestTimeout,
    RinglogError,
    ShardUnavailable,
    StaleMetadata,
)
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import EARLIEST, LATEST, FetchRequest, decode_body
from tests.support.model_broker import ModelBroker, value_of


def tp(i: int = 0) -> TopicPartition:
    return TopicPartition("t", i)


class Rig:
    """A fetcher and a broker, and a clock that moves by hand."""

    def __init__(self, broker: ModelBroker, **given) -> None:
        self.broker = broker
        self.fetcher = Fetcher(ConsumerSettings(**{"auto_offset_reset": "earliest", **given}))
        self.now = 100.0
        self.parked: list[Ask] = []

    def assign(self, *partitions: int, at: int | None = None) -> None:
        topic = self.broker.metadata()
        self.fetcher.assign({tp(i): (place_of(topic, i), at) for i in partitions})

    def due(self) -> list[Ask]:
        return self.fetcher.due(self.now)[0]

    def fetches(self) -> list[tuple[Ask, FetchRequest]]:
        return [(ask, decode_body(ask.body, FetchRequest)) for ask in self.due() if ask.api == Api.FETCH]

    def deliver(self, ask: Ask) -> None:
        try:
            reply = self.broker.answer(ask.api, ask.body)
        except RinglogError as error:
            ask.failed(error, self.now)
            return
        if reply is None:
            self.parked.append(ask)
        else:
            ask.answered(memoryview(reply), self.now)

    def run(self) -> None:
        """Until nothing more happens by itself."""
        parked, self.parked = self.parked, []
        for ask in parked:
            self.deliver(ask)
        while asks := self.due():
            for ask in asks:
                self.deliver(ask)

    def time_is_over(self) -> None:
        """Fetches that wait at the node are answered, with nothing."""
        parked, self.parked = self.parked, []
        for ask in parked:
            ask.answered(memoryview(self.broker.whole_reply(ask.api, ask.body)), self.now)

    def poll(self, most: int | None = None) -> list[bytes]:
        """The values of what can be polled now; each is checked to be the one that its place promises."""
        values = []
        while (head := self.fetcher.head(self.now, may_raise=not values)) is not None:
            records, behind = head.chunks[0].take(head.position, most)
            for record in records:
                assert record.value == value_of(head.tp.partition, record.offset)
            values += [record.value for record in records]
            self.fetcher.advance(head, behind)
        return values


def settled(broker: ModelBroker, **given) -> Rig:
    rig = Rig(broker, **given)
    rig.assign(*range(len(broker.batches)))
    rig.run()
    return rig


def test_records_come_in_order_and_the_position_follows():
    broker = ModelBroker()
    broker.append(0, 3)
    rig = settled(broker)
    broker.append(0, 2)
    rig.run()
    assert rig.poll(2) == [value_of(0, i) for i in range(5)]
    assert rig.fetcher[tp()].position == 5


def test_latest_starts_behind_what_is_there():
    broker = ModelBroker()
    broker.append(0, 3)
    rig = settled(broker, auto_offset_reset="latest")
    broker.append(0, 1)
    rig.run()
    assert rig.poll() == [value_of(0, 3)]


def test_partitions_of_a_lane_share_a_fetch_and_lanes_do_not():
    rig = Rig(ModelBroker(partitions=4, lanes=2))
    rig.assign(0, 1, 2, 3, at=0)
    asked = [{p.partition for p in request.partitions} for _, request in rig.fetches()]
    assert asked == [{100, 102}, {101, 103}]


def test_the_next_fetch_leaves_while_the_last_is_being_polled():
    broker = ModelBroker()
    for _ in range(10):
        broker.append(0, 10)
    size = len(broker.batches[0][0][2])
    rig = Rig(broker, max_partition_fetch_bytes=2 * size)
    rig.assign(0, at=0)
    (first,) = rig.due()
    rig.deliver(first)
    (second,) = rig.due()
    rig.deliver(second)
    assert rig.due() == []
    head = rig.fetcher.head(rig.now)
    assert rig.fetcher.advance(head, head.chunks[0].next_offset)
    assert len(rig.due()) == 1


def test_no_more_is_fetched_ahead_than_the_bound_over_all_partitions():
    broker = ModelBroker(partitions=20)
    for i in range(20):
        broker.append(i, 100)
    size = len(broker.batches[0][0][2])
    rig = settled(broker, fetch_max_bytes=5 * size, max_partition_fetch_bytes=size)
    assert rig.fetcher.buffered_bytes <= 20 * size
    before = rig.fetcher.buffered_bytes
    for i in range(20):
        broker.append(i, 100)
    rig.run()
    assert rig.fetcher.buffered_bytes == before
    values = []
    while got := rig.poll():
        values += got
        rig.run()
    assert len(values) == len(set(values)) == 20 * 200


def test_a_session_tells_only_what_changed():
    broker = ModelBroker(partitions=3)
    rig = Rig(broker)
    rig.assign(0, 1, 2, at=0)
    ((ask, request),) = rig.fetches()
    assert (request.session, len(request.partitions)) == (0, 3)
    broker.append(1, 5)
    rig.deliver(ask)
    ((_, request),) = rig.fetches()
    assert request.session == 1
    assert [(p.partition, p.offset) for p in request.partitions] == [(101, 5)]
    assert request.forget == []


def test_a_paused_partition_is_forgotten_by_the_session_and_comes_back_when_resumed():
    broker = ModelBroker(partitions=2)
    rig = Rig(broker)
    rig.assign(0, 1, at=0)
    ((ask, _),) = rig.fetches()
    rig.fetcher.pause(tp(1))
    broker.append(0, 1)
    broker.append(1, 1)
    rig.deliver(ask)
    ((_, request),) = rig.fetches()
    assert request.forget == [101]
    assert rig.poll() == [value_of(0, 0)]
    rig.fetcher.resume(tp(1))
    assert rig.poll() == [value_of(1, 0)]


def test_a_lost_session_is_begun_anew_at_once_with_everything():
    broker = ModelBroker(partitions=2)
    rig = Rig(broker)
    rig.assign(0, 1, at=0)
    ((ask, _),) = rig.fetches()
    broker.append(0, 1)
    rig.deliver(ask)
    ((ask, request),) = rig.fetches()
    assert request.session != 0
    ask.failed(FetchSessionLost("gone"), rig.now)
    ((_, request),) = rig.fetches()
    assert request.session == 0
    assert {(p.partition, p.offset) for p in request.partitions} == {(100, 1), (101, 0)}


def test_a_seek_drops_what_was_fetched_and_what_is_on_its_way():
    broker = ModelBroker()
    broker.append(0, 10)
    rig = Rig(broker)
    rig.assign(0, at=0)
    (late,) = rig.due()
    rig.fetcher.seek(tp(), 7)
    (fresh,) = rig.due()
    rig.deliver(late)
    assert rig.poll() == []
    rig.deliver(fresh)
    assert rig.poll() == [value_of(0, i) for i in (7, 8, 9)]
    rig.fetcher.seek(tp(), 9)
    assert rig.fetcher.head(rig.now) is None
    rig.run()
    assert rig.poll() == [value_of(0, 9)]


def test_a_quiet_partition_does_not_hold_up_one_that_was_just_emptied():
    broker = ModelBroker(partitions=2)
    for _ in range(4):
        broker.append(0, 10)
    rig = settled(broker, max_partition_fetch_bytes=len(broker.batches[0][0][2]))
    assert rig.parked, "a fetch of partition 1 waits at the node"
    assert rig.due() == []
    rig.poll()
    assert [[p.partition for p in request.partitions] for _, request in rig.fetches()] == [[100]]


def test_the_last_fetch_of_a_lane_waits_briefly_and_then_joins_the_others():
    broker = ModelBroker(partitions=4)
    rig = Rig(broker)
    rig.assign(0, 1, 2, 3, at=0)
    waits, asks = [], []
    for i in (None, 1, 2):
        if i is not None:
            rig.fetcher.seek(tp(i), 0)
        ((ask, request),) = rig.fetches()
        asks.append(ask)
        waits.append(request.wait_ms)
    assert waits == [500, 500, 10]
    rig.fetcher.seek(tp(3), 0)
    assert rig.fetches() == [], "all sessions are taken"
    asks[2].answered(memoryview(broker.whole_reply(asks[2].api, asks[2].body)), rig.now)
    ((brief, request),) = rig.fetches()
    assert [p.partition for p in request.partitions] == [103]
    asks[0].answered(memoryview(broker.whole_reply(asks[0].api, asks[0].body)), rig.now)
    assert rig.fetches() == [], "what is quiet waits for the brief one to end"
    brief.answered(memoryview(broker.whole_reply(brief.api, brief.body)), rig.now)
    ((_, request),) = rig.fetches()
    assert request.wait_ms == 500
    assert len(broker.sessions[request.session]) - len(request.forget) + len(request.partitions) >= 3


def test_an_answer_that_comes_twice_counts_once():
    broker = ModelBroker()
    broker.append(0, 3)
    rig = Rig(broker)
    rig.assign(0, at=0)
    (ask,) = rig.due()
    rig.deliver(ask)
    rig.deliver(ask)
    ask.failed(RequestTimeout("late"), rig.now)
    assert len(rig.poll()) == 3


@pytest.mark.parametrize("error", [ShardUnavailable("x"), RequestTimeout("x")])
def test_after_a_retriable_failure_it_waits_longer_each_time_and_goes_on(error):
    broker = ModelBroker()
    broker.append(0, 1)
    rig = Rig(broker, retry_backoff_ms=50, retry_backoff_max_ms=150)
    rig.assign(0, at=0)
    for wait_s in (0.05, 0.1, 0.15, 0.15):
        (ask,) = rig.due()
        ask.failed(error, rig.now)
        asks, next_s = rig.fetcher.due(rig.now)
        assert asks == []
        assert next_s == pytest.approx(rig.now + wait_s)
        rig.now = next_s
    rig.run()
    assert len(rig.poll()) == 1


def test_a_retriable_error_of_one_partition_does_not_stop_the_others():
    broker = ModelBroker(partitions=2)
    broker.append(0, 1)
    broker.append(1, 1)
    broker.errors[0] = PartitionFenced("x")
    rig = settled(broker)
    assert rig.poll() == [value_of(1, 0)]
    broker.errors.clear()
    rig.now += 10
    rig.run()
    assert rig.poll() == [value_of(0, 0)]


def test_a_failure_is_raised_behind_the_records_before_it_and_as_long_as_it_lasts():
    broker = ModelBroker(partitions=2)
    broker.append(0, 2)
    rig = settled(broker)
    broker.errors[0] = CorruptSegment("x")
    rig.run()
    assert len(rig.poll()) == 2
    for i in range(3):
        with pytest.raises(CorruptSegment, match="t-0 at offset 2"):
            rig.poll()
        broker.append(1, 1)
        rig.run()
        assert rig.poll() == [value_of(1, i)], "the other partition is read all the same"
        rig.now += 10
        rig.run()
    with pytest.raises(CorruptSegment):
        rig.poll()
    broker.errors.clear()
    broker.append(0, 1)
    rig.now += 10
    rig.run()
    assert rig.poll() == [value_of(0, 2)]


@pytest.mark.parametrize(("reset", "found"), [("earliest", range(6, 12)), ("latest", range(10, 12))])
def test_a_position_that_retention_removed_is_reset_as_the_setting_says(reset, found):
    broker = ModelBroker()
    for _ in range(5):
        broker.append(0, 2)
    broker.truncate(0, 6)
    rig = Rig(broker, auto_offset_reset=reset)
    rig.assign(0, at=1)
    rig.run()
    broker.append(0, 2)
    rig.run()
    assert rig.poll() == [value_of(0, i) for i in found]


def test_with_error_as_setting_an_offset_out_of_range_is_raised_until_a_seek():
    broker = ModelBroker()
    broker.append(0, 2)
    rig = Rig(broker, auto_offset_reset="error")
    rig.assign(0, at=5)
    for _ in range(2):
        rig.now += 10
        rig.run()
        with pytest.raises(OffsetOutOfRange, match="0 to 2"):
            rig.poll()
    rig.fetcher.seek(tp(), 1)
    rig.run()
    assert rig.poll() == [value_of(0, 1)]


def test_with_error_as_setting_a_partition_without_position_is_raised_until_a_seek():
    broker = ModelBroker()
    broker.append(0, 1)
    rig = settled(broker, auto_offset_reset="error")
    for _ in range(2):
        rig.now += 10
        with pytest.raises(OffsetOutOfRange, match="no position"):
            rig.poll()
        assert rig.due() == []
    rig.fetcher.seek(tp(), 0)
    rig.run()
    assert len(rig.poll()) == 1


def test_stale_metadata_are_refreshed_and_reading_goes_on():
    broker = ModelBroker()
    broker.append(0, 2)
    rig = settled(broker)
    broker.first_id = 200
    broker.sessions.clear()
    broker.append(0, 2)
    for _ in range(4):
        rig.run()
        rig.now += 10
    assert rig.poll() == [value_of(0, i) for i in range(4)]


def test_a_topic_that_was_made_anew_is_read_from_where_the_setting_says():
    broker = ModelBroker()
    broker.append(0, 5)
    rig = settled(broker)
    rig.poll()
    broker.topic_id, broker.first_id = 2, 300
    broker.batches[0].clear()
    broker.append(0, 1)
    for _ in range(4):
        rig.run()
        rig.now += 10
    assert rig.poll() == [value_of(0, 0)]


def test_partitions_that_stay_assigned_keep_their_position_and_what_was_fetched():
    broker = ModelBroker(partitions=2)
    broker.append(0, 4)
    rig = settled(broker)
    rig.poll(1)
    rig.assign(0)
    assert rig.fetcher.assignment() == [tp(0)]
    assert rig.fetcher[tp(0)].position == 4
    rig.assign(1)
    assert rig.fetcher.buffered_bytes == 0


def test_both_ends_can_be_sought():
    broker = ModelBroker()
    broker.append(0, 4)
    broker.truncate(0, 0)
    rig = settled(broker)
    for end, position in ((LATEST, 4), (EARLIEST, 0)):
        rig.fetcher.seek_to(end, tp())
        assert rig.fetcher.unsettled([tp()])
        rig.run()
        assert not rig.fetcher.unsettled([tp()])
        assert rig.fetcher[tp()].position == position


def test_after_a_fork_everything_is_asked_anew():
    broker = ModelBroker(partitions=3, lanes=2)
    rig = settled(broker)
    assert rig.due() == []
    rig.fetcher.forget_flights()
    assert sum(len(request.partitions) for _, request in rig.fetches()) == 3
    late = rig.parked[0]
    broker.append(0, 1)
    rig.deliver(late)
    assert rig.poll() == []


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 2))
def test_nothing_is_skipped_doubled_or_reordered_whatever_becomes_of_requests(seed, partitions, lanes):
    """Answers are lost, late, doubled or errors; sessions vanish; partitions move; the reader seeks and pauses."""
    chance = random.Random(seed)
    broker = ModelBroker(partitions, lanes)
    rig = Rig(broker, max_partition_fetch_bytes=chance.choice([1, 200, 5000]), fetch_max_bytes=10_000)
    fetcher = rig.fetcher
    expected = [0] * partitions
    rig.assign(*range(partitions), at=0)
    flying: list[Ask] = []
    answers: list[tuple[Ask, bytes | RinglogError]] = []
    retriable = [ShardUnavailable("x"), RequestTimeout("x"), StaleMetadata("x"), FetchSessionLost("x")]

    def poll() -> None:
        head = fetcher.head(rig.now)
        if head is None:
            return
        i = head.tp.partition
        records, behind = head.chunks[0].take(head.position, chance.choice([1, 3, None]))
        for record in records:
            assert (record.offset, record.value) == (expected[i], value_of(i, expected[i]))
            expected[i] += 1
        fetcher.advance(head, behind)
        assert head.position == expected[i]

    def step() -> None:
        i = chance.randrange(partitions)
        action = chance.random()
        if action < 0.15:
            broker.append(i, chance.randint(1, 5))
        elif action < 0.18:
            expected[i] = chance.randint(0, broker.end(i))
            fetcher.seek(tp(i), expected[i])
        elif action < 0.22:
            (fetcher.pause if chance.random() < 0.5 else fetcher.resume)(tp(i))
        elif action < 0.23:
            broker.sessions.clear()
        elif action < 0.24:
            broker.first_id += 100
        elif action < 0.25:
            fetcher.forget_flights()
        elif action < 0.40:
            poll()
        elif action < 0.65 and flying:
            ask = flying.pop(chance.randrange(len(flying)))
            try:
                answers.append((ask, broker.whole_reply(ask.api, ask.body)))
            except RinglogError as error:
                answers.append((ask, error))
        elif action < 0.70 and flying:
            answers.append((flying.pop(0), chance.choice(retriable)))
        elif action < 0.95 and answers:
            ask, answer = answers[chance.randrange(len(answers))]
            if chance.random() < 0.8:
                answers.remove((ask, answer))
            if isinstance(answer, RinglogError):
                ask.failed(answer, rig.now)
            else:
                ask.answered(memoryview(answer), rig.now)
        else:
            rig.now += 0.2
        flying.extend(rig.due())
        assert fetcher.buffered_bytes == sum(fetcher[tp(j)].buffered_bytes for j in range(partitions))

    for _ in range(300):
        step()
    for i in range(partitions):
        fetcher.resume(tp(i))
    for ask in flying:
        ask.failed(RequestTimeout("lost"), rig.now)
    for ask, _ in answers:
        ask.failed(RequestTimeout("lost"), rig.now)
    for _ in range(3000):
        if expected == [broker.end(i) for i in range(partitions)]:
            break
        rig.now += 2
        rig.run()
        poll()
        rig.time_is_over()
    assert expected == [broker.end(i) for i in range(partitions)], "everything came in the end"
