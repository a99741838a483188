"""A fetcher: in order, each record once, whatever becomes of its requests."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from ringlog.client.lookups import Ask
from ringlog.errors import (
    FetchSessionLost,
    RequestTimeout,
    RinglogError,
    ShardUnavailable,
    StaleMetadata,
)
from tests.support.fetch_rig import Rig, settled, tp
from tests.support.model_broker import ModelBroker, value_of


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


def test_a_place_for_the_reply_is_named_unless_little_is_expected():
    broker = ModelBroker()
    broker.append(0, 3)
    rig = Rig(broker)
    rig.assign(0, at=0)
    (first,) = rig.due()
    rig.deliver(first)
    (at_the_end,) = rig.due()
    assert first.landing_bytes > rig.fetcher.settings.max_partition_fetch_bytes
    assert at_the_end.landing_bytes == 0
    rig.fetcher[tp()].readable_offset += 1
    broker.append(0, 3)
    rig.deliver(at_the_end)
    rig.fetcher[tp()].readable_offset += 1
    (behind,) = rig.due()
    assert behind.landing_bytes == first.landing_bytes
