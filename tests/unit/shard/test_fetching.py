"""Fetches: long polls wake when they should, budgets are shared fairly, sessions are kept apart, memory comes back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlog.controller.records import TopicRemoved
from ringlog.limits import KIB, MIB, SESSION_IDLE_MS
from ringlog.net.wire_errors import NUMBERS
from ringlog.records.decode import decode
from ringlog.shard import fetching
from ringlog.shard.commands import LENT, NodeApi, pack_u64, unpack_lent
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


def free_bytes(world: ShardWorld) -> int:
    """Memory that is free when nothing of the tail is kept."""
    world.settle()
    world.evict_all()
    return world.store.memory_free_bytes


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


# -- sessions ------------------------------------------------------------------------------------------------


def test_a_session_remembers_what_it_reads(world):
    world.fetch((1, 0), (2, 0))
    session, _ = world.only_fetched()
    world.fill(b"a", partition=2)
    world.fetch(session=session)
    assert list(world.only_fetched()[1]) == [2]


def test_a_forgotten_partition_is_not_served(world):
    world.fill(b"a")
    world.fill(b"b", partition=2)
    world.fetch((1, 0), (2, 0))
    session, _ = world.only_fetched()
    world.fetch(session=session, forget=(1,))
    assert list(world.only_fetched()[1]) == [2]


def test_an_unknown_session_is_refused_retriably(world):
    world.fetch((1, 0), session=4711)
    (reply,) = world.net.take()
    assert (reply.error.code, reply.error.retriable) == ("FETCH_SESSION_LOST", True)


def test_the_session_of_another_client_is_refused(world):
    world.fetch((1, 0))
    session, _ = world.only_fetched()
    world.fetch(session=session, client=8)
    world.fetch(session=session, outlet=world.other_net)
    assert [reply.error.code for reply in world.net.take()] == ["FETCH_SESSION_LOST"]
    assert [reply.error.code for reply in world.other_net.take()] == ["FETCH_SESSION_LOST"]


def test_the_session_unused_for_longest_makes_room(world, monkeypatch):
    monkeypatch.setattr(fetching, "FETCH_SESSIONS_PER_SHARD_MAX", 2)
    numbers = []
    for client in (1, 2):
        world.fetch((1, 0), client=client)
        numbers.append(world.only_fetched()[0])
    world.fetch(session=numbers[0], client=1)
    world.fetch((1, 0), client=3)
    world.net.take()
    world.fetch(session=numbers[0], client=1)
    world.fetch(session=numbers[1], client=2)
    assert [reply.error and reply.error.code for reply in world.net.take()] == [None, "FETCH_SESSION_LOST"]


def test_the_waiting_fetch_of_a_session_that_makes_room_is_told(world, monkeypatch):
    monkeypatch.setattr(fetching, "FETCH_SESSIONS_PER_SHARD_MAX", 1)
    world.fetch((1, 0), client=1, wait_ms=500)
    world.fetch((1, 0), client=2, wait_ms=500)
    (reply,) = world.net.take()
    assert (reply.session, reply.error.code) == (1, "FETCH_SESSION_LOST")


def test_new_offsets_for_what_a_session_has_do_not_count_against_its_bound(world, monkeypatch):
    monkeypatch.setattr(fetching, "FETCH_PARTITIONS_MAX", 3)
    world.fetch((1, 0), (2, 0), (3, 0))
    session, _ = world.only_fetched()
    world.fetch((1, 0), (2, 0), (3, 0), session=session)
    assert world.only_fetched()[0] == session


def test_a_session_of_too_many_partitions_is_refused(world, monkeypatch):
    monkeypatch.setattr(fetching, "FETCH_PARTITIONS_MAX", 2)
    world.fetch((1, 0), (2, 0))
    session, _ = world.only_fetched()
    world.fetch((3, 0), session=session)
    (reply,) = world.net.take()
    assert reply.error.code == "INVALID_REQUEST"


def opened(world: ShardWorld, *wants: tuple[int, int], client: int = 7) -> int:
    """A new session of a client."""
    world.fetch(*wants, client=client)
    return world.only_fetched()[0]


def lives(world: ShardWorld, session: int, client: int = 7) -> bool:
    """Whether a session can be used; that uses it."""
    world.fetch(session=session, client=client)
    (reply,) = world.net.take()
    return reply.error is None


def watchers(world: ShardWorld, partition: int = 1) -> int:
    return len(world.core.hosting.hosted[partition].watchers)


def test_the_sessions_of_a_client_that_left_are_ended_and_no_others(world):
    gone = [opened(world, (1, 0), client=1) for _ in range(2)]
    other = opened(world, (1, 0), client=2)
    world.fetch(
        (1, 0), client=1, outlet=world.other_net
    )  # another network process numbers its clients the same way
    world.send(NodeApi.GONE, pack_u64(1, 99), partition=0)
    assert watchers(world) == 2
    assert [lives(world, session, client=1) for session in gone] == [False, False]
    assert lives(world, other, client=2)


def test_a_session_that_nobody_uses_is_ended_after_a_while(world):
    used, unused = opened(world, (1, 0)), opened(world, (1, 0))
    world.at(SESSION_IDLE_MS)
    world.core.fetches.expire(world.now_ms)
    assert watchers(world) == 2
    assert lives(world, used)
    world.at(1)
    world.core.fetches.expire(world.now_ms)
    assert (watchers(world), lives(world, used), lives(world, unused)) == (1, True, False)


def test_a_client_with_too_many_sessions_loses_its_own_that_is_unused_for_longest(world, monkeypatch):
    monkeypatch.setattr(fetching, "FETCH_SESSIONS_PER_CLIENT_MAX", 2)
    other = opened(world, (1, 0), client=2)
    first, second = opened(world, (1, 0)), opened(world, (1, 0))
    assert lives(world, first)
    third = opened(world, (1, 0))
    assert [lives(world, session) for session in (first, second, third)] == [True, False, True]
    assert lives(world, other, client=2)


def test_sessions_of_too_many_partitions_together_make_room_the_longest_unused_first(world, monkeypatch):
    monkeypatch.setattr(fetching, "FETCH_SESSION_PARTITIONS_PER_SHARD_MAX", 5)
    first, second = opened(world, (1, 0), (2, 0)), opened(world, (1, 0), (2, 0))
    assert lives(world, first)
    world.fetch((3, 0), session=first)
    world.fetch((1, 0), session=first)
    world.net.take()
    assert lives(world, second), "five, since one was listed again"
    world.fetch((3, 0), session=second)
    world.net.take()
    assert (lives(world, first), lives(world, second), watchers(world)) == (False, True, 1)


def test_partitions_that_are_forgotten_or_whose_session_ended_count_no_more(world, monkeypatch):
    monkeypatch.setattr(fetching, "FETCH_SESSION_PARTITIONS_PER_SHARD_MAX", 3)
    first = opened(world, (1, 0))
    for _ in range(3):
        session = opened(world, (2, 0), (3, 0), client=8)
        world.fetch(session=session, forget=(2,), client=8)
        world.net.take()
        assert lives(world, first)
        world.send(NodeApi.GONE, pack_u64(8), partition=0)


def test_one_session_may_have_all_the_partitions_that_a_shard_remembers(world, monkeypatch):
    monkeypatch.setattr(fetching, "FETCH_SESSION_PARTITIONS_PER_SHARD_MAX", 1)
    assert lives(world, opened(world, (1, 0), (2, 0), (3, 0)))


# -- memory --------------------------------------------------------------------------------------------------


def test_lent_memory_is_free_when_it_was_given_back(world):
    before = free_bytes(world)
    world.fill(BIG)
    world.fetch((1, 0))
    (reply,) = world.net.take()
    assert free_bytes(world) < before
    world.send(NodeApi.RELEASE, pack_u64(unpack_lent(memoryview(reply.body)).token))
    assert free_bytes(world) == before


def test_giving_back_twice_or_what_was_never_lent_changes_nothing(world):
    before = free_bytes(world)
    world.fill(BIG)
    world.fetch((1, 0))
    (reply,) = world.net.take()
    token = unpack_lent(memoryview(reply.body)).token
    world.send(NodeApi.RELEASE, pack_u64(token, token, 12345))
    world.send(NodeApi.RELEASE, pack_u64(token))
    assert (free_bytes(world), world.net.replies) == (before, [])


def test_what_a_dead_network_process_was_lent_is_free(world):
    before = free_bytes(world)
    world.fill(BIG)
    world.fetch((1, 0))
    world.core.forget(world.net)
    assert free_bytes(world) == before


def test_a_cold_read_for_a_dead_network_process_leaves_nothing_behind(world):
    before = free_bytes(world)
    world.fill(BIG)
    world.evict_all()
    world.disk.hold_all("read")
    world.fetch((1, 0))
    world.core.forget(world.net)
    world.disk.release_all()
    world.settle()
    assert free_bytes(world) == before


def test_what_others_were_lent_survives_the_death_of_one(world):
    world.fill(BIG)
    world.fetch((1, 0), outlet=world.other_net)
    world.core.forget(world.net)
    world.evict_all()
    (reply,) = world.other_net.take()
    assert values(world.fetched(reply)[1][1]) == [BIG]


def test_a_dead_network_process_leaves_no_session(world):
    world.fetch((1, 0), wait_ms=500)
    world.core.forget(world.net)
    world.net.take()
    world.produce(b"a", outlet=world.other_net)
    world.settle()
    assert (world.net.replies, world.core.fetches.next_deadline_ms) == ([], None)


steps = st.lists(
    st.tuples(st.just("produce"), st.integers(1, 3), st.sampled_from([10, 1000, 20 * KIB]))
    | st.tuples(st.just("fetch"), st.integers(0, 2), st.integers(0, 600))
    | st.tuples(st.just("evict"), st.just(0), st.just(0))
    | st.tuples(st.just("time"), st.just(0), st.integers(1, 700))
    | st.tuples(st.just("run"), st.just(0), st.just(0))
    | st.tuples(st.just("die"), st.integers(0, 1), st.just(0)),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_all_memory_comes_back_whatever_happens(commands):
    world = ShardWorld(memory_bytes=32 * MIB)
    world.create(1, 2, 3)
    before = free_bytes(world)
    outlets = [world.net, world.other_net]
    for kind, number, amount in commands:
        match kind:
            case "produce":
                world.produce(b"x" * amount, partition=number)
            case "fetch":
                world.fetch((1, 0), (2, 0), (3, 0), wait_ms=amount, outlet=outlets[number % 2], client=number)
            case "evict":
                world.evict_all()
            case "time":
                world.at(amount)
                world.core.fetches.expire(world.now_ms)
            case "run":
                world.run()
            case "die":
                world.core.forget(outlets[number])
                outlets[number].take()
    world.settle()
    world.at(60_000)
    world.core.fetches.expire(world.now_ms)
    world.settle()
    for outlet in outlets:
        for reply in outlet.take():
            if reply.flags & LENT:
                world.send(NodeApi.RELEASE, pack_u64(unpack_lent(memoryview(reply.body)).token))
    assert free_bytes(world) == before
