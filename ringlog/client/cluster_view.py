"""What a client knows of its cluster: the nodes and how to reach them, and which node leads each partition.

Written by whoever gets metadata, read by the I/O thread. A node by itself names no brokers and no replicas: then there
is nothing here, and everything goes to the one connection that there is.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable

from ringlog.errors import StaleMetadata
from ringlog.net.host import host_id
from ringlog.net.messages import BrokerMetadata, MetadataReply, PartitionMetadata, TopicMetadata, TopicReply
from ringlog.net.session import ANY_NODE

NO_LEADER = -2
"""In place of a node: a partition that nobody leads now."""


def node_of(place: PartitionMetadata) -> int:
    """The node that requests about a partition go to.

    >>> node_of(PartitionMetadata(0, 7, 0, 5)) == ANY_NODE
    True
    >>> node_of(PartitionMetadata(0, 7, 0, 5, 1, [5, 6], [5]))
    5
    """
    if not place.replicas:
        return ANY_NODE
    return place.leader_node if place.leader_node >= 0 else NO_LEADER


class ClusterView:
    """The nodes and leaders as they were last told; never an older answer in place of a newer one."""

    def __init__(self, seeds: list[str]) -> None:
        self.named = seeds
        """The endpoints that the user named, in an order of this client's own."""
        self._lock = threading.Lock()
        self._epochs: dict[int, int] = {}
        self.cluster_id = ""
        self.version = 0
        """Of the newest metadata that any node has told."""
        self.brokers: dict[int, BrokerMetadata] = {}
        self.routes: dict[int, int] = {}
        """The node that leads each partition, by the partition's id. Empty without a cluster."""
        self.moves = 0
        """Grows when a partition gets another leader."""

    def learn(self, reply: MetadataReply) -> None:
        """Take what a node says of its cluster. StaleMetadata, and nothing is taken, when it lags behind others."""
        if not reply.brokers:
            return
        with self._lock:
            if reply.cluster_id == self.cluster_id and reply.version < self.version:
                raise StaleMetadata(
                    f"node {reply.node_id} knows the cluster as of {reply.version}, and {self.version} is known. Retry"
                )
            self.cluster_id, self.version = reply.cluster_id, reply.version
            self.brokers = {broker.node_id: broker for broker in reply.brokers}
        self._learn_topics(reply.topics)

    def learn_change(self, reply: TopicReply) -> None:
        """Take what the controller answered: nodes that have not heard of it yet lag behind."""
        with self._lock:
            if self.brokers:
                self.version = max(self.version, reply.version)
        self._learn_topics([reply.topic])

    def _learn_topics(self, topics: Iterable[TopicMetadata]) -> None:
        """Take who leads the partitions of topics."""
        with self._lock:
            for topic in topics:
                for place in topic.partitions:
                    node = node_of(place)
                    if node == ANY_NODE or place.leader_epoch < self._epochs.get(place.partition, 0):
                        continue
                    self._epochs[place.partition] = place.leader_epoch
                    if self.routes.get(place.partition, node) != node:
                        self.moves += 1
                    self.routes[place.partition] = node

    def forget(self, topic: TopicMetadata) -> None:
        """Nobody asks for a topic any more, or it is not there: who leads its partitions need not be known."""
        with self._lock:
            for place in topic.partitions:
                self._epochs.pop(place.partition, None)
                self.routes.pop(place.partition, None)

    def nodes_in(self, rack: str) -> frozenset[int]:
        """The living nodes of a rack."""
        return frozenset(b.node_id for b in self.brokers.values() if b.rack == rack and not b.fenced)

    def endpoints_of(self, node: int) -> list[str]:
        """Where a node may be reached, the nearest first; nothing for one that is not known."""
        broker = self.brokers.get(node)
        if broker is None:
            return []
        near = [one for one in broker.endpoints if one.startswith("ipc://")]
        far = [one for one in broker.endpoints if not one.startswith("ipc://")]
        if broker.host_id != host_id():
            return far
        # A node with several network processes has a socket for each: clients spread over them.
        return random.sample(near, len(near)) + far

    def seeds(self, but: int = ANY_NODE) -> list[str]:
        """Where some node may be found: nodes that are known to live before those that the user named."""
        living = [b for b in self.brokers.values() if b.node_id != but and not b.fenced]
        known = [
            one
            for broker in random.sample(living, len(living))
            for one in broker.endpoints
            if one.startswith("tcp://")  # who answers there says whether it is near
        ]
        avoided = self.brokers[but].endpoints if but in self.brokers else []
        found = [one for one in (*known, *self.named) if one not in avoided]
        return list(dict.fromkeys(found)) or list(self.named)
