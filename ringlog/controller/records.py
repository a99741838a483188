"""The records of the metadata log, and how they travel: each is a tagged msgpack array. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ringlog.errors import CorruptFrame
from ringlog.limits import DELTA_RECORDS_MAX
from ringlog.model import NO_LEADER

NO_CONTROLLER = -1


class _Record(msgspec.Struct, array_like=True, frozen=True, tag=True, gc=False):
    """A change of metadata. Fields are only ever added at the end, with a default."""


class Topic(_Record, frozen=True, tag="topic"):
    """A topic came to be."""

    topic_id: int
    name: str
    config: dict[str, str]


class Partition(_Record, frozen=True, tag="partition"):
    """A partition came to be, or changed. `partition` is its id in frames: given once, never again.

    A node on its own leaves everything behind `leader_epoch` at its default: it leads all that it has.
    """

    partition: int
    topic_id: int
    index: int
    shard: int
    leader_epoch: int = 0
    """Grows with every change of the leader, also to none: who speaks with a lower one is not heard."""
    partition_epoch: int = 0
    """Grows with every change of the fields below: changes of the in-sync replicas are compared with it."""
    replicas: tuple[int, ...] = ()
    """Ids of the nodes that keep it; the first one is preferred as leader. Empty: the only node there is."""
    shards: tuple[int, ...] = ()
    """The shard that serves it on each of `replicas`, in the same order."""
    leader: int = NO_LEADER
    isr: tuple[int, ...] = ()
    """The replicas that have all that is committed. Without a leader it says who may lead again; empty, nobody
    may: the last one lost its disk."""
    adding: tuple[int, ...] = ()
    """Of a reassignment: replicas that are to stay, and were not there before."""
    removing: tuple[int, ...] = ()
    """Of a reassignment: replicas that go when the new ones are in sync."""
    unclean_epoch: int = -1
    """The last leader epoch that began with a leader that was not in sync: what was committed before it may be lost."""
    former: tuple[int, ...] = ()
    """Of a reassignment: the replicas before it, in their order. Empty: there is none, or an older version began it."""

    def shard_on(self, node_id: int) -> int | None:
        """The shard that serves this partition on a node; None where it has no replica.

        >>> Partition(1, 1, 0, 0, replicas=(3, 1), shards=(2, 5)).shard_on(1)
        5
        """
        if not self.replicas:
            return self.shard
        return self.shards[self.replicas.index(node_id)] if node_id in self.replicas else None

    def leader_on(self, only_node: int) -> int:
        """The node that leads; the only one there is, when nobody replicates."""
        return self.leader if self.replicas else only_node


class Broker(_Record, frozen=True, tag="broker"):
    """A node registered, or what is known of it changed."""

    node_id: int
    broker_epoch: int
    """Given by the controller at every registration: what an earlier life of the node says is not heard."""
    incarnation: str
    """Chosen by the node at its start: a registration that is sent twice is one."""
    disk_id: str
    """Of the disk that it keeps its partitions on: another one means that it has nothing."""
    endpoints: tuple[str, ...]
    """Where clients reach it."""
    peer_endpoint: str
    """Where other nodes reach it."""
    rack: str = ""
    shards: int = 1
    fenced: bool = True
    """It may not lead, nor be in sync: it is silent, or has not caught up with the metadata."""
    leaving: bool = False
    """It is shutting down, and asked for its leaderships to be moved."""
    host_id: str = ""
    """Of the host that it runs on."""
    draining: bool = False
    """It is to have no replicas: those that it has move elsewhere, and it gets no new ones."""


class BrokerRemoved(_Record, frozen=True, tag="broker_removed"):
    """A node was taken out of the cluster for good: neither it nor another one with its id is let in again."""

    node_id: int


class TopicConfig(_Record, frozen=True, tag="config"):
    """The settings of a topic are these from now on."""

    topic_id: int
    config: dict[str, str]


class TopicRemoved(_Record, frozen=True, tag="removed"):
    """A topic is gone, with its partitions."""

    topic_id: int


class ProducerIds(_Record, frozen=True, tag="producer_ids"):
    """All producer ids below this one may have been given away."""

    next_producer_id: int


class Identity(_Record, frozen=True, tag="identity"):
    """The first record of all: which cluster this is."""

    cluster_id: str
    node_id: int


class NextIds(_Record, frozen=True, tag="next_ids"):
    """Ids of topics and partitions from these on were never given: also those of topics that are gone."""

    topic_id: int
    partition: int


class ClusterSettings(_Record, frozen=True, tag="settings"):
    """The settings of the whole cluster are these from now on."""

    settings: dict[str, str]


MetadataRecord = (
    Topic
    | Partition
    | TopicConfig
    | TopicRemoved
    | ProducerIds
    | Identity
    | NextIds
    | Broker
    | BrokerRemoved
    | ClusterSettings
)

_encoder = msgspec.msgpack.Encoder()
_one: msgspec.msgpack.Decoder[MetadataRecord] = msgspec.msgpack.Decoder(MetadataRecord)


class Delta(msgspec.Struct, array_like=True, frozen=True):
    """Metadata on its way to those who keep an image of it."""

    version: int
    """The version that the image has when all records are applied."""
    full: bool
    """Forget what you had: this begins anew."""
    more: bool
    """The rest of the same version follows."""
    records: list[MetadataRecord]
    controller_id: int = NO_CONTROLLER
    """The node whose controller decides, as far as the sender knows. Not in the log: it is who leads the quorum."""
    unheard: tuple[int, ...] = ()
    """While nobody decides: the nodes that the sender does not hear."""


_delta = msgspec.msgpack.Decoder(Delta)


def encode_record(record: MetadataRecord) -> bytes:
    """The value of a record of the metadata log."""
    return _encoder.encode(record)


def decode_record(data: bytes) -> MetadataRecord:
    """A record of the metadata log."""
    try:
        return _one.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise CorruptFrame("metadata record", 0, str(wrong)) from None


def encode_delta(delta: Delta) -> bytes:
    """The body of a delta's frame."""
    return _encoder.encode(delta)


def decode_delta(data: bytes | memoryview) -> Delta:
    """A delta, from a frame's body."""
    try:
        return _delta.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise CorruptFrame("delta", 0, str(wrong)) from None


def deltas_of(
    version: int,
    records: Sequence[MetadataRecord],
    *,
    full: bool,
    records_max: int = DELTA_RECORDS_MAX,
    controller_id: int = NO_CONTROLLER,
    unheard: tuple[int, ...] = (),
) -> list[Delta]:
    """Records cut into deltas that fit a ring.

    >>> [len(delta.records) for delta in deltas_of(9, [ProducerIds(n) for n in range(5)], full=True, records_max=2)]
    [2, 2, 1]
    """
    pieces = [list(records[at : at + records_max]) for at in range(0, len(records), records_max)] or [[]]
    return [
        Delta(version, full and at == 0, at < len(pieces) - 1, piece, controller_id, unheard)
        for at, piece in enumerate(pieces)
    ]
