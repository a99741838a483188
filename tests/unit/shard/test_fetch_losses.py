"""Fetches while what they read, or who they are for, goes away: nothing is left watching, raised or lent."""

from __future__ import annotations

import pytest

from ringlog.shard import fetching
from tests.support.shard_cluster import PARTITION, ShardCluster


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
