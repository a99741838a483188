"""Elections of leaders that are not in sync, for topics that prefer a leader that lacks records to none. Pure.

It is the last resort. Nobody leads; every in-sync replica is absent, silent for longer than a restart takes; and it has
been so for as long: whoever comes back meanwhile leads, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from ringlog.controller import leaders
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import MetadataRecord, Partition
from ringlog.controller.topic_config import NOTHING, allows_unclean
from ringlog.limits import BROKER_ABSENT_MS
from ringlog.model import NO_LEADER


class UncleanElections:
    """Since when nobody leads which partition, as one active controller has seen it."""

    def __init__(
        self, topic_defaults: Mapping[str, str] = NOTHING, *, wait_ms: float = BROKER_ABSENT_MS
    ) -> None:
        self._topic_defaults = topic_defaults
        self._wait_ms = wait_ms
        self._leaderless_ms: dict[int, float] = {}

    def due(self, image: MetadataImage, absent: Collection[int], now_ms: float) -> list[MetadataRecord]:
        """Look at all partitions; changes for those that have waited long enough."""
        before, self._leaderless_ms = self._leaderless_ms, {}
        made: list[MetadataRecord] = []
        for number, partition in image.partitions.items():
            if partition.leader != NO_LEADER or not partition.replicas:
                continue
            since_ms = self._leaderless_ms[number] = before.get(number, now_ms)
            if now_ms - since_ms < self._wait_ms or not set(partition.isr) <= set(absent):
                continue
            topic = image.topics_by_id[partition.topic_id]
            if allows_unclean(topic.name, topic.config, self._topic_defaults):
                made += _elected(image, partition)
        return made


def _elected(image: MetadataImage, partition: Partition) -> list[MetadataRecord]:
    """The first replica that is there leads, and is the only one in sync. Not one that a move has only begun to make:
    it may have next to nothing."""
    leader = leaders.choose_leader(image, partition, set(partition.replicas) - set(partition.adding))
    if leader == NO_LEADER:
        return []
    elected = leaders.changed(partition, leader=leader, isr=(leader,))
    return [msgspec.structs.replace(elected, unclean_epoch=elected.leader_epoch)]
