"""A network process keeps clients apart: full rings, credit, memory that is lent."""

from __future__ import annotations

from ringlog.errors import Overloaded
from ringlog.limits import CLIENT_REPLY_BYTES_MAX, HELD_FETCHES_MAX, KIB
from ringlog.net import service as service_module
from ringlog.net.framing import Acks, Api
from ringlog.net.messages import (
    MetadataRequest,
)
from ringlog.shard.commands import LENT, NodeApi, unpack_u64
from tests.support.net_world import SHARD_0, SHARD_1, NetWorld, fill_ring, lend


def test_requests_reach_a_full_shard_in_their_order_when_it_has_room(world):
    fill_ring(world)
    seen: list[int] = []
    while not world.service.retry_overflow() or len(seen) < 100:
        found = world.requests(SHARD_0)
        seen += [header.correlation for header, _ in found]
        world.ask(Api.PRODUCE, b"late", partition=1, flags=Acks.ALL, correlation=1000 + len(seen))
    seen += [header.correlation for header, _ in world.requests(SHARD_0)]
    assert seen[:100] == list(range(100))
    assert seen == sorted(seen)


def test_a_full_shard_does_not_stop_another(world):
    fill_ring(world)
    world.ask(Api.PRODUCE, b"batch", partition=2, flags=Acks.ALL, who=b"bob")
    assert len(world.requests(SHARD_1)) == 1


def test_past_its_bound_a_full_shard_refuses_retriably_and_owes_nothing(world, monkeypatch):
    monkeypatch.setattr(service_module, "OVERFLOW_BYTES_MAX", 64 * KIB)
    fill_ring(world)
    refused = world.take_sent()
    assert {(sent.error.code, sent.error.retriable) for sent in refused} == {(Overloaded.code, True)}
    assert world.service.peers.pending_count == 100 - len(refused)


def test_a_ring_that_its_reader_closed_leaves_no_request_pending(world):
    world.backs[SHARD_0].reader._native.close()
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL)
    (sent,) = world.take_sent()
    assert sent.error.retriable
    assert (world.service.peers.pending_count, world.service.peers.in_flight_bytes) == (0, 0)


def owe(world: NetWorld, nbytes: int) -> None:
    world.service.peers.seen(b"ada", 0).sent_bytes = nbytes


def test_fetches_are_held_while_too_much_was_not_received(world):
    owe(world, CLIENT_REPLY_BYTES_MAX + 1)
    world.ask(Api.FETCH, b"f", partition=1)
    assert world.requests(SHARD_0) == []
    world.ask(Api.METADATA, MetadataRequest([]), correlation=2, received=CLIENT_REPLY_BYTES_MAX)
    assert [header.correlation for header, _ in world.requests(SHARD_0)] == [1]


def test_the_time_for_which_a_fetch_is_held_counts(world):
    owe(world, CLIENT_REPLY_BYTES_MAX + 1)
    world.service.now_us = 7_000_000
    world.ask(Api.FETCH, b"f", partition=1, deadline_ms=500)
    world.service.now_us = 9_000_000
    world.ask(Api.METADATA, MetadataRequest([]), correlation=2, received=CLIENT_REPLY_BYTES_MAX)
    assert [header.deadline_ms for header, _ in world.requests(SHARD_0)] == [7_500]


def test_what_is_no_fetch_is_not_held(world):
    owe(world, CLIENT_REPLY_BYTES_MAX + 1)
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL)
    assert len(world.requests(SHARD_0)) == 1


def test_fetches_beyond_those_that_can_be_held_are_refused_retriably(world):
    owe(world, CLIENT_REPLY_BYTES_MAX + 1)
    for number in range(HELD_FETCHES_MAX + 1):
        world.ask(Api.FETCH, b"f", partition=1, correlation=number)
    (sent,) = world.take_sent()
    assert (sent.header.correlation, sent.error.code) == (HELD_FETCHES_MAX, Overloaded.code)


def test_a_held_fetch_of_a_client_that_left_is_dropped(world):
    owe(world, CLIENT_REPLY_BYTES_MAX + 1)
    world.ask(Api.FETCH, b"f", partition=1)
    world.unreachable.add(b"ada")
    world.ask(99, correlation=2, received=CLIENT_REPLY_BYTES_MAX)
    assert world.requests(SHARD_0) == []
    assert (world.service.peers.pending_count, world.service.peers.in_flight_bytes) == (0, 0)


def test_a_client_that_reads_nothing_is_not_listened_to(world):
    owe(world, 2 * CLIENT_REPLY_BYTES_MAX + 1)
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL)
    world.ask(99)
    world.service.take(b"ada", memoryview(b"rubbish"))
    assert (world.requests(SHARD_0), world.take_sent()) == ([], [])


def test_a_client_that_reads_nothing_is_sent_no_more_data(world):
    for correlation in range(3):
        world.ask(Api.FETCH, b"f", partition=1, correlation=correlation)
    owe(world, 2 * CLIENT_REPLY_BYTES_MAX + 1)
    world.answer(SHARD_0, world.session_of(), 1, bytes(8 * KIB), api=Api.FETCH)
    world.pass_replies(SHARD_0)
    (sent,) = world.take_sent()
    assert (sent.error.code, sent.error.retriable) == (Overloaded.code, True)


def test_a_client_that_reads_again_is_heard_again(world):
    owe(world, 2 * CLIENT_REPLY_BYTES_MAX + 1)
    world.ask(Api.PRODUCE, b"batch", partition=1, flags=Acks.ALL, received=2 * CLIENT_REPLY_BYTES_MAX)
    assert len(world.requests(SHARD_0)) == 1


def test_a_lent_reply_is_copied_and_given_back_at_once(world):
    world.ask(Api.FETCH, b"f", partition=1)
    world.requests(SHARD_0)
    lend(world)
    world.pass_replies(SHARD_0)
    (sent,) = world.take_sent()
    assert sent.body == b"head" + bytes([0, 1, 2, 3]) + bytes([0, 1])
    assert not sent.header.flags & LENT
    ((header, body),) = world.requests(SHARD_0)
    assert (header.api_key, unpack_u64(memoryview(body))) == (NodeApi.RELEASE, (77,))


def test_a_lent_reply_for_a_client_that_left_is_given_back_too(world):
    world.ask(Api.FETCH, b"f", partition=1)
    world.requests(SHARD_0)
    lend(world)
    world.service.peers.drop(world.service.peers.seen(b"ada", 0))
    world.pass_replies(SHARD_0)
    assert [header.api_key for header, _ in world.requests(SHARD_0)] == [NodeApi.RELEASE]
