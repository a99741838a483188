"""Fetches: what is served is durable and whole, long polls wake when they should, budgets are shared fairly."""

from __future__ import annotations

import pytest

from ringlog.controller.records import TopicRemoved
from ringlog.limits import KIB
from ringlog.net.wire_errors import NUMBERS
from ringlog.records.decode import decode
from ringlog.shard.commands import LENT
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults
from tests.support.shard_world import ShardWorld

BIG = b"x" * (20 * KIB)
"""A value whose reply is lent."""


@pytest.fixture
def world() -> ShardWorld:
    world = ShardWorld()
    world.create(1, 2, 3)
    return world


def values(row) -> list[bytes | None]:
    return [record.value for record in decode(bytes(row.data))]


# -- what is served ------------------------------------------------------------------------------------------


def test_records_are_served_from_the_offset_on(world):
    world.fill(b"a", b"b", b"c")
    world.fetch((1, 1))
    _, rows = world.only_fetched()
    assert (values(rows[1]), rows[1].next_offset, rows[1].readable_offset) == ([b"b", b"c"], 3, 3)


def test_nothing_is_served_before_it_is_as_durable_as_its_ack(world):
    world.disk.hold_all()
    world.produce(b"a")
    world.run()
    world.fetch((1, 0), wait_ms=0)
    assert world.only_fetched()[1] == {}


def test_a_large_reply_is_lent_and_a_small_one_copied(world):
    world.fill(b"small")
    world.fill(BIG, partition=2)
    world.fetch((1, 0))
    world.fetch((2, 0))
    small, big = world.net.take()
    assert (bool(small.flags & LENT), bool(big.flags & LENT)) == (False, True)
    assert values(world.fetched(big)[1][2]) == [BIG]


def test_cold_records_are_read_from_disk(world):
    world.fill(b"a", b"b")
    world.evict_all()
    world.fetch((1, 0))
    assert world.net.replies == []
    world.settle()
    assert values(world.only_fetched()[1][1]) == [b"a", b"b"]


def test_hot_and_cold_partitions_come_in_one_reply(world):
    world.fill(b"cold")
    world.evict_all()
    world.fill(b"hot", partition=2)
    world.fetch((1, 0), (2, 0))
    world.settle()
    _, rows = world.only_fetched()
    assert (values(rows[1]), values(rows[2])) == ([b"cold"], [b"hot"])


@pytest.mark.parametrize("offset", [5, 3, -1])
def test_an_offset_out_of_range_is_told_where_the_log_starts_and_ends(world, offset):
    world.fill(b"a", b"b")
    world.fetch((1, offset))
    row = world.only_fetched()[1][1]
    assert (row.error, row.log_start_offset, row.readable_offset) == (NUMBERS["OFFSET_OUT_OF_RANGE"], 0, 2)


def test_a_partition_that_is_not_here_has_an_error_in_its_row(world):
    world.fill(b"a")
    world.fetch((1, 0), (99, 0))
    _, rows = world.only_fetched()
    assert (rows[99].error, values(rows[1])) == (NUMBERS["STALE_METADATA"], [b"a"])


def test_a_failed_read_has_an_error_in_its_row():
    faults = Faults()
    world = ShardWorld(disk=FakeDisk(seed=1, faults=faults))
    world.create(1)
    world.fill(b"a")
    world.evict_all()
    for number in range(50):
        faults.fail("read", nth=world.disk._kinds["read"] + number)
    world.fetch((1, 0))
    world.settle()
    assert world.only_fetched()[1][1].error == NUMBERS["PARTITION_FENCED"]


# -- waiting -------------------------------------------------------------------------------------------------


def test_a_fetch_with_nothing_to_read_waits_until_there_is(world):
    world.fetch((1, 0), wait_ms=500)
    world.settle()
    assert world.net.replies == []
    world.produce(b"a")
    world.settle()
    fetched = [reply for reply in world.net.take() if reply.api_key == 1]
    assert values(world.fetched(fetched[0])[1][1]) == [b"a"]


def test_a_fetch_is_answered_empty_when_its_time_is_up(world):
    world.fetch((1, 0), wait_ms=500)
    assert world.core.fetches.next_deadline_ms == world.now_ms + 500
    world.at(499)
    world.core.fetches.expire(world.now_ms)
    assert world.net.replies == []
    world.at(1)
    world.core.fetches.expire(world.now_ms)
    assert world.only_fetched()[1] == {}
    assert world.core.fetches.next_deadline_ms is None


def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for(world):
    world.fill(b"x" * 100)
    world.fetch((1, 0), wait_ms=500, bytes_min=1000)
    assert world.net.replies == []
    for _ in range(9):
        world.produce(b"x" * 100)
    world.settle()
    fetched = [reply for reply in world.net.take() if reply.api_key == 1]
    assert len(fetched) == 1
    assert world.fetched(fetched[0])[1][1].data.nbytes >= 1000


def test_fewer_bytes_than_asked_for_are_served_when_the_time_is_up(world):
    world.fill(b"few")
    world.fetch((1, 0), wait_ms=500, bytes_min=100_000)
    world.at(500)
    world.core.fetches.expire(world.now_ms)
    assert values(world.only_fetched()[1][1]) == [b"few"]


def test_a_newer_fetch_of_a_session_ends_the_one_that_waits(world):
    first = world.fetch((1, 0), wait_ms=500)
    world.at(500)
    world.core.fetches.expire(world.now_ms)
    session, _ = world.only_fetched()
    second = world.fetch(session=session, wait_ms=500)
    third = world.fetch(session=session, wait_ms=500)
    (ended,) = world.net.take()
    assert (first < second, ended.correlation) == (True, second)
    world.produce(b"a")
    world.settle()
    assert [r.correlation for r in world.net.take() if r.api_key == 1] == [third]


def test_whoever_waits_for_a_partition_that_is_deleted_is_told(world):
    world.fetch((1, 0), wait_ms=500)
    world.delta(TopicRemoved(1))
    assert world.only_fetched()[1][1].error == NUMBERS["STALE_METADATA"]


def test_a_session_goes_on_when_its_partition_was_opened_anew():
    faults = Faults()
    world = ShardWorld(disk=FakeDisk(seed=1, faults=faults))
    world.create(1)
    world.fill(b"a")
    world.fetch((1, 1), wait_ms=0)
    session, _ = world.only_fetched()
    for number in range(400):
        faults.fail("write", nth=world.disk._kinds["write"] + number)
    world.produce(b"lost?")
    world.settle()
    faults._by_kind.clear()
    world.net.take()
    world.fetch(session=session, wait_ms=500)
    assert world.only_fetched()[1][1].error == NUMBERS["PARTITION_BUSY"]
    world.at(1000)
    world.core.hosting.work(world.now_ms)
    world.fetch((1, world.log().next_offset), session=session, wait_ms=500)
    assert world.net.replies == []
    world.produce(b"after")
    world.settle()
    fetched = [reply for reply in world.net.take() if reply.api_key == 1]
    assert values(world.fetched(fetched[0])[1][1]) == [b"after"]


def test_a_partition_opened_after_it_was_asked_for_wakes_the_session():
    world = ShardWorld()
    world.create(1)
    world.fetch((1, 0), (2, 0), wait_ms=0)
    session, rows = world.only_fetched()
    assert rows[2].error == NUMBERS["STALE_METADATA"]
    world.create(2, topic_id=2, name="later")
    world.fetch(session=session, wait_ms=500)
    assert world.net.replies == [], "it is quiet: nothing to tell"
    world.produce(b"a", partition=2)
    world.settle()
    fetched = [reply for reply in world.net.take() if reply.api_key == 1]
    assert values(world.fetched(fetched[0])[1][2]) == [b"a"]


# -- budgets -------------------------------------------------------------------------------------------------


def test_a_single_batch_is_served_whole_however_small_the_budget(world):
    world.fill(BIG, BIG)
    world.fetch((1, 0, 1), bytes_max=1)
    row = world.only_fetched()[1][1]
    assert (values(row), row.next_offset) == ([BIG], 1)


def test_a_partition_is_not_served_beyond_its_own_budget(world):
    world.fill(*[b"x" * 1000] * 20)
    world.fetch((1, 0, 5000))
    assert world.only_fetched()[1][1].data.nbytes <= 5000


def test_no_partition_starves_behind_one_that_is_always_full(world):
    for partition in (1, 2, 3):
        world.fill(*[b"x" * 1000] * 5, partition=partition)
    world.fetch((1, 0), (2, 0), (3, 0), bytes_max=1000)
    session, rows = world.only_fetched()
    seen = set(rows)
    for _ in range(2):
        world.fetch(session=session, bytes_max=1000)
        seen |= set(world.only_fetched()[1])
    assert seen == {1, 2, 3}
