"""The memory of fetches: what was lent comes back when it was sent, or when those who had it are gone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlog.limits import KIB, MIB
from ringlog.records.decode import decode
from ringlog.shard.commands import LENT, NodeApi, pack_u64, unpack_lent
from tests.support.shard_world import ShardWorld

BIG = b"x" * (20 * KIB)
"""A value whose reply is lent."""


@pytest.fixture
def world() -> ShardWorld:
    world = ShardWorld()
    world.create(1, 2, 3)
    return world


def test_lent_memory_is_free_when_it_was_given_back(world):
    before = world.free_bytes()
    world.fill(BIG)
    world.fetch((1, 0))
    (reply,) = world.net.take()
    assert world.free_bytes() < before
    world.send(NodeApi.RELEASE, pack_u64(unpack_lent(memoryview(reply.body)).token))
    assert world.free_bytes() == before


def test_giving_back_twice_or_what_was_never_lent_changes_nothing(world):
    before = world.free_bytes()
    world.fill(BIG)
    world.fetch((1, 0))
    (reply,) = world.net.take()
    token = unpack_lent(memoryview(reply.body)).token
    world.send(NodeApi.RELEASE, pack_u64(token, token, 12345))
    world.send(NodeApi.RELEASE, pack_u64(token))
    assert (world.free_bytes(), world.net.replies) == (before, [])


def test_what_a_dead_network_process_was_lent_is_free(world):
    before = world.free_bytes()
    world.fill(BIG)
    world.fetch((1, 0))
    world.core.forget(world.net)
    assert world.free_bytes() == before


def test_a_cold_read_for_a_dead_network_process_leaves_nothing_behind(world):
    before = world.free_bytes()
    world.fill(BIG)
    world.evict_all()
    world.disk.hold_all("read")
    world.fetch((1, 0))
    world.core.forget(world.net)
    world.disk.release_all()
    world.settle()
    assert world.free_bytes() == before


def test_what_others_were_lent_survives_the_death_of_one(world):
    world.fill(BIG)
    world.fetch((1, 0), outlet=world.other_net)
    world.core.forget(world.net)
    world.evict_all()
    (reply,) = world.other_net.take()
    row = world.fetched(reply)[1][1]
    assert [record.value for record in decode(bytes(row.data))] == [BIG]


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
    before = world.free_bytes()
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
    assert world.free_bytes() == before
