"""The image of the metadata: what its records add up to, the same in every process that follows them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from ringlog.controller.records import (
    NO_CONTROLLER,
    Broker,
    BrokerRemoved,
    ClusterSettings,
    Delta,
    Identity,
    MetadataRecord,
    NextIds,
    Partition,
    ProducerIds,
    Topic,
    TopicConfig,
    TopicRemoved,
)
from ringlog.model import TopicPartition


@dataclass(slots=True)
class TopicState:
    """One topic."""

    topic_id: int
    name: str
    config: dict[str, str]
    partitions: list[int] = field(default_factory=list)
    """Ids of its partitions, by index."""


class MetadataImage:
    """All topics and partitions as of one version."""

    def __init__(self) -> None:
        self._staged: list[Delta] = []
        self._begin()

    def _begin(self) -> None:
        self.version = 0
        self.cluster_id = ""
        self.node_id = 0
        self.controller_id = NO_CONTROLLER
        self.unheard: tuple[int, ...] = ()
        """While nobody leads the metadata: the nodes that this one does not hear."""
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[int, TopicState] = {}
        self.partitions: dict[int, Partition] = {}
        self.brokers: dict[int, Broker] = {}
        self.removed: set[int] = set()
        """Ids of nodes that were taken out for good: none is ever given again."""
        self.settings: dict[str, str] = {}
        """Of the whole cluster."""
        self.next_broker_epoch = 1
        self.next_topic_id = 1
        self.next_partition = 1
        self.next_producer_id = 0

    def name_of(self, partition: int) -> TopicPartition:
        """Topic and index of a partition id."""
        found = self.partitions[partition]
        return TopicPartition(self.topics_by_id[found.topic_id].name, found.index)

    def apply(self, delta: Delta) -> None:
        """Bring the image up to a delta. One in several pieces takes effect with its last: nobody sees half of it."""
        if delta.full:
            self._staged.clear()
        self._staged.append(delta)
        if delta.more:
            return
        staged, self._staged = self._staged, []
        if staged[0].full:
            self._begin()
        for piece in staged:
            for record in piece.records:
                self.replay(record)
        self.version = delta.version
        self.controller_id, self.unheard = delta.controller_id, delta.unheard

    def replay(self, record: MetadataRecord) -> None:
        """Apply one record."""
        match record:
            case Topic():
                topic = TopicState(record.topic_id, record.name, dict(record.config))
                self.topics[record.name] = self.topics_by_id[record.topic_id] = topic
                self.next_topic_id = max(self.next_topic_id, record.topic_id + 1)
            case Partition():
                if record.partition not in self.partitions:
                    self.topics_by_id[record.topic_id].partitions.append(record.partition)
                self.partitions[record.partition] = record
                self.next_partition = max(self.next_partition, record.partition + 1)
            case TopicConfig():
                self.topics_by_id[record.topic_id].config = dict(record.config)
            case TopicRemoved():
                gone = self.topics_by_id.pop(record.topic_id)
                del self.topics[gone.name]
                for partition in gone.partitions:
                    del self.partitions[partition]
            case ProducerIds():
                self.next_producer_id = max(self.next_producer_id, record.next_producer_id)
            case NextIds():
                self.next_topic_id = max(self.next_topic_id, record.topic_id)
                self.next_partition = max(self.next_partition, record.partition)
            case Identity():
                self.cluster_id, self.node_id = record.cluster_id, record.node_id
            case Broker():
                self.brokers[record.node_id] = record
                self.next_broker_epoch = max(self.next_broker_epoch, record.broker_epoch + 1)
            case BrokerRemoved():
                self.brokers.pop(record.node_id, None)
                self.removed.add(record.node_id)
            case ClusterSettings():
                self.settings = dict(record.settings)

    def records(self) -> list[MetadataRecord]:
        """Records that make this image from nothing."""
        made: list[MetadataRecord] = [Identity(self.cluster_id, self.node_id)] if self.cluster_id else []
        made += self.brokers.values()
        made += [BrokerRemoved(node_id) for node_id in sorted(self.removed)]
        if self.settings:
            made.append(ClusterSettings(self.settings))
        for topic in self.topics.values():
            made.append(Topic(topic.topic_id, topic.name, topic.config))
            made += [self.partitions[partition] for partition in topic.partitions]
        made += [NextIds(self.next_topic_id, self.next_partition), ProducerIds(self.next_producer_id)]
        return made

    def shard_loads(self, shards: int) -> list[int]:
        """How many partitions each shard serves."""
        loads = [0] * shards
        for partition in self.partitions.values():
            if partition.shard < shards:
                loads[partition.shard] += 1
        return loads
