"""Clients of a network process: what they may have in flight is bounded, and the books always balance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import InvalidRequest, Overloaded
from ringlog.limits import (
    CLIENT_BYTES_IN_FLIGHT_MAX,
    CLIENT_REPLY_BYTES_MAX,
    CLIENT_REQUESTS_MAX,
    MIB,
    NODE_BYTES_IN_FLIGHT_MAX,
    SESSION_IDLE_MS,
)
from ringlog.net.peers import Peers, PendingRequest


def request(nbytes: int = 100, process: int = 2) -> PendingRequest:
    return PendingRequest(process, 0, nbytes, 5)


@pytest.fixture
def peers() -> Peers:
    return Peers()


def test_a_client_keeps_its_session(peers):
    first = peers.seen(b"a", 0)
    assert peers.seen(b"a", 9) is first
    assert peers.seen(b"b", 9).session != first.session


def test_the_session_of_a_client_that_left_is_never_given_again(peers):
    first = peers.seen(b"a", 0)
    peers.drop(first)
    assert peers.seen(b"a", 1).session != first.session


def test_no_session_is_0(peers):
    assert peers.seen(b"a", 0).session > 0


def test_a_client_has_a_bound_on_its_requests(peers):
    peer = peers.seen(b"a", 0)
    for correlation in range(CLIENT_REQUESTS_MAX):
        peers.admit(peer, correlation, request(0))
    with pytest.raises(Overloaded):
        peers.admit(peer, -1, request(0))


def test_a_client_has_a_bound_on_its_bytes(peers):
    peer = peers.seen(b"a", 0)
    peers.admit(peer, 1, request(CLIENT_BYTES_IN_FLIGHT_MAX))
    with pytest.raises(Overloaded):
        peers.admit(peer, 2, request(1))


def test_all_clients_together_have_a_bound_on_their_bytes(peers):
    for number in range(NODE_BYTES_IN_FLIGHT_MAX // CLIENT_BYTES_IN_FLIGHT_MAX):
        peers.admit(peers.seen(b"%d" % number, 0), 1, request(CLIENT_BYTES_IN_FLIGHT_MAX))
    with pytest.raises(Overloaded):
        peers.admit(peers.seen(b"last", 0), 1, request(1))


def test_a_correlation_in_use_is_refused(peers):
    peer = peers.seen(b"a", 0)
    peers.admit(peer, 1, request())
    with pytest.raises(InvalidRequest, match="correlation 1"):
        peers.admit(peer, 1, request())


def test_an_answer_that_nobody_waits_for_settles_nothing(peers):
    peer = peers.seen(b"a", 0)
    assert peers.settle(peer, 1) is None


def test_credit_only_grows_and_never_beyond_what_was_sent(peers):
    peer = peers.seen(b"a", 0)
    peer.sent_bytes = 100
    for said, believed in ((60, 60), (50, 60), (101, 60), (100, 100)):
        peers.note_received(peer, said)
        assert peer.received_bytes == believed


def test_fetches_are_held_past_the_credit_and_a_deaf_client_is_known(peers):
    peer = peers.seen(b"a", 0)
    peer.sent_bytes = CLIENT_REPLY_BYTES_MAX
    assert not peer.must_hold
    peer.sent_bytes += 1
    assert peer.must_hold
    assert not peer.deaf
    peer.sent_bytes = 2 * CLIENT_REPLY_BYTES_MAX + 1
    assert peer.deaf


def nobody(_routing_id: bytes) -> bool:
    """Who is known to be connected."""
    return False


def test_a_client_that_is_silent_for_long_is_forgotten(peers):
    peers.admit(peers.seen(b"a", 0), 1, request())
    peers.seen(b"b", SESSION_IDLE_MS)
    peers.expire(SESSION_IDLE_MS + 1, nobody)
    assert (len(peers), peers.in_flight_bytes, peers.pending_count) == (1, 0, 0)


def test_a_client_that_is_silent_on_an_open_connection_keeps_its_session_and_its_credit(peers):
    session = peers.seen(b"a", 0).session
    now_ms, received = SESSION_IDLE_MS + 1, 500
    peers.seen(b"a", 0).sent_bytes += received
    peers.expire(now_ms, {b"a"}.__contains__)
    for _ in range(3):
        peer = peers.seen(b"a", now_ms)
        peer.sent_bytes += CLIENT_REPLY_BYTES_MAX
        received += CLIENT_REPLY_BYTES_MAX
        peers.note_received(peer, received)
        assert (peer.session, peer.unreceived_bytes) == (session, 0)


def test_those_who_wait_for_a_process_are_found(peers):
    a, b = peers.seen(b"a", 0), peers.seen(b"b", 0)
    peers.admit(a, 1, request(process=2))
    peers.admit(a, 2, request(process=3))
    peers.admit(b, 1, request(process=2))
    assert [(peer, number) for peer, number, _ in peers.waiting_for(2)] == [(a, 1), (b, 1)]


def test_a_client_that_is_gone_holds_nothing(peers):
    peer = peers.seen(b"a", 0)
    peer.held.append(b"fetch")
    peers.drop(peer)
    assert not peer.held


moves = st.lists(
    st.tuples(
        st.sampled_from(["admit", "settle", "drop", "seen", "expire"]),
        st.integers(0, 3),
        st.integers(0, 5),
        st.sampled_from([0, 1, 100, 30 * MIB, 64 * MIB]),
    ),
    max_size=80,
)


@given(moves)
def test_the_books_balance_whatever_happens(commands):
    peers, now_ms = Peers(), 0
    for kind, who, correlation, amount in commands:
        peer = peers.seen(b"%d" % who, now_ms)
        match kind:
            case "admit":
                try:
                    peers.admit(peer, correlation, request(amount))
                except (Overloaded, InvalidRequest):
                    continue
            case "settle":
                peers.settle(peer, correlation)
            case "drop":
                peers.drop(peer)
                peers.settle(peer, correlation)
            case "expire":
                now_ms += SESSION_IDLE_MS // 2 + 1
                peers.expire(now_ms, nobody)
        everyone = peers.by_session.values()
        assert all(p.in_flight_bytes == sum(r.nbytes for r in p.pending.values()) >= 0 for p in everyone)
        assert peers.in_flight_bytes == sum(p.in_flight_bytes for p in everyone)
        assert peers.pending_count == sum(len(p.pending) for p in everyone)
