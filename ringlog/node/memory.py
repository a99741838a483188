"""The shared memory of a node: who makes which segment, and how much there is room for."""

from __future__ import annotations

import os

from ringlog.config import NodeConfig
from ringlog.errors import NodeFailed
from ringlog.limits import MIB
from ringlog.log.arena import SLAB_BYTES
from ringlog.ring.board import Board, Topology
from ringlog.ring.shm import SHM_DIR, SharedMemory
from ringlog.ring.stats import StatsPage

REGION_BYTES_MIN = 16 * MIB


def region_bytes(config: NodeConfig, topology: Topology, free_bytes: int | None = None) -> int:
    """Memory for one shard's buffers: what the config says, or less where shared memory is small."""
    if free_bytes is None:
        found = os.statvfs(SHM_DIR)
        free_bytes = found.f_bavail * found.f_frsize
    rings = sum(link.request_bytes + link.reply_bytes for link in topology.links)
    share = (free_bytes - rings) // 2 // topology.shards
    if share < REGION_BYTES_MIN:
        needed = rings + 2 * topology.shards * REGION_BYTES_MIN
        raise NodeFailed(
            f"{SHM_DIR} has {free_bytes // MIB} MiB free, and {topology.shards} shards need {needed // MIB} MiB. "
            "Give the container more (--shm-size=1g), or start fewer shards (--shards 1)"
        )
    return min(config.tail_bytes_per_shard, share) // SLAB_BYTES * SLAB_BYTES


class NodeMemory:
    """The board, the stats page, and the buffers of each shard. Links come and go; the supervisor makes them."""

    def __init__(self, config: NodeConfig, topology: Topology) -> None:
        size = region_bytes(config, topology)
        self.board_memory = SharedMemory.create("board", Board.bytes_needed(topology))
        processes = topology.process_count
        self.stats_memory = SharedMemory.create(
            "stats", StatsPage.bytes_needed(processes), StatsPage.head_bytes(processes)
        )
        self.regions = [
            SharedMemory.create(f"region-{n}", size, is_for_disk=True) for n in range(topology.shards)
        ]
        self.board = Board(memoryview(self.board_memory.memory), topology)
        self.stats = StatsPage(
            memoryview(self.stats_memory.memory), processes, reserve=self.stats_memory.reserve
        )

    def region(self, shard: int) -> memoryview:
        return memoryview(self.regions[shard].memory)

    def unlink(self) -> None:
        """Remove the names; the memory goes with the last process."""
        for memory in (self.board_memory, self.stats_memory, *self.regions):
            memory.unlink()
