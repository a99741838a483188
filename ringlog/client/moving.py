"""Moves of replicas between the nodes of a cluster: what is asked for, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ringlog.client.connection import Connection
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.move_messages import (
    MOVE_BYTES_PER_S,
    AlterClusterReply,
    AlterClusterRequest,
    DrainNodeRequest,
    PartitionMove,
    ReassignReply,
    ReassignRequest,
)

__all__ = ["MOVE_BYTES_PER_S", "Move", "alter_cluster", "drain", "reassign", "remove"]


class Move(NamedTuple):
    """One partition of a move."""

    partition: TopicPartition
    replicas: list[int]
    """The nodes that are going to keep it, the preferred leader first."""
    error: str = ""
    """Why it stays where it is: an error's code; "" when it moves."""
    message: str = ""


def reassign(
    connection: Connection, targets: Mapping[TopicPartition, Sequence[int]], timeout_s: float | None
) -> list[Move]:
    """Have partitions moved to these nodes; no nodes: call off what is under way."""
    moves = [PartitionMove(tp.topic, tp.partition, list(nodes)) for tp, nodes in targets.items()]
    if not moves:
        return []
    reply = connection.call(Api.REASSIGN, ReassignRequest(moves), ReassignReply, timeout_s=timeout_s)
    return _moves(reply)


def drain(connection: Connection, node_id: int, *, undo: bool, timeout_s: float | None) -> list[Move]:
    """Have everything moved off a node; `undo`: not any more."""
    request = DrainNodeRequest(node_id, undo)
    return _moves(connection.call(Api.DRAIN_NODE, request, ReassignReply, timeout_s=timeout_s))


def remove(connection: Connection, node_id: int, timeout_s: float | None) -> None:
    """Take a node that is drained and stopped out of the cluster, for good."""
    request = DrainNodeRequest(node_id, remove=True)
    connection.call(Api.DRAIN_NODE, request, ReassignReply, timeout_s=timeout_s)


def alter_cluster(
    connection: Connection, settings: Mapping[str, str | None], timeout_s: float | None
) -> dict[str, str]:
    """Change settings of the whole cluster; returns all that are set then."""
    request = AlterClusterRequest(dict(settings))
    return connection.call(Api.ALTER_CLUSTER, request, AlterClusterReply, timeout_s=timeout_s).settings


def _moves(reply: ReassignReply) -> list[Move]:
    return [
        Move(TopicPartition(one.topic, one.partition), list(one.replicas), one.error, one.message)
        for one in reply.moves
    ]
