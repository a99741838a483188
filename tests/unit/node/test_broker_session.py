"""A node's standing: it registers until it is heard, says that it lives, serves when it may, and leaves in order."""

from __future__ import annotations

import itertools

import pytest

from ringlog.errors import ClusterMismatch, NotController, RequestTimeout, StaleBroker
from ringlog.limits import BROKER_BEAT_MS, BROKER_SESSION_MS
from ringlog.net.cluster_messages import (
    BrokerHeartbeatReply,
    BrokerHeartbeatRequest,
    RegisterBrokerReply,
    RegisterBrokerRequest,
)
from ringlog.node.broker_session import HURRY_MS, BrokerSession

REGISTRATION = RegisterBrokerRequest(2, "life", "disk", ["tcp://127.0.0.1:1"], "tcp://127.0.0.1:2")


def ask(session: BrokerSession, now_ms: float, version: int = 7, *, stop: bool = False):
    return session.next_request(served_version=version, want_stop=stop, now_ms=now_ms)


def serving(now_ms: float = 0.0) -> BrokerSession:
    session = BrokerSession(REGISTRATION)
    session.answered(ask(session, now_ms), RegisterBrokerReply(5, 40), now_ms)
    beat = ask(session, now_ms + HURRY_MS)
    session.answered(beat, BrokerHeartbeatReply(fenced=False), now_ms + HURRY_MS)
    assert session.serving
    return session


def test_it_registers_until_a_controller_answers():
    session = BrokerSession(REGISTRATION)
    assert ask(session, 0) == REGISTRATION
    session.answered(REGISTRATION, NotController("none yet"), 0)
    assert ask(session, HURRY_MS / 2) is None
    assert ask(session, HURRY_MS) == REGISTRATION
    session.answered(REGISTRATION, RegisterBrokerReply(5, 40), HURRY_MS)
    assert (session.broker_epoch, session.registered_version) == (5, 40)
    assert not session.serving
    assert ask(session, 2 * HURRY_MS) == BrokerHeartbeatRequest(2, 5, 7)


def test_a_node_without_metadata_says_so():
    session = BrokerSession(REGISTRATION)
    session.answered(REGISTRATION, RegisterBrokerReply(5, 40), 0)
    beat = ask(session, HURRY_MS, version=-1)
    assert beat.metadata_version == 0


def test_while_it_serves_it_beats_several_times_per_session_whether_answered_or_not():
    session = serving()
    beats = [now_ms for now_ms in range(100, 100 + BROKER_SESSION_MS) if ask(session, now_ms) is not None]
    assert len(beats) >= 4
    assert min(later - earlier for earlier, later in itertools.pairwise(beats)) >= BROKER_BEAT_MS


def test_a_fenced_node_hurries():
    session = serving()
    beat = ask(session, 1_000)
    session.answered(beat, BrokerHeartbeatReply(fenced=True), 1_000)
    assert not session.serving
    assert ask(session, 1_000 + BROKER_BEAT_MS) is not None
    assert ask(session, 1_000 + BROKER_BEAT_MS + HURRY_MS) is not None


def test_a_node_that_stops_asks_until_it_may():
    session = serving()
    beat = ask(session, 1_000, stop=True)
    assert beat.want_stop
    session.answered(beat, BrokerHeartbeatReply(fenced=False, may_stop=False), 1_000)
    assert not session.may_stop
    beat = ask(session, 1_000 + HURRY_MS, stop=True)
    session.answered(beat, BrokerHeartbeatReply(fenced=False, may_stop=True), 1_100)
    assert session.may_stop and session.heard_ms == 1_100


def test_shards_that_stand_still_are_told_while_it_serves():
    session = BrokerSession(REGISTRATION)
    session.answered(REGISTRATION, RegisterBrokerReply(5, 40), 0)

    def beat(now_ms: float):
        return session.next_request(
            served_version=7, want_stop=False, now_ms=now_ms, still_shards=lambda: [1]
        )

    first = beat(HURRY_MS)
    assert first.still_shards == [], "it leads nothing yet"
    session.answered(first, BrokerHeartbeatReply(fenced=False), HURRY_MS)
    assert beat(2 * HURRY_MS).still_shards == [1]


def test_an_error_says_nothing_about_the_standing():
    session = serving()
    beat = ask(session, 1_000)
    session.answered(beat, RequestTimeout("lost"), 1_000)
    assert session.serving and session.heard_ms < 1_000


def test_a_node_whose_place_another_one_took_ends():
    session = serving()
    with pytest.raises(ClusterMismatch, match="another process registered as node 2"):
        session.answered(ask(session, 1_000), StaleBroker("epoch 5 is over"), 1_000)


def test_a_late_answer_to_a_registration_changes_nothing():
    session = serving()
    session.answered(REGISTRATION, RegisterBrokerReply(4, 30), 1_000)
    assert (session.broker_epoch, session.registered_version) == (5, 40)
