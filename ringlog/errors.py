"""Typed errors: each has a stable code, says what to do, and whether a retry can help."""

from __future__ import annotations

from typing import Any, ClassVar


class RinglogError(Exception):
    """The root of all errors that ringlog raises on purpose."""

    code: ClassVar[str] = "INTERNAL"
    retriable: ClassVar[bool] = False


class InvariantBroken(RinglogError):
    """Something that must always hold did not. A bug in ringlog, or memory that cannot be trusted."""

    code = "INVARIANT_BROKEN"


class InvalidRequest(RinglogError):
    """The caller asked for something that no state of the log could make right."""

    code = "INVALID_REQUEST"


class CorruptInput(RinglogError):
    """Bytes that a parser refused. Names the field, its position and what is wrong with it."""

    code = "CORRUPT_INPUT"

    def __init__(self, field: str, position: int, reason: str) -> None:
        super().__init__(f"{field} at byte {position}: {reason}")
        self.field = field
        self.position = position
        self.reason = reason

    def __reduce__(self) -> tuple[type[CorruptInput], tuple[str, int, str]]:
        return (type(self), (self.field, self.position, self.reason))


class CorruptBatch(CorruptInput):
    """A record batch that is not whole, or not what its CRC says."""

    code = "CORRUPT_BATCH"


class UnreadableBatch(CorruptBatch):
    """A batch that a consumer fetched and cannot read: `consumer.seek(error.partition, error.next_offset)` goes on
    behind it, without what it holds. Until then it is fetched, and raised, again."""

    def __init__(
        self,
        field: str,
        position: int,
        reason: str,
        partition: tuple[str, int],
        offset: int,
        next_offset: int,
    ) -> None:
        super().__init__(field, position, reason)
        self.partition = partition
        """(topic, partition), as `seek` takes it."""
        self.offset = offset
        """The first that cannot be read."""
        self.next_offset = next_offset
        """Where the next batch begins; `offset + 1` where not even that can be trusted."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (*super().__reduce__()[1], self.partition, self.offset, self.next_offset))


class CorruptFile(CorruptInput):
    """An index, snapshot or state file that does not hold what it must. These are derived: rebuilt when bad."""

    code = "CORRUPT_FILE"


class CorruptSegment(RinglogError):
    """A segment holds a broken batch where everything was already durable: it is quarantined, not deleted."""

    code = "CORRUPT_SEGMENT"


class BatchTooLarge(RinglogError):
    """One batch is larger than the partition accepts. Send smaller batches, or raise max.message.bytes."""

    code = "BATCH_TOO_LARGE"

    def __init__(self, what: str, advice: str = "", *, compression_helps: bool = False) -> None:
        """`advice` names settings of the library: who calls it by another name says it in words of his own."""
        super().__init__(f"{what}. {advice}" if advice else what)
        self.what = what
        self.advice = advice
        self.compression_helps = compression_helps
        """It may be small enough when it is compressed."""


class InvalidRecord(RinglogError):
    """A record cannot be kept by its topic: a compacted one knows records by their keys. Give it a key."""

    code = "INVALID_RECORD"


class OffsetOutOfRange(RinglogError):
    """The offset is below the log's start or above its end; the message names both."""

    code = "OFFSET_OUT_OF_RANGE"


class DataLoss(RinglogError):
    """Records that were asked for are no longer, or not, in the log; the message names the range."""

    code = "DATA_LOSS"


class BadValue(RinglogError):
    """A record's value is not what its reader was told that it is; the message names the record."""

    code = "BAD_VALUE"


class PartitionFenced(RinglogError):
    """A disk error made the partition's memory and its file differ: it takes no appends until it is reopened."""

    code = "PARTITION_FENCED"
    retriable = True


class PartitionBusy(RinglogError):
    """Too many bytes wait to be written, or batches to be acknowledged. Retry after a pause."""

    code = "PARTITION_BUSY"
    retriable = True


class DiskFull(RinglogError):
    """The file system has no room. Retry when space was freed."""

    code = "DISK_FULL"
    retriable = True


class DiskEngineUnavailable(RinglogError):
    """The disk engine that was asked for does not work here; the message says why and how to allow it."""

    code = "DISK_ENGINE_UNAVAILABLE"


class OutOfOrderSequence(RinglogError):
    """A producer skipped a sequence number: an earlier batch of its was lost or is still on its way."""

    code = "OUT_OF_ORDER_SEQUENCE"


class ProducerFenced(RinglogError):
    """A newer producer took over this producer id. Stop this one."""

    code = "PRODUCER_FENCED"


class RingFull(RinglogError):
    """The reader of a ring is behind. Retry when it has caught up."""

    code = "RING_FULL"
    retriable = True


class RingCorrupt(CorruptInput):
    """A ring's memory is in no state that a ring can have. It is not repaired: make a new generation."""

    code = "RING_CORRUPT"


class RingStale(RinglogError):
    """The handle is bound to a generation of the ring that is no more. Open the current one, then retry."""

    code = "RING_STALE"
    retriable = True


class RingTaken(RinglogError):
    """This generation of the ring already has, or had, a writer (or reader). Make a new generation."""

    code = "RING_TAKEN"


class RingClosed(RinglogError):
    """The reader of the ring closed it. Retry with the next generation."""

    code = "RING_CLOSED"
    retriable = True


class UnknownTopic(RinglogError):
    """No topic has this name. Create it: `ringlog topic create NAME`."""

    code = "UNKNOWN_TOPIC"


class TopicExists(RinglogError):
    """A topic with this name is there already."""

    code = "TOPIC_EXISTS"


class StaleMetadata(RinglogError):
    """The node has no such partition, or another shard serves it now. Fetch metadata, then retry."""

    code = "STALE_METADATA"
    retriable = True


class NotLeader(StaleMetadata):
    """Another node leads the partition, or none does yet. Fetch metadata, then retry there."""

    code = "NOT_LEADER"


class PartitionOffline(RinglogError):
    """The last in-sync replica of the partition is lost, and no other one is sure to have every record. Start its
    node again."""

    code = "PARTITION_OFFLINE"
    retriable = True


class NotEnoughReplicas(RinglogError):
    """Fewer replicas are in sync than min.insync.replicas asks for. Retry when one is back."""

    code = "NOT_ENOUGH_REPLICAS"
    retriable = True


class OffsetNotAvailable(RinglogError):
    """A new leader does not know yet how far the log is committed. Retry after a pause."""

    code = "OFFSET_NOT_AVAILABLE"
    retriable = True


class FencedLeaderEpoch(RinglogError):
    """The message is of a leader epoch that is over. Follow the metadata."""

    code = "FENCED_LEADER_EPOCH"


class UnknownLeaderEpoch(RinglogError):
    """The message is of a leader epoch that this node has not heard of yet. Retry after a pause."""

    code = "UNKNOWN_LEADER_EPOCH"
    retriable = True


class ReplicaHalted(RinglogError):
    """A replica and its leader differ in records that were committed. Neither may be cut: compare them first."""

    code = "REPLICA_HALTED"


class ShardUnavailable(RinglogError):
    """The process that serves the partition died and is being restarted. What it had not answered may be in the
    log or not: retry."""

    code = "SHARD_UNAVAILABLE"
    retriable = True


class ControllerUnavailable(RinglogError):
    """The process that owns the metadata is being restarted. Retry; look first when the request changes something."""

    code = "CONTROLLER_UNAVAILABLE"
    retriable = True


class NotController(RinglogError):
    """This node does not lead the cluster's metadata, or no longer does. Retry: the one that does is asked next."""

    code = "NOT_CONTROLLER"
    retriable = True


class StaleBroker(RinglogError):
    """The controller knows a later life of this node, or none. Register again."""

    code = "STALE_BROKER"
    retriable = True


class NotEnoughBrokers(RinglogError):
    """Fewer nodes are ready than there are to be replicas. Retry when more have joined, or ask for fewer."""

    code = "NOT_ENOUGH_BROKERS"
    retriable = True


class NodeUnavailable(RinglogError):
    """No node answers at this address. Start one with `ringlog start`, or check --bootstrap."""

    code = "NODE_UNAVAILABLE"
    retriable = True


class RequestTimeout(RinglogError, TimeoutError):
    """The answer did not come in time. The request may have been done or not: retry."""

    code = "REQUEST_TIMEOUT"
    retriable = True


class Overloaded(RinglogError):
    """A bound on requests or bytes in flight is reached. Retry after a pause."""

    code = "OVERLOADED"
    retriable = True


class LimitExceeded(RinglogError):
    """The node has as many topics, partitions or connections as it takes."""

    code = "LIMIT_EXCEEDED"


class FetchSessionLost(RinglogError):
    """The shard no longer knows this incremental fetch. Send a full one."""

    code = "FETCH_SESSION_LOST"
    retriable = True


class MemberFenced(RinglogError):
    """The group does not know this member, or gave the partition to another since. Drop everything and rejoin."""

    code = "MEMBER_FENCED"


class InstanceFenced(RinglogError):
    """Another process joined with the same group_instance_id. Stop one of the two, or give each a name of its own."""

    code = "INSTANCE_FENCED"


class UnknownGroup(RinglogError):
    """No group has this name: it never committed nor had members, or its offsets have expired."""

    code = "UNKNOWN_GROUP"


class GroupNotEmpty(RinglogError):
    """The group has members. Stop them, then retry."""

    code = "GROUP_NOT_EMPTY"


class CoordinatorLoading(RinglogError):
    """The state of the group is being read from its log. Retry after a pause."""

    code = "COORDINATOR_LOADING"
    retriable = True


class UnsupportedVersion(RinglogError):
    """The peer speaks a version of the protocol, or an api, that this side does not know. Upgrade the older one."""

    code = "UNSUPPORTED_VERSION"


class CorruptFrame(CorruptInput):
    """A frame that is not what its header says, or whose body cannot be read."""

    code = "CORRUPT_FRAME"


class DeliveryTimeout(RinglogError):
    """A record was not acknowledged within delivery_timeout_ms. It may be in the log or not."""

    code = "DELIVERY_TIMEOUT"


class BufferFull(RinglogError):
    """The producer's buffer_memory stayed full for max_block_ms. Produce more slowly, or raise buffer_memory."""

    code = "BUFFER_FULL"
    retriable = True


class ClientClosed(RinglogError):
    """The client was closed. Make a new one."""

    code = "CLIENT_CLOSED"


class EpochMismatch(RinglogError):
    """A streaming query writes an epoch that is not the one in the log under its number; the message says how to
    write it all the same."""

    code = "EPOCH_MISMATCH"


class NodeRunning(RinglogError):
    """Another process holds the data directory; the message says which."""

    code = "NODE_RUNNING"


class NodeFailed(RinglogError):
    """The node did not start; the message says why."""

    code = "NODE_FAILED"


class ClusterMismatch(RinglogError):
    """The node, or its data directory, is of another cluster than it was told; the message says of which."""

    code = "CLUSTER_MISMATCH"


def check(condition: bool, what_must_hold: str) -> None:
    """Raise InvariantBroken unless the condition holds. Always on: a broken invariant must not reach a disk.

    >>> check(1 + 1 == 2, "arithmetic works")
    """
    if not condition:
        raise InvariantBroken(what_must_hold)
