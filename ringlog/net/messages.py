"""Bodies of frames: msgpack arrays for control, fixed structs for data. Pure; docs/PROTOCOL.md lists every field.

Fields are only ever added at the end, with a default: older peers leave them out, and skip those they do not know.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple, TypeVar

import msgspec
import numpy as np

from ringlog.errors import CorruptFrame
from ringlog.limits import CONTROL_BODY_BYTES_MAX, FETCH_PARTITIONS_MAX, TOPICS_MAX

# What a peer may say at most: a number that fits no field, or a list that would take seconds, ends at the decoder.
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
PartitionId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
_PER_PARTITION = msgspec.Meta(max_length=FETCH_PARTITIONS_MAX)


class Body(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A control body: a msgpack array of its fields in order."""


T = TypeVar("T", bound=Body)
_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type[Body], msgspec.msgpack.Decoder[Body]] = {}


def make_decoders(module: Mapping[str, object]) -> None:
    """Make those of all bodies of a module, as its last line. Never later: when two threads are the first to need the
    same one, msgspec hands the second a half-made description of it, and the process dies."""
    for kind in module.values():
        if isinstance(kind, type) and issubclass(kind, Body) and kind not in _decoders:
            _decoders[kind] = msgspec.msgpack.Decoder(kind)


def encode_body(body: msgspec.Struct) -> bytes:
    """The bytes of a control body."""
    return _encoder.encode(body)


def decode_body(data: bytes | memoryview, kind: type[T], *, bytes_max: int = CONTROL_BODY_BYTES_MAX) -> T:
    """A control body; CorruptFrame names what is wrong with it. Replies may be larger than requests.

    >>> decode_body(encode_body(MetadataRequest(topics=["a"])), MetadataRequest).topics
    ['a']
    """
    if len(data) > bytes_max:
        raise CorruptFrame("body", 32, f"{len(data)} bytes; a control body has at most {bytes_max}")
    decoder = _decoders[kind]
    try:
        return decoder.decode(data)  # type: ignore[return-value]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise CorruptFrame("body", 32, f"not a {kind.__name__}: {wrong}") from None


class ErrorReply(Body, frozen=True):
    """The body of a reply whose ERROR flag is set."""

    code: str
    message: str
    retriable: bool


# -- produce -----------------------------------------------------------------------------------------------

_PRODUCE_REPLY = struct.Struct("<qqqBB6x")
PRODUCE_REPLY_BYTES = _PRODUCE_REPLY.size


class ProduceReply(NamedTuple):
    """Where a batch stands. The request's body is one record batch v2, for the partition in the header."""

    base_offset: int
    append_time_ms: int
    """-1 where the topic keeps the producer's timestamps."""
    log_start_offset: int
    durability: int
    """A `model.Durability`."""
    repeated: int = 0
    """1: the batch was in the log before, and was not appended again."""

    def pack(self) -> bytes:
        return _PRODUCE_REPLY.pack(*self)

    @classmethod
    def unpack(cls, body: bytes | memoryview) -> ProduceReply:
        if len(body) != PRODUCE_REPLY_BYTES:
            raise CorruptFrame("body", 32, f"a produce reply of {len(body)} bytes")
        return cls._make(_PRODUCE_REPLY.unpack(body))


# -- fetch -------------------------------------------------------------------------------------------------


class FetchPartition(Body, frozen=True):
    """From where to read a partition, and how much at most (one batch is always served whole)."""

    partition: PartitionId
    offset: Int64
    bytes_max: Int64


class FetchRequest(Body, frozen=True):
    """Read partitions of one lane. Answered when `bytes_min` are there, at the latest after `wait_ms`.

    Incremental: with `session` 0 the shard opens a session and names it in the reply; later requests carry that
    number, and list only partitions that changed (a new offset, or new to the session) and those to forget.
    """

    session: Int64
    wait_ms: Int64
    bytes_min: Int64
    bytes_max: Int64
    partitions: Annotated[list[FetchPartition], _PER_PARTITION]
    forget: Annotated[list[PartitionId], _PER_PARTITION] = []
    follower: bool = False
    """Of a request that opens a session: replicas that follow serve it too, while they are in sync."""


FETCH_ROW = np.dtype(
    [
        ("partition", "<u4"),
        ("error", "<u2"),  # an error number, 0: none
        ("zero", "<u2"),
        ("log_start_offset", "<i8"),
        ("readable_offset", "<i8"),  # readers see what lies below
        ("next_offset", "<i8"),  # where to read from next
        ("data_bytes", "<u4"),
        ("zero2", "<u4"),
    ]
)
_FETCH_HEAD = struct.Struct("<II")
FETCH_HEAD_BYTES = _FETCH_HEAD.size
FETCH_ROW_PACK = struct.Struct("<IHHqqqII")
assert FETCH_ROW_PACK.size == FETCH_ROW.itemsize == 40


def pack_fetch_head(session: int, rows: Sequence[bytes]) -> bytes:
    """What goes before the data of a fetch reply: the session, the number of rows, and the rows."""
    return _FETCH_HEAD.pack(session, len(rows)) + b"".join(rows)


class FetchedPartition(NamedTuple):
    """One row of a fetch reply, and its batches: the first may begin below the offset that was asked for."""

    partition: int
    error: int
    log_start_offset: int
    readable_offset: int
    next_offset: int
    data: memoryview


def unpack_fetch_reply(body: memoryview) -> tuple[int, list[FetchedPartition]]:
    """The session and the rows of a fetch reply; their data are views of the body."""
    if len(body) < FETCH_HEAD_BYTES:
        raise CorruptFrame("body", 32, f"a fetch reply of {len(body)} bytes")
    session, count = _FETCH_HEAD.unpack_from(body)
    at = FETCH_HEAD_BYTES + count * FETCH_ROW.itemsize
    if at > len(body):
        raise CorruptFrame("rows", 36, f"{count} rows do not fit {len(body)} bytes")
    fetched: list[FetchedPartition] = []
    for row in FETCH_ROW_PACK.iter_unpack(body[FETCH_HEAD_BYTES:at]):
        partition, error, _, log_start, readable, next_offset, data_bytes, _ = row
        if data_bytes > len(body) - at:
            raise CorruptFrame("data_bytes", 32 + at, f"{data_bytes} bytes, and {len(body) - at} are left")
        data = body[at : at + data_bytes]
        fetched.append(FetchedPartition(partition, error, log_start, readable, next_offset, data))
        at += data_bytes
    if at != len(body):
        raise CorruptFrame("body", 32 + at, f"{len(body) - at} bytes are left over")
    return session, fetched


# -- offsets and descriptions of partitions ------------------------------------------------------------------

LATEST = -1
EARLIEST = -2


class OffsetQuery(Body, frozen=True):
    """LATEST, EARLIEST, or a time in milliseconds: the first record at or after it."""

    partition: PartitionId
    timestamp: Int64


class ListOffsetsRequest(Body, frozen=True):
    """For partitions of one lane."""

    queries: Annotated[list[OffsetQuery], _PER_PARTITION]


class FoundOffset(Body, frozen=True):
    """-1 for offset and timestamp when no record is that young."""

    partition: int
    error: int
    offset: int
    timestamp: int


class ListOffsetsReply(Body, frozen=True):
    """In the order of the queries."""

    found: list[FoundOffset]


class DescribePartitionsRequest(Body, frozen=True):
    """For partitions of one lane."""

    partitions: Annotated[list[PartitionId], _PER_PARTITION]


class PartitionDescription(Body, frozen=True):
    """The state of a partition's log."""

    partition: int
    error: int
    log_start_offset: int
    readable_offset: int
    next_offset: int
    log_bytes: int
    segments: int
    status: str


class DescribePartitionsReply(Body, frozen=True):
    """In the order of the request."""

    partitions: list[PartitionDescription]


class PartitionStart(Body, frozen=True):
    """Where a partition's log shall begin; LATEST: behind all that can be read."""

    partition: PartitionId
    offset: Int64


class DeleteRecordsRequest(Body, frozen=True):
    """For partitions of one lane."""

    partitions: Annotated[list[PartitionStart], _PER_PARTITION]


class DeletedRecords(Body, frozen=True):
    """Where a partition's log begins now, also after a power loss."""

    partition: int
    error: int
    log_start_offset: int


class DeleteRecordsReply(Body, frozen=True):
    """In the order of the request."""

    deleted: list[DeletedRecords]


class SplitQuery(Body, frozen=True):
    """A range of one partition, and about how many bytes of the log shall lie between two points."""

    partition: PartitionId
    start: Int64
    end: Int64
    step_bytes: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class SplitPointsRequest(Body, frozen=True):
    """For partitions of one lane."""

    queries: Annotated[list[SplitQuery], _PER_PARTITION]


class FoundSplit(Body, frozen=True):
    """Offsets inside of the range at which batches begin; their distance may be larger than what was asked for."""

    partition: int
    error: int
    step_bytes: int
    offsets: list[int]


class SplitPointsReply(Body, frozen=True):
    """In the order of the queries."""

    found: list[FoundSplit]


# -- metadata and its changes --------------------------------------------------------------------------------


class MetadataRequest(Body, frozen=True):
    """None: all topics. With `create`, topics that are missing are created with the node's defaults."""

    topics: Annotated[list[str], msgspec.Meta(max_length=TOPICS_MAX)] | None = None
    create: bool = False


class PartitionMetadata(Body, frozen=True):
    """`partition` is what frames name; `lane`: partitions with the same lane may share a fetch."""

    index: PartitionId
    partition: PartitionId
    lane: int
    """A number for the leader's node and shard together: equal ones name the same shard of the same node."""
    leader_node: int
    """The node that serves it; -1: none now."""
    leader_epoch: int = 0
    """Grows with every change of the leader: of two answers the one with the higher number is the newer."""
    replicas: list[int] = []
    """Ids of the nodes that keep it, the preferred leader first. Empty: the only node there is."""
    isr: list[int] = []
    """Those of `replicas` that have all that is committed."""
    lanes: list[int] = []
    """The lane that serves it on each of `replicas`, in their order, for reads from followers."""
    adding: list[int] = []
    """Of a partition that is being moved: those of `replicas` that are new."""
    removing: list[int] = []
    """And those that go when the new ones are in sync."""
    unclean_epoch: int = -1
    """The last leader epoch that began with a leader that was not in sync: records from before may be lost."""


class TopicMetadata(Body, frozen=True):
    """A topic, or why there is none: an error code, "" if all is well."""

    name: str
    error: str
    topic_id: int
    partitions: list[PartitionMetadata]
    config: dict[str, str]


class BrokerMetadata(Body, frozen=True):
    """A node of a cluster, and how clients reach it."""

    node_id: int
    endpoints: list[str]
    """Where it listens: tcp:// for all, ipc:// for clients whose host has the same `host_id`."""
    host_id: str
    rack: str = ""
    fenced: bool = False
    """It is silent, or has not caught up yet: it leads nothing now."""
    draining: bool = False
    """It is to keep nothing: its replicas go to other nodes, and it gets no new ones."""


class MetadataReply(Body, frozen=True):
    """What a client must know to send its requests to the right place."""

    cluster_id: str
    node_id: int
    version: int
    """Grows with every change of metadata."""
    endpoints: list[str]
    """Where the node listens: tcp:// for all, ipc:// for clients whose host has the same `host_id`."""
    host_id: str
    frame_bytes_max: int
    topics: list[TopicMetadata]
    topic_defaults: dict[str, str] = {}
    """What the node's configuration says of topics that do not say otherwise."""
    brokers: list[BrokerMetadata] = []
    """The nodes of the cluster. Empty: a node by itself, which serves all partitions."""
    controller_id: int = -1
    """The node that leads the metadata; -1: none is known."""
    unheard: list[int] = []
    """While none is: the nodes that the one that answers does not hear, whatever `brokers` and `isr` say of them."""


class InitProducerRequest(Body, frozen=True):
    """Ask for a producer id."""


class InitProducerReply(Body, frozen=True):
    """No other producer has, or had, this id."""

    producer_id: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    producer_epoch: Annotated[int, msgspec.Meta(ge=0, le=2**15 - 1)]


class ShareMemoryRequest(Body, frozen=True):
    """Let the node read batches out of memory: so many bytes behind a descriptor of the client's process."""

    descriptor: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    nbytes: Int64
    writable: bool = False
    """The node may write there, too: what fetches bring, where they say."""


class ShareMemoryReply(Body, frozen=True):
    """As much of it may be named in produce requests of this connection."""

    nbytes: int
    writable: bool = False
    """And in its fetches. Nodes that know of no such thing leave it out."""


class CreateTopicRequest(Body, frozen=True):
    """-1 partitions: the node's default."""

    name: str
    partitions: Int64 = -1
    replication_factor: Int64 = 1
    config: dict[str, str] = {}
    validate_only: bool = False


class DeleteTopicRequest(Body, frozen=True):
    """Remove a topic with all its records."""

    name: str


class AlterTopicRequest(Body, frozen=True):
    """Set configs; a value of None takes one back to its default."""

    name: str
    config: dict[str, str | None]


class AddPartitionsRequest(Body, frozen=True):
    """Let a topic have `partitions` in all."""

    name: str
    partitions: Int64


class TopicReply(Body, frozen=True):
    """The topic as it is after the change."""

    topic: TopicMetadata
    version: int


make_decoders(globals())
