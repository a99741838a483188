"""Fetches while what they read, or who they are for, goes away: nothing is left watching, raised or lent."""

from __future__ import annotations

import pytest

from ringlog.controller.records import TopicRemoved
from ringlog.errors import InvalidRequest, OffsetOutOfRange
from ringlog.limits import KIB, MIB
from ringlog.net.wire_errors import NUMBERS
from ringlog.replication.messages import ReplicaFetch, Want, encode_ask
from ringlog.shard import fetching
from ringlog.shard.commands import LENT, NodeApi, place, unpack_lent
from tests.support.shard_cluster import PARTITION, ShardCluster
from tests.support.shard_world import FakeOutlet, ShardWorld


def follower_out_of_sync(world_of: int = 3) -> tuple[ShardCluster, int]:
    """A follower that has served a session, and has fallen out of sync since; the session."""
    cluster = ShardCluster()
    for value in (b"a", b"b"):
        cluster.worlds[1].produce(value)
        cluster.run()
    world = cluster.worlds[world_of]
    world.net.take()
    world.fetch((PARTITION, 0), follower=True)
    session, rows = world.only_fetched()
    assert rows[PARTITION].next_offset == 1
    cluster.tell(isr=tuple(node for node in (1, 2, 3) if node != world_of))
    return cluster, session


@pytest.mark.parametrize("how", ["forgets it", "makes room", "is orphaned"])
def test_a_session_that_ends_does_not_watch_a_follower_that_fell_out_of_sync(how, monkeypatch):
    cluster, session = follower_out_of_sync()
    world = cluster.worlds[3]
    match how:
        case "forgets it":
            world.fetch(forget=(PARTITION,), session=session)
        case "makes room":
            monkeypatch.setattr(fetching, "FETCH_SESSIONS_PER_SHARD_MAX", 1)
            world.fetch(client=8)
        case "is orphaned":
            world.core.forget(world.net)
    for value in (b"c", b"d"):
        cluster.worlds[1].produce(value)
        cluster.run(20)
    assert not world.core.hosting.hosted[PARTITION].watchers
    assert world.log(PARTITION).readable_offset == 3, "it goes on replicating"


@pytest.fixture
def world() -> ShardWorld:
    world = ShardWorld()
    world.create(1, 2)
    return world


def test_a_read_that_ends_out_of_range_after_its_partition_left_is_told_to_its_client(world, monkeypatch):
    world.fill(b"a", b"b")
    world.evict_all()
    ends = []
    monkeypatch.setattr(world.store, "read", lambda *_where, done, failed: ends.append(failed))
    world.fetch((1, 0))
    world.delta(TopicRemoved(1))
    (failed,) = ends
    failed(OffsetOutOfRange("retention was faster"))
    assert world.only_fetched()[1][1].error == NUMBERS["OFFSET_OUT_OF_RANGE"]


class SmallRing(FakeOutlet):
    """Refuses what is too large, as a ring does."""

    def send(self, frame: bytes) -> None:
        if len(frame) > 2 * KIB:
            raise InvalidRequest("larger than a quarter of the ring")
        super().send(frame)


def small_appends(world: ShardWorld, partition: int, count: int) -> None:
    """Each of them is a piece of memory of its own."""
    for _ in range(count):
        world.produce(bytes(200), partition=partition)
        world.run()
    world.settle()
    world.net.take()


def test_a_fetch_of_many_small_appends_is_served_in_as_many_pieces_as_a_ring_takes(world, monkeypatch):
    monkeypatch.setattr(fetching, "LENT_RANGES_MAX", 100)
    monkeypatch.setattr(fetching, "INLINE_BYTES_MAX", 0)
    for partition in (1, 2):
        small_appends(world, partition, 150)
    at, session = {1: 0, 2: 0}, 0
    for _ in range(20):
        world.fetch(*at.items(), session=session)
        (reply,) = world.net.take()
        if reply.flags & LENT:
            assert len(unpack_lent(memoryview(reply.body)).ranges) <= 100
        session, rows = world.fetched(reply)
        at.update({partition: row.next_offset for partition, row in rows.items()})
    assert at == {1: 150, 2: 150}


def test_a_reply_that_fits_no_ring_is_refused_and_lends_nothing(world):
    before = world.free_bytes()
    small_appends(world, 1, 200)
    ring = SmallRing()
    world.fetch((1, 0), outlet=ring)
    (reply,) = ring.take()
    assert reply.error.code == "INVALID_REQUEST"
    assert world.free_bytes() == before


def test_a_cold_read_of_an_evicted_session_lends_nothing_to_a_dead_network_process(world, monkeypatch):
    monkeypatch.setattr(fetching, "FETCH_SESSIONS_PER_SHARD_MAX", 1)
    before = world.free_bytes()
    world.fill(bytes(20 * KIB))
    world.evict_all()
    world.disk.hold_all("read")
    world.fetch((1, 0))
    world.fetch(client=8, outlet=world.other_net)
    world.core.forget(world.net)
    world.disk.release_all()
    assert world.free_bytes() == before


def test_a_cold_read_for_a_follower_lends_nothing_to_a_dead_peer_process():
    cluster = ShardCluster()
    world = cluster.worlds[1]
    world.produce(bytes(100 * KIB))
    cluster.run()
    before = world.free_bytes()
    peers = FakeOutlet()
    want = Want(PARTITION, cluster.record.leader_epoch, 0, -1, 0, MIB, 0)
    fetch = ReplicaFetch(3, cluster.epochs[3], 0, 1 << 40, 0, 10, MIB, [want], [])
    world.disk.hold_all("read")
    world.send(NodeApi.REPLICA_FETCH, encode_ask(fetch), session=place(3), outlet=peers)
    world.core.forget(peers)
    world.disk.release_all()
    assert world.free_bytes() == before
