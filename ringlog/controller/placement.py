"""Where the replicas of new partitions go: on nodes that have the fewest, in as many racks as there are. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Broker, Partition
from ringlog.errors import NotEnoughBrokers


class Placement:
    """Chooses replicas one partition after another, and remembers what it chose."""

    def __init__(self, image: MetadataImage, ready: Iterable[Broker], absent: Iterable[Broker] = ()) -> None:
        """`absent`: nodes that are chosen only where those that are ready are too few."""
        self._brokers = {broker.node_id: broker for broker in ready}
        self._absent = {broker.node_id for broker in absent} - self._brokers.keys()
        self._brokers |= {broker.node_id: broker for broker in absent}
        self._racks = {broker.node_id: broker.rack for broker in image.brokers.values()}
        self._replicas: Counter[int] = Counter()
        self._leaders: Counter[int] = Counter()
        self._leading = {node_id: [0] * broker.shards for node_id, broker in self._brokers.items()}
        """On each shard of a node: how many partitions it leads, or should."""
        self._following = {node_id: [0] * broker.shards for node_id, broker in self._brokers.items()}
        for partition in image.partitions.values():
            self._count(partition)

    def _count(self, partition: Partition) -> None:
        for at, (node_id, shard) in enumerate(zip(partition.replicas, partition.shards, strict=True)):
            self._replicas[node_id] += 1
            self._leaders[node_id] += at == 0
            loads = self._following if at else self._leading
            if node_id in loads and shard < len(loads[node_id]):
                loads[node_id][shard] += 1

    def choose(self, factor: int) -> tuple[int, ...]:
        """Nodes for one partition; the first is to lead it."""
        if factor > len(self._brokers):
            raise NotEnoughBrokers(
                f"replication factor {factor}, and {len(self._brokers)} nodes of the cluster are ready. "
                "Start more, or use a smaller factor"
            )
        chosen: list[int] = []
        while len(chosen) < factor:
            chosen.append(self._next(chosen))
            self._replicas[chosen[-1]] += 1
        self._leaders[chosen[0]] += 1
        return tuple(chosen)

    def _next(self, chosen: Collection[int], racks: Sequence[str] | None = None) -> int:
        """The next replica beside those that were chosen; `racks`: those that are taken, if not those of the chosen."""
        racks = [self._racks[node_id] for node_id in chosen] if racks is None else racks

        def cost(broker: Broker) -> tuple[bool, int, int, int, int]:
            leads = 0 if chosen else self._leaders[broker.node_id]
            is_absent = broker.node_id in self._absent
            return is_absent, racks.count(broker.rack), leads, self._replicas[broker.node_id], broker.node_id

        return min((b for b in self._brokers.values() if b.node_id not in chosen), key=cost).node_id

    def instead_of(self, leaving: int, replicas: Collection[int]) -> int | None:
        """The node that should have a replica in the place of another; None when none could."""
        stay = [node_id for node_id in replicas if node_id != leaving]
        if all(node_id in replicas for node_id in self._brokers):
            return None
        heir = self._next(replicas, [self._racks[node_id] for node_id in stay if node_id in self._racks])
        self._replicas[heir] += 1
        return heir

    def shard_on(self, node_id: int, *, leads: bool = False) -> int:
        """The shard of a node that leads, or follows, the fewest partitions; it has one more from now on. Apart,
        since a leader has several times a follower's work."""
        leading, following = self._leading[node_id], self._following[node_id]
        mine = leading if leads else following

        def cost(shard: int) -> tuple[int, int]:
            return mine[shard], leading[shard] + following[shard]

        shard = min(range(len(mine)), key=cost)
        mine[shard] += 1
        return shard
