"""Leaders by load: which partition should be led elsewhere, so that no node has far more to do than the others. Pure.

Nodes tell with their heartbeats what goes in and out of the partitions that they lead. That is not in the log: another
controller hears it again within seconds. When one node has had the most to do for some time, and far more than its
share, the leadership of one partition moves to an in-sync replica, which becomes the preferred one: so this and the
return to preferred leaders never pull in two directions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ringlog.controller import leaders
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import MetadataRecord, Partition
from ringlog.limits import LOAD_REPORT_MS

LOOK_MS = 3_000.0
"""Between two looks at who has the most to do."""
LOOKS = 3
"""In so many looks one after another a node must have far too much before something moves: a burst moves nothing."""
STALE_MS = 3.0 * LOAD_REPORT_MS
"""What was not told again for so long is over."""
FLOOR_BYTES_PER_S = 1_000_000
"""A node with less than that to do has no reason to give anything away."""
EXCESS = 1.25
"""Beside the mean of all nodes; less is not worth a change of leaders."""
GAIN = 0.9
"""The larger load of both nodes must fall to this share of what it was, or below."""


class _Load(NamedTuple):
    bytes_per_s: int
    at_ms: float


class _Step(NamedTuple):
    """A change of leaders, and what the busier of both nodes has to do after it."""

    busier: float
    partition: Partition
    heir: int


class LeaderLoads:
    """What goes in and out of each partition, as the active controller heard it."""

    def __init__(self, now_ms: float) -> None:
        self._loads: dict[int, _Load] = {}
        self._look_ms = now_ms + LOOK_MS
        self._busiest: int | None = None
        self._seen = 0
        """Looks in which it was that one."""

    def heard(self, loads: Iterable[tuple[int, int]], now_ms: float) -> None:
        """A node told what it has to do: partitions that it leads, and bytes a second."""
        for partition, bytes_per_s in loads:
            self._loads[partition] = _Load(bytes_per_s, now_ms)

    def due(self, image: MetadataImage, now_ms: float) -> list[MetadataRecord]:
        """The change of leaders that is due, if one is."""
        if now_ms < self._look_ms:
            return []
        self._look_ms = now_ms + LOOK_MS
        self._loads = {
            partition: load
            for partition, load in self._loads.items()
            if partition in image.partitions and now_ms - load.at_ms <= STALE_MS
        }
        nodes = self._nodes(image)
        busiest = max(nodes, key=lambda node: (nodes[node], -node), default=None)
        if busiest is None or not _has_too_much(nodes, busiest):
            self._busiest, self._seen = None, 0
            return []
        self._seen = self._seen + 1 if busiest == self._busiest else 1
        self._busiest = busiest
        if self._seen < LOOKS:
            return []
        self._busiest, self._seen = None, 0  # what comes of it is to be seen first
        step = self._best_step(image, nodes, busiest)
        return [_led_by(step.partition, step.heir)] if step is not None else []

    def _nodes(self, image: MetadataImage) -> dict[int, float]:
        """What each node that may lead has to do, in bytes a second."""
        nodes = {node: 0.0 for node in image.brokers if _may_take(image, node)}
        for partition, load in self._loads.items():
            leader = image.partitions[partition].leader
            if leader in nodes:
                nodes[leader] += load.bytes_per_s
        return nodes

    def _best_step(self, image: MetadataImage, nodes: dict[int, float], busiest: int) -> _Step | None:
        steps = [
            _Step(max(nodes[busiest] - load.bytes_per_s, nodes[heir] + load.bytes_per_s), partition, heir)
            for partition, load in ((image.partitions[number], load) for number, load in self._loads.items())
            if partition.leader == busiest and not (partition.adding or partition.removing)
            for heir in partition.isr
            if heir != busiest and heir in nodes
        ]
        best = min(
            steps, key=lambda step: (step.busier, nodes[step.heir], step.partition.partition), default=None
        )
        return best if best is not None and best.busier <= GAIN * nodes[busiest] else None


def _may_take(image: MetadataImage, node: int) -> bool:
    return leaders.may_lead(image, node) and not image.brokers[node].draining


def _has_too_much(nodes: dict[int, float], busiest: int) -> bool:
    mean = sum(nodes.values()) / len(nodes)
    return nodes[busiest] >= FLOOR_BYTES_PER_S and nodes[busiest] > EXCESS * mean


def _led_by(partition: Partition, heir: int) -> Partition:
    """The partition with another leader, which is the preferred one from now on."""
    places = dict(zip(partition.replicas, partition.shards, strict=True))
    replicas = (heir, *(node for node in partition.replicas if node != heir))
    preferring = msgspec.structs.replace(
        partition, replicas=replicas, shards=tuple(places[node] for node in replicas)
    )
    return leaders.changed(preferring, leader=heir, isr=partition.isr)
