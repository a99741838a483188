"""How far moves of replicas have come: what the new replicas have already of what their leaders have."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from ringlog.client.connection import Connection
from ringlog.errors import RinglogError
from ringlog.limits import FETCH_PARTITIONS_MAX
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import (
    DescribePartitionsReply,
    DescribePartitionsRequest,
    MetadataReply,
    PartitionMetadata,
    decode_body,
    encode_body,
)

Sizes = dict[tuple[int, int], int]
"""Bytes of a partition's log on a node, by (node, partition id), where that is known."""
_Lane = tuple[int, int]
"""A node, and a shard of it by a number of its own."""


class MoveProgress(NamedTuple):
    """One partition that is being moved."""

    partition: TopicPartition
    adding: list[int]
    """Nodes that get a replica."""
    removing: list[int]
    """Nodes whose replicas go when the new ones are in sync."""
    moved_bytes: int
    """What the new replicas have already."""
    total_bytes: int
    """What they will have, as far as is known: the leader's log, for each of them."""

    @property
    def percent(self) -> float:
        """100 only when the new replicas are in sync: then the move ends."""
        if not self.total_bytes:
            return 0.0
        return min(99.9, 100 * self.moved_bytes / self.total_bytes)


def progress(connection: Connection, timeout_s: float) -> list[MoveProgress]:
    """All moves that are under way. A node that does not answer in time counts as if it had nothing yet."""
    deadline_s = time.monotonic() + timeout_s
    reply = connection.metadata(None, timeout_s=timeout_s)
    sizes: Sizes = {}
    for (node, _), partitions in _questions(reply).items():
        for at in range(0, len(partitions), FETCH_PARTITIONS_MAX):
            some = partitions[at : at + FETCH_PARTITIONS_MAX]
            left_s = max(0.001, deadline_s - time.monotonic())
            sizes |= _sizes_on(connection, node, some, left_s)
    return moves_in(reply, sizes)


def moves_in(reply: MetadataReply, sizes: Sizes) -> list[MoveProgress]:
    """The moves that metadata tell of, with the sizes that nodes told."""
    found = []
    for tp, place in _moving(reply):
        leader = sizes.get((place.leader_node, place.partition), 0)
        moved = sum(
            leader if node in place.isr else min(leader, sizes.get((node, place.partition), 0))
            for node in place.adding
        )
        adding, removing = list(place.adding), list(place.removing)
        found.append(MoveProgress(tp, adding, removing, moved, leader * len(adding)))
    return found


def _moving(reply: MetadataReply) -> Iterator[tuple[TopicPartition, PartitionMetadata]]:
    for topic in reply.topics:
        for place in topic.partitions:
            if place.adding or place.removing:
                yield TopicPartition(topic.name, place.index), place


def _questions(reply: MetadataReply) -> dict[_Lane, list[int]]:
    """Who is to be asked about which partitions: their leaders, and the nodes that get a replica."""
    asked: dict[_Lane, list[int]] = defaultdict(list)
    for _, place in _moving(reply):
        for node, lane in zip(place.replicas, place.lanes, strict=True):
            if node == place.leader_node or node in place.adding:
                asked[node, lane].append(place.partition)
    return asked


def _sizes_on(connection: Connection, node: int, partitions: list[int], timeout_s: float) -> Sizes:
    body = encode_body(DescribePartitionsRequest(partitions))
    try:
        answer = connection.ask(Api.DESCRIBE_PARTITIONS, body, partitions[0], timeout_s, node=node)
        rows = decode_body(answer, DescribePartitionsReply).partitions
    except RinglogError as error:
        if not error.retriable:
            raise
        return {}
    return {(node, row.partition): row.log_bytes for row in rows if not row.error}
