"""Topics, groups and the cluster: create, list, describe, alter, reset, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from ringlog.client import moving
from ringlog.client.cluster_info import ClusterInfo, cluster_info
from ringlog.client.commits import OffsetAndMetadata
from ringlog.client.connection import Connection
from ringlog.client.deleting import delete_records
from ringlog.client.describing import describe
from ringlog.client.group_admin import GroupAdmin, GroupInfo, PlannedReset
from ringlog.client.metadata import INTERNAL_PREFIX
from ringlog.client.move_progress import MoveProgress, progress
from ringlog.client.moving import Move
from ringlog.client.offsets import checked_offset
from ringlog.client.settings import AdminSettings, settings_of
from ringlog.client.splitting import SplitPoints, split_points
from ringlog.errors import InvalidRequest, RinglogError, TopicExists, UnknownTopic
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.group_messages import GroupSummary
from ringlog.net.messages import (
    EARLIEST,
    LATEST,
    AddPartitionsRequest,
    AlterTopicRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    PartitionDescription,
    PartitionMetadata,
    TopicMetadata,
    TopicReply,
)

NO_LEADER_STATUS = "no leader"
NO_ANSWER_STATUS = "no answer"
_ENDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition of a topic."""

    index: int
    leader: int
    log_start_offset: int
    readable_offset: int
    """Readers see what lies below: the high watermark."""
    next_offset: int
    bytes: int
    segments: int
    status: str
    """What its leader says; `NO_LEADER_STATUS` while nobody leads it, `NO_ANSWER_STATUS` when its leader did not answer
    in time: see `is_known`."""
    partition_id: int
    leader_epoch: int = 0
    replicas: list[int] = field(default_factory=list)
    """Ids of the nodes that keep it, the preferred leader first; none on a node by itself."""
    isr: list[int] = field(default_factory=list)
    """Those of them that are in sync."""

    @property
    def high_watermark(self) -> int:
        return self.readable_offset

    @property
    def is_known(self) -> bool:
        """Its leader has told of its log. Else offsets are -1, bytes and segments 0."""
        return self.log_start_offset >= 0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic, its settings and its partitions."""

    name: str
    topic_id: int
    config: dict[str, str]
    partitions: list[PartitionInfo]


class Admin:
    """Manages topics. `Admin().create_topic("readings", num_partitions=4)`. `bootstrap` as that of a Producer."""

    def __init__(self, bootstrap: str | None = None, **settings: Any) -> None:
        if bootstrap is not None:
            settings["bootstrap"] = bootstrap
        self._connection = Connection(settings_of(AdminSettings, settings))
        self._groups = GroupAdmin(self._connection)

    def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> TopicInfo:
        """Create a topic and return it; -1: as many partitions as the node is set to, and three replicas, or as many as
        the cluster has nodes that are not drained. TopicExists when it is there already, NotEnoughBrokers when too few
        nodes are."""
        retried: list[RinglogError] = []
        request = CreateTopicRequest(name, num_partitions, replication_factor, _texts(config))
        try:
            reply = self._connection.call(
                Api.CREATE_TOPIC, request, TopicReply, timeout_s=timeout, on_retry=retried.append
            )
        except TopicExists:
            # After an attempt whose answer was lost, the topic that is there may be the one it made.
            if not retried:
                raise
            made = self._connection.topic_told(name, timeout_s=timeout)
            if (
                num_partitions not in (-1, len(made.partitions))
                or not request.config.items() <= made.config.items()
            ):
                raise
            return self._described(made, timeout)
        return self._described(self._learned(reply), timeout)

    def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> list[str]:
        """The names of all topics, sorted; those of the node itself, which begin with "__", only when asked for."""
        reply = self._connection.metadata(None, timeout_s=timeout)
        names = (topic.name for topic in reply.topics if not topic.error)
        return sorted(name for name in names if include_internal or not name.startswith(INTERNAL_PREFIX))

    def partition_names(self, *, timeout: float | None = None) -> dict[int, TopicPartition]:
        """The name of each partition, by the node's own number (`PartitionInfo.partition_id`); internal ones, too."""
        reply = self._connection.metadata(None, timeout_s=timeout)
        return {
            partition.partition: TopicPartition(topic.name, partition.index)
            for topic in reply.topics
            for partition in topic.partitions
        }

    def describe_topic(self, name: str, *, timeout: float | None = None) -> TopicInfo:
        """A topic with its settings and the state of each partition. UnknownTopic when it is not there. Leaders that do
        not answer are waited for a few seconds: see `PartitionInfo.is_known`."""
        told = self._connection.topic_told(name, timeout_s=timeout)
        return self._described(told, timeout)

    def describe_topics(
        self, *, include_internal: bool = False, timeout: float | None = None
    ) -> list[TopicInfo]:
        """All topics that `list_topics` names, each as `describe_topic` tells of it, in the time of one."""
        while True:
            reply = self._connection.metadata(None, timeout_s=timeout)
            topics = [
                topic
                for topic in sorted(reply.topics, key=lambda one: one.name)
                if not topic.error and (include_internal or not topic.name.startswith(INTERNAL_PREFIX))
            ]
            try:
                return self._all_described(topics, self._patience_s(timeout))
            except UnknownTopic:
                continue  # one of them was deleted meanwhile: the others are looked up again

    def delete_topic(self, name: str, *, timeout: float | None = None) -> None:
        """Remove a topic with all its records."""
        retried: list[RinglogError] = []
        request = DeleteTopicRequest(name)
        try:
            self._connection.call(
                Api.DELETE_TOPIC, request, TopicReply, timeout_s=timeout, on_retry=retried.append
            )
        except UnknownTopic:
            if not retried:  # else an attempt whose answer was lost has done it
                raise
        self._connection.drop(name)

    def alter_topic(self, name: str, config: Mapping[str, Any], *, timeout: float | None = None) -> TopicInfo:
        """Set settings of a topic; a value of None takes one back to its default."""
        texts: dict[str, str | None] = {
            key: None if value is None else _text(key, value) for key, value in _checked(config).items()
        }
        reply = self._connection.call(
            Api.ALTER_TOPIC, AlterTopicRequest(name, texts), TopicReply, timeout_s=timeout
        )
        return self._described(self._learned(reply), timeout)

    def add_partitions(self, name: str, count: int, *, timeout: float | None = None) -> TopicInfo:
        """Let a topic have `count` partitions in all. Keys of new records move to other partitions."""
        reply = self._connection.call(
            Api.ADD_PARTITIONS, AddPartitionsRequest(name, count), TopicReply, timeout_s=timeout
        )
        return self._described(self._learned(reply), timeout)

    def delete_records(
        self, topic: str, offsets: Mapping[int, int], *, timeout: float | None = None
    ) -> dict[int, int]:
        """Delete the records of partitions below an offset; -1: all that can be read. Returns where each log begins
        now; space is freed by whole segments, all of it where everything is deleted.
        `admin.delete_records("readings", {0: 1_000, 1: -1})`"""
        timeout_s = self._connection.settings.request_timeout_ms / 1000 if timeout is None else timeout
        if not isinstance(offsets, Mapping) or not all(type(partition) is int for partition in offsets):
            raise InvalidRequest(
                f"offsets must be a dict of partitions' numbers and offsets, such as {{0: 1_000}}, not {offsets!r}"
            )
        starts = {
            TopicPartition(topic, partition): offset if offset == -1 else checked_offset(offset)
            for partition, offset in offsets.items()
        }
        begun = delete_records(self._connection, starts, timeout_s)
        return {tp.partition: start for tp, start in begun.items()}

    def split_points(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        every_bytes: int,
        timeout: float | None = None,
    ) -> SplitPoints:
        """Offsets in [start, end) at which batches begin, about so many bytes of the log apart: where readers that work
        in parallel may share a range. `admin.split_points("readings", 0, 0, 1_000_000, every_bytes=1 << 20)`"""
        return split_points(
            self._connection,
            TopicPartition(topic, partition),
            start,
            end,
            every_bytes,
            self._patience_s(timeout),
        )

    # -- groups ------------------------------------------------------------------------------------------------

    def list_groups(self, *, timeout: float | None = None) -> list[GroupSummary]:
        """All consumer groups, by name."""
        return self._groups.summaries(self._patience_s(timeout))

    def describe_group(self, group_id: str, *, timeout: float | None = None) -> GroupInfo:
        """A group's members, partitions, offsets and lag. UnknownGroup when there is none of that name."""
        return self._groups.describe(group_id, self._patience_s(timeout))

    def group_offsets(
        self, group_id: str, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """All that a group has committed, in one request; nothing when there is no such group."""
        return self._groups.offsets(group_id, self._patience_s(timeout))

    def plan_reset(
        self,
        group_id: str,
        *,
        topic: str | None = None,
        partitions: Iterable[int] | None = None,
        to: str | int | None = None,
        offset: int | None = None,
        shift: int | None = None,
        timeout: float | None = None,
    ) -> list[PlannedReset]:
        """Where a reset would set a group: `to` "earliest", "latest" or a time in milliseconds, or an `offset`, or a
        `shift` by so many records. Of all partitions that it has committed, or of a topic's, or of some of them.
        Nothing is changed: give the plan to `reset_group`."""
        if sum(one is not None for one in (to, offset, shift)) != 1:
            raise InvalidRequest("say one of to, offset and shift")
        if isinstance(to, str) and to not in _ENDS:
            raise InvalidRequest(f"to must be earliest, latest or a time in milliseconds, not {to!r}")
        if partitions is not None and topic is None:
            raise InvalidRequest("partitions are those of a topic: name it")
        timeout_s = self._patience_s(timeout)
        tps: list[TopicPartition] | None = None
        if topic is not None:
            tps = self._groups.partitions_of(topic, timeout_s)
            if partitions is not None:
                tps = [TopicPartition(topic, index) for index in partitions]
        target = _ENDS[to] if isinstance(to, str) else to
        return self._groups.plan_reset(
            group_id, tps, to=target, offset=offset, shift=shift, timeout_s=timeout_s
        )

    def reset_group(
        self, group_id: str, planned: Iterable[PlannedReset], *, timeout: float | None = None
    ) -> None:
        """Let a group without members go on from elsewhere."""
        self._groups.reset(group_id, planned, self._patience_s(timeout))

    def delete_group(self, group_id: str, *, timeout: float | None = None) -> int:
        """Forget a group without members; how many offsets it had."""
        return self._groups.delete(group_id, self._patience_s(timeout))

    def _patience_s(self, timeout: float | None) -> float:
        return self._connection.settings.request_timeout_ms / 1000 if timeout is None else timeout

    # -- the cluster -------------------------------------------------------------------------------------------

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterInfo:
        """The nodes, what each leads and keeps, and which partitions are in danger."""
        reply = self._connection.metadata(None, timeout_s=timeout)
        return cluster_info(reply)

    def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int]], *, timeout: float | None = None
    ) -> list[Move]:
        """Move partitions to the nodes with these ids, the preferred leader first; no ids: call off what is under way.

        It begins at once, and ends when the new replicas are in sync: `describe_cluster().moving` says which are left.
        Each partition is judged on its own: look at `error` of what comes back."""
        return moving.reassign(self._connection, targets, timeout)

    def drain_node(self, node_id: int, *, undo: bool = False, timeout: float | None = None) -> list[Move]:
        """Move all replicas of a node to others, and give it no new ones; `undo`: it may have some again."""
        return moving.drain(self._connection, node_id, undo=undo, timeout_s=timeout)

    def remove_node(self, node_id: int, *, timeout: float | None = None) -> None:
        """Take a node out of the cluster for good. It must be drained and stopped; its id is never used again."""
        moving.remove(self._connection, node_id, timeout)

    def list_moves(self, *, timeout: float | None = None) -> list[MoveProgress]:
        """The moves of replicas that are under way, each with how far it has come."""
        return progress(self._connection, self._patience_s(timeout))

    def alter_cluster(
        self, settings: Mapping[str, object] | None = None, *, timeout: float | None = None
    ) -> dict[str, str]:
        """Change settings of the whole cluster, None: as if it had never been set; returns those that are set then.

        `move.bytes.per.s`: how fast moves may fill a node; replicas that are in sync are never slowed down."""
        wanted = {name: None if value is None else str(value) for name, value in (settings or {}).items()}
        return moving.alter_cluster(self._connection, wanted, timeout)

    def topic_defaults(self, *, timeout: float | None = None) -> dict[str, str]:
        """What the node's configuration says of topics that do not say otherwise."""
        reply = self._connection.metadata([], timeout_s=timeout)
        return dict(reply.topic_defaults)

    def close(self) -> None:
        """End the connection. Twice is fine."""
        self._connection.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _learned(self, reply: TopicReply) -> TopicMetadata:
        self._connection.learn(reply)
        return reply.topic

    def _described(self, topic: TopicMetadata, timeout: float | None) -> TopicInfo:
        return self._all_described([topic], self._patience_s(timeout))[0]

    def _all_described(self, topics: Sequence[TopicMetadata], timeout_s: float) -> list[TopicInfo]:
        led = [
            TopicPartition(topic.name, one.index)
            for topic in topics
            for one in topic.partitions
            if one.leader_node >= 0
        ]
        rows = describe(self._connection, led, timeout_s)
        return [
            TopicInfo(
                topic.name,
                topic.topic_id,
                dict(topic.config),
                [_info(one, rows.get(TopicPartition(topic.name, one.index))) for one in topic.partitions],
            )
            for topic in topics
        ]


def _info(known: PartitionMetadata, row: PartitionDescription | None) -> PartitionInfo:
    if row is None:
        status = NO_LEADER_STATUS if known.leader_node < 0 else NO_ANSWER_STATUS
        row = PartitionDescription(known.partition, 0, -1, -1, -1, 0, 0, status)
    return PartitionInfo(
        known.index,
        known.leader_node,
        row.log_start_offset,
        row.readable_offset,
        row.next_offset,
        row.log_bytes,
        row.segments,
        row.status,
        known.partition,
        known.leader_epoch,
        list(known.replicas),
        list(known.isr),
    )


def _checked(config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if config is not None and not isinstance(config, Mapping):
        raise InvalidRequest(f"config must be a dict of names and values, not {type(config).__name__}")
    return config or {}


def _texts(config: Mapping[str, Any] | None) -> dict[str, str]:
    return {key: _text(key, value) for key, value in _checked(config).items()}


def _text(key: str, value: Any) -> str:
    """Values travel as text: numbers and truth values as Kafka writes them."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float) or not isinstance(key, str):
        raise InvalidRequest(f"config {key!r} must be text or a number, not {type(value).__name__}")
    return str(value)
