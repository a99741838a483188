"""How much memory a shard gets: what was asked for, less where there is little, and a clear word below that."""

from __future__ import annotations

import pytest

from ringlog.config import NodeConfig
from ringlog.errors import NodeFailed
from ringlog.limits import GIB, MIB
from ringlog.log.arena import SLAB_BYTES
from ringlog.node.memory import REGION_BYTES_MIN, region_bytes
from ringlog.ring.board import Topology

CONFIG = NodeConfig(data_dir="/x", tail_bytes_per_shard=256 * MIB)


def test_a_shard_gets_what_was_asked_for_where_there_is_room():
    assert region_bytes(CONFIG, Topology(nets=1, shards=2), free_bytes=64 * GIB) == 256 * MIB


@pytest.mark.parametrize("shards", [1, 2, 8])
@pytest.mark.parametrize("free_mib", [700, 1024, 2048, 3001])
def test_rings_and_regions_fit_what_is_free(shards, free_mib):
    topology = Topology(nets=1, shards=shards)
    rings = sum(link.request_bytes + link.reply_bytes for link in topology.links)
    size = region_bytes(CONFIG, topology, free_bytes=free_mib * MIB)
    assert rings + shards * size <= free_mib * MIB
    assert size >= REGION_BYTES_MIN
    assert size % SLAB_BYTES == 0


def test_too_little_memory_is_refused_with_what_to_do():
    with pytest.raises(NodeFailed, match="--shm-size"):
        region_bytes(CONFIG, Topology(nets=1, shards=4), free_bytes=64 * MIB)
