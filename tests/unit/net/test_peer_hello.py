"""Who is let in between nodes: the right node of the right cluster, in the life that it is in now."""

from __future__ import annotations

import pytest

from ringlog.limits import HELLO_AGAIN_MS
from ringlog.net.framing import Flag
from ringlog.net.peer_wire import Me, decode_hello, hello_frame
from tests.support.peer_world import FETCH, HELLO, ME, OTHER, THIRD, PeerWorld, fetch_of, frame


@pytest.fixture
def peer():
    world = PeerWorld()
    world.register()
    yield world
    world.close()


def test_a_call_begins_with_a_hello_that_says_who_calls_and_whom(peer):
    assert set(peer.service.calls) == {OTHER, THIRD}
    peer.service.connected(OTHER)
    peer.service.greet()
    ((node, sent),) = peer.take_called()
    said = decode_hello(sent.body)
    assert (node, sent.api) == (OTHER, HELLO)
    assert (said.cluster_id, said.node_id, said.broker_epoch, said.to) == ("c", ME, 10, OTHER)


def test_a_hello_is_said_again_until_it_is_answered(peer):
    peer.service.connected(OTHER)
    due_ms = peer.service.greet()
    assert due_ms == peer.now_ms + HELLO_AGAIN_MS
    peer.at(HELLO_AGAIN_MS - 1)
    peer.service.greet()
    assert len(peer.take_called()) == 1
    peer.at(1)
    peer.service.greet()
    assert len(peer.take_called()) == 1
    peer.welcome()
    peer.at(HELLO_AGAIN_MS)
    assert (peer.service.greet(), peer.take_called()) == (None, [])


def test_a_node_that_is_not_registered_calls_nobody_and_lets_nobody_in():
    world = PeerWorld()
    told = world.hello()
    assert told is not None and told.error is not None and told.error.retriable
    assert world.service.calls == {}
    world.close()


def test_who_is_known_is_let_in_and_told_who_answers(peer):
    told = peer.hello()
    said = decode_hello(told.body)
    assert (told.flags, said.node_id, said.broker_epoch, said.to) == (Flag.REPLY, ME, 10, OTHER)


def test_a_later_life_is_let_in_before_the_metadata_tells_of_it(peer):
    assert peer.hello(epoch=21).error is None


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"cluster": "another"}, "INVALID_REQUEST"),
        ({"to": THIRD}, "INVALID_REQUEST"),
        ({"epoch": 19}, "STALE_BROKER"),
        ({"node": ME}, "STALE_BROKER"),
    ],
)
def test_who_is_not_who_it_must_be_is_told_why(peer, wrong, code):
    told = peer.hello(**wrong)
    assert told.error is not None and told.error.code == code
    peer.call(fetch_of())
    assert peer.received() == []


def test_an_unknown_node_is_not_let_in(peer):
    peer.epochs[44] = 1
    assert peer.hello(44).error.code == "STALE_BROKER"


def test_a_version_that_nobody_speaks_here_is_refused(peer):
    good = hello_frame(Me("c", OTHER, 20), ME)
    body = bytes([good[32], 9]) + good[34:]
    peer.call(good[:32] + body)
    assert peer.take_answered()[-1][1].error.code == "UNSUPPORTED_VERSION"


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x95\x01", b"\x90" * 40, bytes(100)])
def test_a_hello_that_cannot_be_read_changes_nothing(peer, body):
    peer.call(frame(HELLO, body))
    assert peer.service.callers.by_node == {}


def test_a_stranger_is_told_once_and_not_for_every_frame(peer):
    for _ in range(5):
        peer.call(fetch_of())
    ((who, told),) = peer.take_answered()
    assert (who, told.api, told.error.code) == (b"two", HELLO, "STALE_BROKER")
    assert peer.received() == []
    assert peer.stats.counts["refused"] == 5


def test_another_node_at_the_address_of_the_one_that_is_meant_is_found_out(peer):
    peer.welcome(OTHER, claims=THIRD)
    assert not peer.service.calls[OTHER].is_ready
    peer.welcome(OTHER, cluster="another")
    assert not peer.service.calls[OTHER].is_ready
    peer.welcome(OTHER)
    assert peer.service.calls[OTHER].is_ready


def test_when_this_node_is_registered_anew_it_introduces_itself_again(peer):
    peer.welcome()
    peer.ask()
    peer.take_called()
    peer.delta(peer.broker(ME, 11))
    (told,) = peer.received()
    assert (told.api, told.flags, told.correlation) == (FETCH, Flag.REPLY | Flag.ERROR, 1)
    peer.service.greet()
    sent = dict(peer.take_called())
    assert decode_hello(sent[OTHER].body).broker_epoch == 11


def test_a_call_of_a_life_that_is_over_is_ended(peer):
    peer.hello()
    peer.delta(peer.broker(OTHER, 21))
    ((who, told),) = peer.take_answered()
    assert (who, told.api, told.error.code) == (b"two", HELLO, "STALE_BROKER")
    peer.call(fetch_of())
    assert peer.received() == []
    assert peer.hello(who=b"two").error is None
    peer.call(fetch_of())
    assert len(peer.received()) == 1


def test_a_node_that_is_removed_is_neither_called_nor_heard(peer):
    peer.hello()
    peer.welcome()
    peer.removed(OTHER)
    assert set(peer.service.calls) == {THIRD}
    peer.call(fetch_of())
    assert peer.received() == []


def test_a_node_that_moved_is_called_at_its_new_address(peer):
    peer.welcome()
    peer.ask()
    peer.delta(peer.broker(OTHER, endpoint="tcp://elsewhere:2"))
    call = peer.service.calls[OTHER]
    assert (call.endpoint, call.is_ready) == ("tcp://elsewhere:2", False)
    assert len(peer.received()) == 1, "who asked at the old address is told"


def test_the_last_call_of_a_node_counts(peer):
    peer.hello(who=b"first")
    peer.hello(who=b"second")
    peer.call(fetch_of(), who=b"first")
    assert peer.received() == []
    peer.service.left(b"first")
    peer.call(fetch_of(), who=b"second")
    assert len(peer.received()) == 1
