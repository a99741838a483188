"""What nodes of a cluster say to the controller, and it to them: bodies of frames. Pure.

Fields are only ever added at the end, with a default, as in `net/messages.py`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ringlog.limits import FETCH_PARTITIONS_MAX, LOAD_PARTITIONS_MAX, SHARDS_MAX
from ringlog.net.messages import Body, Int64, PartitionId, make_decoders

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
ShardIndex = Annotated[int, msgspec.Meta(ge=0, lt=SHARDS_MAX)]

# -- brokers ------------------------------------------------------------------------------------------------


class RegisterBrokerRequest(Body, frozen=True):
    """A node is there. It stays fenced until a heartbeat says that it has caught up with the metadata."""

    node_id: Int64
    incarnation: str
    disk_id: str
    endpoints: list[str]
    peer_endpoint: str
    rack: str = ""
    shards: Int64 = 1
    clean_stop: bool = False
    """It stopped in order before: all that it acknowledged as an in-sync replica is on its disk."""
    host_id: str = ""
    """Of the host that it runs on: clients with the same one may use its ipc:// endpoints."""
    flush: str = "ack"
    """When it flushes records of topics that do not say so themselves, by its configuration."""


class RegisterBrokerReply(Body, frozen=True):
    """The epoch that all further requests of this life of the node carry."""

    broker_epoch: int
    metadata_version: int = 0
    """What was committed then: the node serves nothing before it knows as much."""


class BrokerHeartbeatRequest(Body, frozen=True):
    """A sign of life."""

    node_id: Int64
    broker_epoch: Int64
    metadata_version: Int64
    """Up to which the node has applied the metadata."""
    want_stop: bool = False
    """It would like to stop, and asks for its leaderships to be moved first."""
    loads: Annotated[list[tuple[PartitionId, Count]], msgspec.Meta(max_length=LOAD_PARTITIONS_MAX)] = (
        msgspec.field(default_factory=list)
    )
    """Partitions that it leads, with the bytes that went in and out in a second; with some of the heartbeats."""
    still_shards: Annotated[list[ShardIndex], msgspec.Meta(max_length=SHARDS_MAX)] = msgspec.field(
        default_factory=list
    )
    """Shards of it that stand still, while the rest of it lives."""


class BrokerHeartbeatReply(Body, frozen=True):
    """What the node is to think of itself."""

    fenced: bool
    may_stop: bool = False
    """It leads nothing any more."""


class CreateOffsetsTopicRequest(Body, frozen=True):
    """A client of the node needs the topic that groups are kept in."""


# -- partitions ---------------------------------------------------------------------------------------------


class IsrChange(Body, frozen=True):
    """The leader of a partition proposes its in-sync replicas; compared with the partition epoch, then set."""

    partition: PartitionId
    leader_epoch: Int64
    partition_epoch: Int64
    isr: Annotated[list[tuple[Int64, Int64]], msgspec.Meta(min_length=1, max_length=64)]
    """Each with the broker epoch under which it fetched: one that restarted since may have lost what it had."""
    renews: bool = False
    """A new leader epoch is wanted, and the in-sync replicas stay what they are."""


class AlterIsrRequest(Body, frozen=True):
    """Changes of the in-sync replicas, by the node that leads these partitions."""

    node_id: Int64
    broker_epoch: Int64
    changes: Annotated[list[IsrChange], msgspec.Meta(max_length=FETCH_PARTITIONS_MAX)]


class IsrState(Body, frozen=True):
    """How a partition stands after a change, or why it was refused: an error number, 0 if all is well."""

    partition: int
    error: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: list[int]


class AlterIsrReply(Body, frozen=True):
    """In the order of the changes."""

    partitions: list[IsrState]


make_decoders(globals())
