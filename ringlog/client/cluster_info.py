"""A cluster as operators see it: its nodes, what each leads and keeps, and which partitions are in danger. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ringlog.model import TopicPartition
from ringlog.net.messages import MetadataReply

MIN_INSYNC = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One node of a cluster."""

    node_id: int
    endpoints: list[str]
    rack: str
    live: bool
    """The controller hears of it, and it has caught up with the metadata. While there is no controller: the node that
    answered hears of it."""
    leads: int
    """Partitions that it leads."""
    replicas: int
    """Partitions that it keeps."""
    in_sync: int
    """Those of them in which it has all that is committed."""
    draining: bool = False
    """It is to keep nothing: see `drain_state`."""
    leaving: int = 0
    """Those of `replicas` that a move takes off it."""

    @property
    def drain_state(self) -> str:
        """`draining` while a node that is to keep nothing still has replicas, then `drained`; "" of all others."""
        if not self.draining:
            return ""
        return "draining" if self.replicas else "drained"


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """A cluster, or a node by itself, as the node that answered knows it."""

    cluster_id: str
    node_id: int
    """The node that answered."""
    metadata_version: int
    endpoints: list[str]
    topics: int
    partitions: int
    controller_id: int = -1
    """The node that leads the metadata; -1: none is known, or a node by itself."""
    nodes: list[NodeInfo] = field(default_factory=list)
    """By id; empty for a node by itself."""
    under_replicated: list[TopicPartition] = field(default_factory=list)
    """Partitions of which a replica is not in sync."""
    below_min_insync: list[TopicPartition] = field(default_factory=list)
    """Those that refuse acks=all, because fewer are in sync than `min.insync.replicas` asks for."""
    offline: list[TopicPartition] = field(default_factory=list)
    """Those that nobody leads: they can be neither written nor read."""

    moving: list[TopicPartition] = field(default_factory=list)
    """Those whose replicas are on their way to other nodes."""
    unclean: list[TopicPartition] = field(default_factory=list)
    """Those that a replica led which was not in sync, of topics that allow it: records may be lost."""

    @property
    def healthy(self) -> bool:
        """Every replica of every partition is in sync, and a node leads the metadata: without one nobody would know."""
        led = not self.nodes or self.controller_id >= 0
        return led and not (self.under_replicated or self.below_min_insync or self.offline)


def cluster_info(reply: MetadataReply) -> ClusterInfo:
    """What a metadata reply about all topics says of the cluster. Nobody is counted on who is not heard."""
    unheard = set(reply.unheard)
    leads: Counter[int] = Counter()
    keeps: Counter[int] = Counter()
    in_sync: Counter[int] = Counter()
    leaving: Counter[int] = Counter()
    behind: list[TopicPartition] = []
    refusing: list[TopicPartition] = []
    offline: list[TopicPartition] = []
    moving: list[TopicPartition] = []
    unclean: list[TopicPartition] = []
    for topic in reply.topics:
        needed = int(topic.config.get(MIN_INSYNC, reply.topic_defaults.get(MIN_INSYNC, "1")))
        allowed = topic.config.get(UNCLEAN_ELECTION, reply.topic_defaults.get(UNCLEAN_ELECTION, "false"))
        for place in topic.partitions:
            tp = TopicPartition(topic.name, place.index)
            leads[place.leader_node] += 1
            keeps.update(place.replicas)
            leaving.update(place.removing)
            isr = [node for node in place.isr if node not in unheard]
            in_sync.update(isr)
            if not place.replicas:
                continue
            if place.adding or place.removing:
                moving.append(tp)
            if len(isr) < len(place.replicas) - len(set(place.adding) - set(isr)):
                behind.append(tp)
            if place.unclean_epoch >= 0 and allowed == "true":
                unclean.append(tp)
            if place.leader_node < 0 or place.leader_node in unheard:
                offline.append(tp)
            elif len(isr) < needed:
                refusing.append(tp)
    nodes = [
        NodeInfo(
            broker.node_id,
            list(broker.endpoints),
            broker.rack,
            not broker.fenced and broker.node_id not in unheard,
            leads[broker.node_id],
            keeps[broker.node_id],
            in_sync[broker.node_id],
            broker.draining,
            leaving[broker.node_id],
        )
        for broker in sorted(reply.brokers, key=lambda one: one.node_id)
    ]
    return ClusterInfo(
        reply.cluster_id,
        reply.node_id,
        reply.version,
        list(reply.endpoints),
        len(reply.topics),
        sum(len(topic.partitions) for topic in reply.topics),
        reply.controller_id,
        nodes,
        behind,
        refusing,
        offline,
        moving,
        unclean,
    )
