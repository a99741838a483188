"""What a fetcher does about errors, offsets that are gone, stale metadata and new assignments."""

from __future__ import annotations

import pytest

from ringlog.errors import (
    CorruptSegment,
    NodeUnavailable,
    NotLeader,
    OffsetOutOfRange,
    PartitionFenced,
    RequestTimeout,
    ShardUnavailable,
    UnknownTopic,
)
from ringlog.net.framing import Api
from ringlog.net.messages import EARLIEST, LATEST
from tests.support.fetch_rig import Rig, settled, tp
from tests.support.model_broker import ModelBroker, value_of


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


def test_a_partition_whose_leader_died_is_read_on_from_the_new_one_at_once():
    broker = ModelBroker(partitions=2, nodes=3)
    broker.append(0, 2)
    broker.append(1, 2)
    rig = settled(broker)
    assert len(rig.poll()) == 4
    lane = rig.fetcher[tp(0)].place.lane
    fetch = next(ask for ask in rig.parked if ask.node == 1)
    rig.parked.remove(fetch)
    broker.lead(0, 2)
    fetch.failed(NodeUnavailable("node 1 died"), rig.now)
    broker.append(0, 1)
    rig.run()
    assert rig.poll() == [value_of(0, 2)], "without a pause"
    place = rig.fetcher[tp(0)].place
    assert (place.node, place.leader_epoch, place.lane != lane) == (2, 1, True)


def test_while_nobody_leads_the_metadata_are_asked_for_again_and_nothing_else():
    broker = ModelBroker(nodes=3)
    broker.append(0, 1)
    rig = settled(broker)
    rig.poll()
    (fetch,) = rig.parked
    rig.parked.clear()
    broker.lead(0, -1)
    fetch.failed(NotLeader("no more"), rig.now)
    for _ in range(5):
        (ask,) = rig.due()
        assert ask.api == Api.METADATA
        rig.deliver(ask)
        asks, next_s = rig.fetcher.due(rig.now)
        assert asks == [] and next_s - rig.now <= 0.1
        rig.now = next_s
    broker.lead(0, 3)
    broker.append(0, 1)
    rig.run()
    assert rig.poll() == [value_of(0, 1)]


def test_a_follower_in_the_clients_rack_is_read_from():
    broker = ModelBroker(partitions=3, nodes=3)
    rig = Rig(broker)
    rig.fetcher.near_nodes = frozenset({2})
    rig.assign(0, 1, 2, at=0)
    asked = [(ask.node, request.follower, ask.to_leader) for ask, request in rig.fetches()]
    assert sorted(asked) == [(2, False, True), (2, True, False)], (
        "node 2 leads one of them, and follows the others"
    )


@pytest.mark.parametrize("error", [NodeUnavailable("x"), NotLeader("x"), OffsetOutOfRange("x")])
def test_when_a_follower_cannot_help_the_leader_is_asked_at_once_and_nothing_is_reset(error):
    broker = ModelBroker(nodes=3)
    broker.append(0, 5)
    rig = Rig(broker, auto_offset_reset="latest")
    rig.fetcher.near_nodes = frozenset({3})
    rig.assign(0, at=2)
    ((ask, _),) = rig.fetches()
    assert ask.node == 3
    if isinstance(error, OffsetOutOfRange):
        broker.errors[0] = error
        rig.deliver(ask)
        broker.errors.clear()
    else:
        ask.failed(error, rig.now)
    ((ask, request),) = rig.fetches()
    assert (ask.node, request.follower) == (1, False)
    rig.deliver(ask)
    assert rig.poll() == [value_of(0, i) for i in range(2, 5)]
    ((ask, request),) = rig.fetches()
    assert (ask.node, request.follower) == (3, True), "the follower is tried again"


def test_at_the_quiet_end_of_a_log_the_leader_is_asked_every_other_time():
    """A follower may have records of which it does not know yet that they are committed."""
    broker = ModelBroker(nodes=3)
    rig = Rig(broker)
    rig.fetcher.near_nodes = frozenset({2})
    rig.assign(0, at=0)
    asked = []
    for _ in range(4):
        ((ask, _),) = rig.fetches()
        asked.append(ask.node)
        rig.now += 0.6
        ask.answered(memoryview(broker.whole_reply(ask.api, ask.body)), rig.now)
    assert asked == [2, 1, 2, 1]


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


def test_every_poll_says_that_the_topic_was_deleted_whatever_was_asked_since():
    broker = ModelBroker(partitions=2)
    broker.append(0, 1)
    rig = settled(broker)
    rig.poll()
    broker.delete()
    rig.run()
    looks = 0
    for _ in range(20):
        with pytest.raises(UnknownTopic, match="there is no t-"):
            rig.poll()
        rig.now += 0.03
        asks = rig.due()
        assert {ask.api for ask in asks} <= {Api.METADATA}
        looks += len(asks)
        for ask in asks:
            rig.deliver(ask)
    assert 1 <= looks <= 5, "it is asked for again, no faster than retries are made"


def test_a_standing_failure_does_not_keep_the_other_partitions_back():
    broker = ModelBroker(partitions=2)
    rig = settled(broker)
    broker.errors[0] = CorruptSegment("x")
    broker.append(1, 1)
    rig.time_is_over()
    rig.run()
    with pytest.raises(CorruptSegment):
        rig.poll()
    assert rig.poll() == [value_of(1, 0)]
    with pytest.raises(CorruptSegment):
        rig.poll()


def test_a_failure_ends_with_the_first_answer_that_knows_of_none():
    broker = ModelBroker()
    rig = settled(broker)
    broker.errors[0] = CorruptSegment("x")
    rig.time_is_over()
    rig.run()
    with pytest.raises(CorruptSegment):
        rig.poll()
    broker.errors.clear()
    rig.now += 10
    rig.run()
    rig.time_is_over()
    assert rig.poll() == []


@pytest.mark.parametrize(("reset", "found"), [("earliest", [0, 1, 2]), ("latest", [2])])
def test_a_topic_that_was_deleted_and_is_made_again_is_read_as_the_setting_says(reset, found):
    broker = ModelBroker()
    broker.append(0, 5)
    rig = settled(broker, auto_offset_reset=reset)
    rig.poll()
    broker.delete()
    rig.run()
    with pytest.raises(UnknownTopic):
        rig.poll()
    broker.make_anew()
    broker.append(0, 2)
    for _ in range(4):
        rig.now += 10
        rig.run()
    broker.append(0, 1)
    rig.run()
    assert rig.poll() == [value_of(0, i) for i in found]


def test_with_error_as_setting_nothing_is_read_of_a_topic_that_was_made_anew_until_a_seek():
    """Also when its log is as long as the old one by then: an offset of one topic means nothing in the other."""
    broker = ModelBroker()
    broker.append(0, 5)
    rig = Rig(broker, auto_offset_reset="error")
    rig.assign(0, at=0)
    rig.run()
    rig.poll()
    broker.make_anew()
    broker.append(0, 9)
    for _ in range(4):
        rig.now += 10
        rig.run()
        if rig.now > 120:
            with pytest.raises(OffsetOutOfRange, match="made anew"):
                rig.poll()
    rig.fetcher.seek(tp(), 7)
    rig.run()
    assert rig.poll() == [value_of(0, 7), value_of(0, 8)]


@pytest.mark.parametrize(("at", "found"), [(1, [1, 2]), (None, [0, 1, 2])])
def test_a_topic_that_was_made_anew_can_be_assigned_like_any_other(at, found):
    broker = ModelBroker()
    broker.append(0, 5)
    rig = settled(broker)
    rig.poll()
    broker.delete()
    rig.run()
    with pytest.raises(UnknownTopic):
        rig.poll()
    broker.make_anew()
    broker.append(0, 3)
    rig.assign(0, at=at)
    rig.run()
    assert rig.poll() == [value_of(0, i) for i in found]


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
