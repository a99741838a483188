"""Nodes in threads that act as one cluster: leaders that can be moved, nodes that go, for tests of clients alone.

All nodes append to the same logs, as if replication were perfect, and each refuses what it does not lead.
"""

from __future__ import annotations

import threading
from collections import defaultdict

from ringlog import limits
from ringlog.errors import NotLeader, UnknownTopic
from ringlog.net import messages
from ringlog.net.framing import Api, Header
from ringlog.net.messages import decode_body, encode_body
from tests.support.router import MemoryLog, RouterNode

_ABOUT_A_PARTITION = (Api.PRODUCE, Api.DESCRIBE_PARTITIONS)


class ClusterNode(RouterNode):
    """One node; what it knows of the cluster may be held back."""

    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.silent = False
        """It reads, and does not answer: as a process that stands still, for its clients."""
        self.lags_since: tuple[int, dict[str, messages.TopicMetadata]] | None = None
        self.claims = node_id
        super().__init__()
        self.logs = cluster.logs

    def answer(self, header: Header, body: bytes) -> bytes:
        if self.silent:
            return b""
        if header.api_key == Api.METADATA:
            return self._metadata(decode_body(body, messages.MetadataRequest))
        with self.cluster.lock:
            if header.api_key in _ABOUT_A_PARTITION:
                leader = self.cluster.leader_of(header.partition)
                if leader != self.node_id:
                    raise NotLeader(f"node {leader} leads partition {header.partition}")
            if header.api_key == Api.CREATE_TOPIC:
                self.cluster.factors.append(decode_body(body, messages.CreateTopicRequest).replication_factor)
            self.producer_ids = self.cluster.producer_ids = self.cluster.producer_ids + 1
            return super().answer(header, body)

    def create(self, name, partitions=-1, config=None) -> messages.TopicMetadata:
        return self.cluster.create(name, self.default_partitions if partitions < 0 else partitions, config)

    def _metadata(self, asked: messages.MetadataRequest) -> bytes:
        with self.cluster.lock:
            if asked.create and not self.lags_since:
                for name in asked.topics or ():
                    if name not in self.cluster.topics:
                        self.create(name)
            version, topics = self.lags_since or (self.cluster.version, self.cluster.topics)
            names = list(topics) if asked.topics is None else asked.topics
            missing = [
                messages.TopicMetadata(n, UnknownTopic.code, 0, [], {}) for n in names if n not in topics
            ]
            return encode_body(
                messages.MetadataReply(
                    self.cluster.cluster_id,
                    self.claims,
                    version,
                    [self.endpoint],
                    "elsewhere",
                    limits.FRAME_BYTES_MAX,
                    [topics[name] for name in names if name in topics] + missing,
                    {},
                    self.cluster.brokers(),
                    self.cluster.controller_id,
                )
            )


class FakeCluster:
    """Nodes 1 to `nodes`. Partitions have a replica on each, and nobody changes a leader but the test."""

    def __init__(self, nodes: int = 3, partitions: int = 6, cluster_id: str = "fake") -> None:
        self.lock = threading.RLock()
        self.cluster_id = cluster_id
        self.version = 1
        self.topics: dict[str, messages.TopicMetadata] = {}
        self.logs: dict[int, MemoryLog] = defaultdict(MemoryLog)
        self.producer_ids = 1000
        self.fenced: set[int] = set()
        self.draining: set[int] = set()
        self.controller_id = 1
        self.factors: list[int] = []
        """The replication factors that were asked for."""
        self.nodes: dict[int, ClusterNode] = {}
        for node_id in range(1, nodes + 1):
            self.nodes[node_id] = ClusterNode(self, node_id)
            self.nodes[node_id].default_partitions = partitions

    def bootstrap(self, *node_ids: int) -> str:
        return ",".join(self.nodes[node_id].bootstrap for node_id in node_ids or self.nodes)

    def brokers(self) -> list[messages.BrokerMetadata]:
        return [
            messages.BrokerMetadata(
                n, [node.endpoint], "elsewhere", f"r{n}", n in self.fenced, n in self.draining
            )
            for n, node in self.nodes.items()
        ]

    def create(self, name: str, partitions: int = 6, config=None) -> messages.TopicMetadata:
        with self.lock:
            first = 100 * (len(self.topics) + 1)
            ids = sorted(self.nodes)
            places = [
                messages.PartitionMetadata(
                    i, first + i, 256 * ids[i % len(ids)], ids[i % len(ids)], 1, list(ids), list(ids)
                )
                for i in range(partitions)
            ]
            self.version += 1
            self.topics[name] = messages.TopicMetadata(name, "", first, places, dict(config or {}))
            return self.topics[name]

    def leader_of(self, partition: int) -> int:
        for topic in self.topics.values():
            for place in topic.partitions:
                if place.partition == partition:
                    return place.leader_node
        return -1

    def move(self, topic: str, index: int, to: int) -> None:
        """Let another node lead; -1: nobody."""
        with self.lock:
            known = self.topics[topic]
            places = list(known.partitions)
            old = places[index]
            places[index] = messages.PartitionMetadata(
                index,
                old.partition,
                256 * max(to, 0),
                to,
                old.leader_epoch + 1,
                old.replicas,
                [n for n in old.isr if n != old.leader_node or to == n],
            )
            self.version += 1
            self.topics[topic] = messages.TopicMetadata(topic, "", known.topic_id, places, known.config)

    def elect(self, gone: int) -> None:
        """Let others lead what a node led."""
        with self.lock:
            self.fenced.add(gone)
            living = [n for n in self.nodes if n not in self.fenced]
            for name, topic in list(self.topics.items()):
                for place in topic.partitions:
                    if place.leader_node == gone:
                        self.move(name, place.index, living[place.index % len(living)])

    def kill(self, node_id: int) -> None:
        self.nodes[node_id].pause()

    def asked(self, api: int) -> dict[int, list[int]]:
        """By node: the partitions of the requests of one kind that it got."""
        return {n: [h.partition for h in node.seen if h.api_key == api] for n, node in self.nodes.items()}

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.close()
