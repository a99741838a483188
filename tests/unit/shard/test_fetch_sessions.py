"""Fetch sessions: remembered, kept apart from others, and ended when their client leaves or others need the room."""

from __future__ import annotations

import pytest

from ringlog.limits import SESSION_IDLE_MS
from ringlog.shard import fetching
from ringlog.shard.commands import NodeApi, pack_u64
from tests.support.shard_world import ShardWorld


@pytest.fixture
def world() -> ShardWorld:
    world = ShardWorld()
    world.create(1, 2, 3)
    return world


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
