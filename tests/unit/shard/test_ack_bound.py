"""A bound on the batches that wait to be acknowledged: past it nothing more is appended, and clients are told so."""

from __future__ import annotations

import pytest

from ringlog.net.framing import Acks
from ringlog.shard import acks
from tests.support.replica_calls import acked, produce, replies
from tests.support.shard_cluster import ShardCluster

MOST = 3


@pytest.fixture
def stalled(monkeypatch) -> ShardCluster:
    """A cluster in which nothing is committed, and as much waits for that as may."""
    monkeypatch.setattr(acks, "ACKS_PER_PARTITION_MAX", MOST)
    cluster = ShardCluster()
    cluster.run()
    cluster.cut = {2, 3}
    for value in range(MOST):
        produce(cluster, 1, b"%d" % value)
        cluster.worlds[1].settle()
    assert replies(cluster, 1) == []
    return cluster


def test_what_finds_no_room_to_wait_is_refused_before_it_is_appended(stalled):
    produce(stalled, 1, b"too many")
    stalled.worlds[1].settle()
    (reply,) = replies(stalled, 1)
    assert reply.error.code == "PARTITION_BUSY" and reply.error.retriable
    assert stalled.values(1) == [b"0", b"1", b"2"]


def test_there_is_room_again_when_the_others_are_answered(stalled):
    stalled.cut = set()
    stalled.run(20, after_ms=500)
    assert acked(stalled, 1) == [0, 1, 2]
    produce(stalled, 1, b"next")
    stalled.run()
    assert acked(stalled, 1) == [3]


@pytest.mark.parametrize("level", [Acks.NONE, Acks.RECEIVED, Acks.LEADER])
def test_who_does_not_wait_for_a_commit_is_not_held_up(stalled, level):
    produce(stalled, 1, b"at once", acks=level)
    stalled.worlds[1].settle()
    assert stalled.values(1) == [b"0", b"1", b"2", b"at once"]
    assert [reply.error for reply in replies(stalled, 1)] == [None] * (level is not Acks.NONE)
