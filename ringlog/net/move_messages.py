"""Bodies of requests that move replicas between the nodes of a cluster, and say how; and of their replies. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ringlog.limits import FETCH_PARTITIONS_MAX, REPLICATION_FACTOR_MAX
from ringlog.net.messages import Body, Int64, make_decoders

MOVE_BYTES_PER_S = "move.bytes.per.s"
"""The setting of a cluster: how many bytes a second the replicas that are moved to one node may take in all."""


LEADER_BALANCE = "leader.balance"
"""The setting of a cluster: `load` lets a partition of a busy node be led by another one of its replicas, which is
preferred from then on; `preferred` leaves the preferred leaders to those who name them."""


class PartitionMove(Body, frozen=True):
    """Where the replicas of a partition shall be; nowhere: as before a move that is under way."""

    topic: str
    partition: Int64
    """Its index in the topic."""
    replicas: Annotated[list[Int64], msgspec.Meta(max_length=REPLICATION_FACTOR_MAX)]
    """Ids of nodes, the preferred leader first."""


class ReassignRequest(Body, frozen=True):
    """Move partitions. Each is judged on its own."""

    moves: Annotated[list[PartitionMove], msgspec.Meta(min_length=1, max_length=FETCH_PARTITIONS_MAX)]


class DrainNodeRequest(Body, frozen=True):
    """Move all replicas of a node elsewhere, and give it no new ones."""

    node_id: Int64
    undo: bool = False
    """It may have replicas again; moves off it that are under way are called off."""
    remove: bool = False
    """It is drained and stopped, and goes for good: no node with its id is let in again."""


class MoveResult(Body, frozen=True):
    """What becomes of one partition."""

    topic: str
    partition: int
    replicas: list[int]
    """Where its replicas are going to be."""
    error: str
    """An error's code if it does not move, "" if it does."""
    message: str


class ReassignReply(Body, frozen=True):
    """The moves have begun: the old replicas go when the new ones are in sync. In the order of the request."""

    moves: list[MoveResult]
    version: int


class AlterClusterRequest(Body, frozen=True):
    """Change settings of the whole cluster; nothing changes with none, and the reply tells what there is."""

    settings: dict[str, str | None]
    """None: as if it had never been set."""


class AlterClusterReply(Body, frozen=True):
    """The settings as they are now."""

    settings: dict[str, str]
    version: int


make_decoders(globals())
