"""Shards that stand still while their nodes live: others lead what they led. Pure.

Nobody writes down who stands still: the active controller knows it by heartbeats, and a new one hears it again. A shard
is relieved when its node has said so twice in a row. By then all others have said how they are: when the disks of all
stand still at once, as those of one machine may, nobody is left alone with a partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ringlog.controller.image import MetadataImage
from ringlog.controller.leaders import relieved
from ringlog.controller.records import MetadataRecord, Partition
from ringlog.controller.topic_config import MIN_INSYNC, settings_in


class StillShards:
    """What the last heartbeat of each node said."""

    def __init__(self) -> None:
        self._of_node: dict[int, frozenset[int]] = {}

    def heard(
        self, image: MetadataImage, node_id: int, shards: Collection[int], topic_defaults: Mapping[str, str]
    ) -> list[MetadataRecord]:
        """A node says which of its shards stand still. Changes of partitions whose replicas are on one that did so at
        its last heartbeat, too: where as many that move are in sync as acknowledgements need, they do without it.

        Each is in a new leader epoch (`relieved`): in the old one its leader knows what the shard held, and would have
        it back at once."""
        before = self._of_node.get(node_id, frozenset())
        self._of_node[node_id] = frozenset(shards)
        still = before.intersection(shards)
        if not still:
            return []
        return [
            relieved(image, partition, node_id)
            for partition in image.partitions.values()
            if node_id in partition.isr
            and partition.shard_on(node_id) in still
            and self._moving(partition)
            >= max(1, int(settings_in(image, partition, topic_defaults)[MIN_INSYNC]))
        ]

    def _moving(self, partition: Partition) -> int:
        """How many replicas are in sync that do not stand still."""
        return sum(
            partition.shard_on(member) not in self._of_node.get(member, frozenset())
            for member in partition.isr
        )
