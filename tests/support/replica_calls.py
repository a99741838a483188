"""What clients ask of replicated partitions in shards, and what they are told."""

from __future__ import annotations

from ringlog.model import Durability
from ringlog.net.framing import Acks
from tests.support.shard_cluster import PARTITION, ShardCluster


def produce(cluster: ShardCluster, node: int, *values: bytes, acks: Acks = Acks.ALL, producer=None) -> None:
    for value in values:
        cluster.worlds[node].produce(value, acks=acks, producer=producer)


def replies(cluster: ShardCluster, node: int) -> list:
    return cluster.worlds[node].net.take()


def acked(cluster: ShardCluster, node: int) -> list[int]:
    """Offsets of what was acknowledged as committed."""
    found = []
    for reply in replies(cluster, node):
        assert reply.error is None, reply.error
        assert reply.produced.durability == Durability.COMMITTED
        found.append(reply.produced.base_offset)
    return found


def read(cluster: ShardCluster, node: int, offset: int = 0, *, follower: bool = False):
    """What a consumer gets there."""
    world = cluster.worlds[node]
    world.net.take()
    world.fetch((PARTITION, offset), follower=follower)
    world.settle(5)
    _, rows = world.only_fetched()
    return rows[PARTITION]
