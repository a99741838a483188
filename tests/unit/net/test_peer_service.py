"""Frames between shards of different nodes: each reaches its shard, or its sender is told that it did not."""

from __future__ import annotations

import pytest

from ringlog.errors import ShardUnavailable
from ringlog.limits import KIB, SHARDS_MAX
from ringlog.net import peer_service
from ringlog.net.framing import Flag
from ringlog.net.peer_wire import error_frame
from ringlog.shard.commands import LENT, NodeApi, pack_lent, place, unpack_u64
from tests.support.peer_world import (
    FETCH,
    HELD,
    HELLO,
    OTHER,
    SHARD_0,
    THIRD,
    PeerWorld,
    fetch_of,
    frame,
)

FAILED = Flag.REPLY | Flag.ERROR


@pytest.fixture
def peer():
    """Node 2 has called, and was called."""
    world = PeerWorld()
    world.register()
    world.hello()
    world.welcome()
    yield world
    world.close()


# -- what this node asks ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", [FETCH, HELD])
def test_what_a_shard_asks_goes_to_the_node_it_names_with_the_shard_that_asked(peer, api):
    peer.ask(api=api, shard=1, their_shard=5)
    ((node, sent),) = peer.take_called()
    assert (node, sent.api, sent.correlation, sent.session, sent.body) == (OTHER, api, 5, 1, b"want")


def test_an_answer_goes_to_the_shard_that_asked_and_names_who_answers(peer):
    peer.ask(shard=1, their_shard=5)
    peer.answer(frame(FETCH, b"batches", correlation=5, session=1, flags=Flag.REPLY))
    assert peer.received(0) == []
    (got,) = peer.received(1)
    assert (got.api, got.flags, got.correlation, got.place) == (FETCH, Flag.REPLY, 5, (OTHER, 0))
    assert got.body == b"batches"


@pytest.mark.parametrize("api", [FETCH, HELD])
def test_a_shard_is_told_at_once_that_a_node_cannot_be_reached(peer, api):
    peer.ask(THIRD, api=api, their_shard=4)
    (told,) = peer.received()
    assert (told.api, told.flags, told.correlation, told.place) == (FETCH, FAILED, 4, (THIRD, 0))
    assert told.error.code == "NODE_UNAVAILABLE" and told.error.retriable


def test_a_socket_without_room_is_a_node_that_cannot_be_reached(peer):
    peer.unreachable.add(OTHER)
    peer.ask()
    assert peer.received()[0].error.code == "NODE_UNAVAILABLE"


def test_when_a_connection_is_lost_every_conversation_through_it_begins_anew(peer):
    peer.welcome(THIRD)
    peer.ask(shard=0, their_shard=0)
    peer.ask(shard=0, their_shard=1)
    peer.ask(shard=1, their_shard=0)
    peer.ask(THIRD, shard=0)
    peer.service.disconnected(OTHER)
    told = [(got.correlation, got.place[0], got.flags) for got in peer.received(0)]
    assert sorted(told) == [(0, OTHER, FAILED), (1, OTHER, FAILED)]
    assert [got.correlation for got in peer.received(1)] == [0]


def test_after_a_connection_was_made_anew_nothing_goes_before_the_hello(peer):
    peer.service.connected(OTHER)
    peer.ask()
    assert peer.take_called() == []
    peer.service.greet()
    assert [sent.api for _, sent in peer.take_called()] == [HELLO]


def test_answers_of_a_node_that_did_not_let_us_in_are_not_taken(peer):
    peer.answer(frame(FETCH, b"batches", flags=Flag.REPLY), node=THIRD)
    peer.answer(frame(FETCH, b"a fetch where an answer belongs"))
    peer.answer(frame(HELD, b"", flags=Flag.REPLY))
    peer.answer(b"short")
    assert peer.received() == []
    assert peer.stats.counts["refused"] == 3


def test_who_is_not_let_in_any_more_introduces_itself_again(peer):
    peer.ask()
    peer.take_called()
    peer.answer(error_frame(HELLO, ShardUnavailable("say hello")))
    assert peer.received()[0].flags == FAILED
    peer.service.greet()
    assert [sent.api for _, sent in peer.take_called()] == [HELLO]


# -- what other nodes ask ----------------------------------------------------------------------------------------------


def test_what_a_node_asks_reaches_the_shard_it_names_and_says_who_asks(peer):
    peer.call(fetch_of(3, shard=1))
    assert peer.received(0) == []
    (got,) = peer.received(1)
    assert (got.api, got.flags, got.correlation, got.place, got.body) == (FETCH, 0, 1, (OTHER, 3), b"want")


def test_the_answer_goes_back_through_the_call_with_the_shard_that_asked(peer):
    peer.call(fetch_of(3))
    peer.shard_sends(0, frame(FETCH, b"data", correlation=0, session=place(OTHER, 3), flags=Flag.REPLY))
    ((who, sent),) = peer.take_answered()
    assert (who, sent.flags, sent.correlation, sent.session) == (b"two", Flag.REPLY, 0, 3)
    assert sent.body == b"data"


def lend(peer: PeerWorld) -> None:
    body = pack_lent(77, b"head", [(0, 4), (256, 2)])
    peer.shard_sends(0, frame(FETCH, body, session=place(OTHER, 3), flags=Flag.REPLY | LENT))


def test_what_a_shard_lends_is_copied_into_one_message_and_given_back(peer):
    peer.call(fetch_of(3))
    peer.received()
    lend(peer)
    ((_, sent),) = peer.take_answered()
    assert (sent.flags, sent.session) == (Flag.REPLY, 3)
    assert sent.body == b"head" + bytes([0, 1, 2, 3, 0, 1])
    (released,) = peer.received()
    assert (released.api, unpack_u64(memoryview(released.body))) == (NodeApi.RELEASE, (77,))


def test_memory_that_a_dead_shard_lent_is_not_trusted(peer):
    peer.call(fetch_of(3))
    peer.dead.add(SHARD_0)
    lend(peer)
    assert peer.take_answered() == []


def test_answers_to_a_node_that_hung_up_go_nowhere_and_what_was_lent_comes_back(peer):
    peer.call(fetch_of(3))
    peer.received()
    peer.service.left(b"two")
    lend(peer)
    assert peer.take_answered() == []
    assert [got.api for got in peer.received()] == [NodeApi.RELEASE]


def test_a_shard_that_is_not_there_is_said_so(peer):
    peer.call(fetch_of(3, shard=9))
    ((_, told),) = peer.take_answered()
    assert (told.api, told.flags, told.correlation, told.session) == (FETCH, FAILED, 9, 3)
    assert told.error.code == "SHARD_UNAVAILABLE"


def test_when_a_shard_is_restarted_all_who_asked_it_are_told_once(peer):
    peer.hello(THIRD, who=b"three")
    peer.call(fetch_of(0))
    peer.call(fetch_of(1))
    peer.call(fetch_of(0), who=b"three")
    peer.call(fetch_of(0, shard=1))
    peer.connect(SHARD_0)
    told = sorted((who, sent.session, sent.correlation) for who, sent in peer.take_answered())
    assert told == [(b"three", 0, 0), (b"two", 0, 0), (b"two", 1, 0)]
    peer.connect(SHARD_0)
    assert peer.take_answered() == []


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"short",
        bytes(40),
        frame(0, b"a client's batch"),
        frame(NodeApi.DELTA, b""),
        frame(NodeApi.RELEASE, b""),
        frame(FETCH, b"an answer", flags=Flag.REPLY),
        frame(FETCH, b"", session=SHARDS_MAX),
        fetch_of()[:-1],
    ],
)
def test_what_nodes_do_not_send_each_other_reaches_no_shard(peer, bad):
    peer.call(bad)
    assert peer.received(0) == peer.received(1) == []
    assert peer.stats.counts["refused"] == 1


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_what_finds_no_room_in_a_ring_waits_and_arrives_in_order(peer):
    for number in range(40):
        peer.call(fetch_of(0, body=bytes([number]) * 8 * KIB))
    assert not peer.service.retry_overflow()
    got = [found.body[0] for found in peer.received()]
    while len(got) < 40:
        peer.service.retry_overflow()
        got += [found.body[0] for found in peer.received()]
    assert got == list(range(40))
    assert peer.service.retry_overflow()


def test_a_shard_that_is_far_behind_refuses_fetches_and_is_told_of_answers_that_it_missed(peer, monkeypatch):
    monkeypatch.setattr(peer_service, "REPLICA_OVERFLOW_BYTES_MAX", 32 * KIB)
    for number in range(20):
        peer.call(fetch_of(number, body=bytes(8 * KIB)))
    refused = [sent for _, sent in peer.take_answered()]
    assert refused and {sent.error.code for sent in refused} == {"OVERLOADED"}
    peer.ask(their_shard=6)
    peer.answer(frame(FETCH, bytes(8 * KIB), correlation=6, session=0, flags=Flag.REPLY))
    found = []
    while not peer.service.retry_overflow() or not found:
        found += peer.received()
    found += peer.received()
    assert (found[-1].flags, found[-1].correlation, found[-1].place) == (FAILED, 6, (OTHER, 0))


def test_a_shard_that_is_behind_holds_up_no_other(peer):
    for _ in range(20):
        peer.call(fetch_of(0, shard=0, body=bytes(8 * KIB)))
    peer.call(fetch_of(0, shard=1))
    assert len(peer.received(1)) == 1


def test_an_answer_that_fits_no_frame_is_refused_and_not_sent(peer, monkeypatch):
    monkeypatch.setattr(peer_service, "FRAME_BYTES_MAX", 32 + 9)
    peer.call(fetch_of(3))
    lend(peer)
    ((_, sent),) = peer.take_answered()
    assert (sent.flags, sent.error.code, sent.session) == (FAILED, "LIMIT_EXCEEDED", 3)


def test_bytes_are_counted_both_ways(peer):
    before = dict(peer.stats.counts)
    peer.ask()
    peer.call(fetch_of())
    assert peer.stats.counts["bytes_out"] - before["bytes_out"] == 32 + 4
    assert peer.stats.counts["bytes_in"] - before["bytes_in"] == 32 + 4
