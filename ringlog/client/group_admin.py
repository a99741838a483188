"""Groups as operators see them: list, describe with lag, plan and carry out a reset, delete."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ringlog.client import offsets as lookups
from ringlog.client.commits import OffsetAndMetadata, rows_for
from ringlog.client.connection import Connection
from ringlog.client.metadata import LOOK_AGAIN
from ringlog.client.rounds import not_when_stale
from ringlog.client.settings import check_text
from ringlog.errors import CoordinatorLoading, RinglogError, UnknownGroup, UnknownTopic
from ringlog.limits import OFFSETS_PARTITIONS
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.group_messages import (
    OFFSETS_TOPIC,
    GroupDeleteReply,
    GroupDeleteRequest,
    GroupDescribeReply,
    GroupDescribeRequest,
    GroupListReply,
    GroupListRequest,
    GroupResetRequest,
    GroupSummary,
    OffsetCommitReply,
    OffsetFetchReply,
    OffsetFetchRequest,
    OffsetToCommit,
    TopicPartitions,
)
from ringlog.net.messages import EARLIEST, LATEST, PartitionMetadata
from ringlog.net.wire_errors import error_by_number
from ringlog.records.partitioner import partition_for

_ENDS_WITHIN_S = 3.0
"""How long a description waits for leaders that the group's node knows nothing of."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group: what it holds, and what it has still to give up."""

    member_id: str
    instance_id: str
    client_id: str
    epoch: int
    subscribed: list[str]
    assigned: list[TopicPartition]
    revoking: list[TopicPartition]
    heard_ms_ago: int


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """How far a group is in a partition."""

    topic: str
    partition: int
    committed: int | None
    """None: nothing is committed there."""
    metadata: str
    member_id: str
    """Who reads it; "": nobody."""
    log_start_offset: int | None
    """None, as are the following: nobody serves the partition now."""
    readable_offset: int | None
    lag: int | None
    """Records that are still to be read, never negative. Without a commit, all that the log has."""
    lag_ms: int | None
    """How long ago the first of them came; 0: there is none. By time marks of the node: it may be a little too much,
    never too little. None, too, when the node that keeps the group has no replica of the partition."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group with its members and partitions. `state`: empty, reconciling or stable."""

    group_id: str
    state: str
    epoch: int
    assignor: str
    members: list[GroupMember]
    partitions: list[GroupPartition]

    @property
    def lag(self) -> int:
        """Records that are still to be read."""
        return sum(partition.lag or 0 for partition in self.partitions)

    @property
    def lag_ms(self) -> int:
        """How long ago the oldest of them came."""
        return max((partition.lag_ms or 0 for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True)
class PlannedReset:
    """From where to where a partition of a group is to be set."""

    topic: str
    partition: int
    before: int | None
    after: int


class GroupAdmin:
    """What an Admin does with groups."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def summaries(self, timeout_s: float) -> list[GroupSummary]:
        """All groups, by name. A shard that moves meanwhile lets all be asked again: none is missed or told twice."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                return self._summaries(deadline_s)
            except LOOK_AGAIN:
                if time.monotonic() >= deadline_s:
                    raise
                self._connection.forget(OFFSETS_TOPIC)
                time.sleep(self._connection.settings.retry_backoff_ms / 1000)

    def _summaries(self, deadline_s: float) -> list[GroupSummary]:
        try:
            topic = self._connection.topic(OFFSETS_TOPIC, timeout_s=_left_s(deadline_s))
        except UnknownTopic:
            return []  # there never was a group
        one_of_each = {partition.lane: partition.partition for partition in topic.partitions}
        found: list[GroupSummary] = []
        for partition in one_of_each.values():
            found += self._list_lane(partition, deadline_s)
        return sorted(found, key=lambda group: group.group_id)

    def _list_lane(self, partition: int, deadline_s: float) -> list[GroupSummary]:
        while True:
            reply = self._connection.call(
                Api.GROUP_LIST,
                GroupListRequest(),
                GroupListReply,
                partition=partition,
                timeout_s=_left_s(deadline_s),
                on_retry=not_when_stale,
            )
            if not reply.loading:
                return reply.groups
            if time.monotonic() >= deadline_s:
                raise CoordinatorLoading(f"{reply.loading} partitions of groups are still being read. Retry")
            time.sleep(self._connection.settings.retry_backoff_ms / 1000)

    def describe(self, group_id: str, timeout_s: float) -> GroupInfo:
        """A group, with how far it is behind."""
        reply = self._connection.call(
            Api.GROUP_DESCRIBE,
            GroupDescribeRequest(group_id),
            GroupDescribeReply,
            partition=self._home(group_id, timeout_s),
            topic=OFFSETS_TOPIC,
            timeout_s=timeout_s,
        )
        holders = {tp: m.member_id for m in reply.members for tp in _partitions(m.assigned + m.revoking)}
        committed = {TopicPartition(row.topic, row.partition): row for row in reply.offsets}
        partitions = []
        for topic in reply.lags:
            for row in topic.partitions:
                tp = TopicPartition(topic.topic, row.partition)
                known = committed.get(tp)
                told = (row.log_start_offset, row.readable_offset, row.lag, row.lag_ms)
                partitions.append(
                    GroupPartition(
                        *tp,
                        known.offset if known else None,
                        known.metadata if known else "",
                        holders.get(tp, ""),
                        *(number if number >= 0 else None for number in told),
                    )
                )
        members = [
            GroupMember(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.member_epoch,
                m.subscribed,
                _partitions(m.assigned),
                _partitions(m.revoking),
                m.heard_ms_ago,
            )
            for m in reply.members
        ]
        partitions = self._with_ends(group_id, partitions, timeout_s)
        return GroupInfo(group_id, reply.state, reply.epoch, reply.assignor, members, partitions)

    def _with_ends(self, group_id: str, some: list[GroupPartition], timeout_s: float) -> list[GroupPartition]:
        """Ask the leaders of partitions that the group's node keeps no replica of: it cannot tell how far they are."""
        keeper = self._home_partition(group_id, timeout_s).leader_node
        unknown = [
            TopicPartition(one.topic, one.partition)
            for one in some
            if one.readable_offset is None and self._is_elsewhere(one, keeper, timeout_s)
        ]
        if not unknown:
            return some
        try:
            starts, ends = self._ends(unknown, min(timeout_s, _ENDS_WITHIN_S))
        except RinglogError as error:
            if not error.retriable:
                raise
            return some  # a partition without a leader: the others are worth more than to wait for it
        return [
            _behind(one, starts[tp], ends[tp])
            if (tp := TopicPartition(one.topic, one.partition)) in ends
            else one
            for one in some
        ]

    def _is_elsewhere(self, one: GroupPartition, keeper: int, timeout_s: float) -> bool:
        """Whether a partition has replicas, and none on this node."""
        try:
            partitions = self._connection.topic(one.topic, timeout_s=timeout_s).partitions
        except UnknownTopic:
            return False  # it was deleted
        replicas = partitions[one.partition].replicas if one.partition < len(partitions) else []
        return bool(replicas) and keeper not in replicas

    def offsets(self, group_id: str, timeout_s: float) -> dict[TopicPartition, OffsetAndMetadata]:
        """All that a group has committed."""
        try:
            home = self._home(group_id, timeout_s)
        except UnknownGroup:
            return {}
        reply = self._connection.call(
            Api.OFFSET_FETCH,
            OffsetFetchRequest(group_id),
            OffsetFetchReply,
            partition=home,
            topic=OFFSETS_TOPIC,
            timeout_s=timeout_s,
        )
        return {
            TopicPartition(row.topic, row.partition): OffsetAndMetadata(row.offset, row.metadata)
            for row in reply.offsets
        }

    def plan_reset(
        self,
        group_id: str,
        tps: Iterable[TopicPartition] | None,
        *,
        to: int | None,
        offset: int | None,
        shift: int | None,
        timeout_s: float,
    ) -> list[PlannedReset]:
        """Where a reset would set partitions: None for all that the group has committed. `to` is EARLIEST, LATEST or a
        time in milliseconds. Nothing is set beyond what the log has."""
        known = {(p.topic, p.partition): p.committed for p in self.describe(group_id, timeout_s).partitions}
        wanted = sorted(TopicPartition(*tp) for tp in (known if tps is None else tps))
        starts, ends = self._ends(wanted, timeout_s)
        times: Mapping[TopicPartition, lookups.OffsetAndTimestamp | None] = {}
        if to is not None and to >= 0:
            times = lookups.list_offsets(self._connection, dict.fromkeys(wanted, to), timeout_s)
        planned: list[PlannedReset] = []
        for tp in wanted:
            before, found = known.get(tp), times.get(tp)
            if offset is not None:
                after = offset
            elif shift is not None:
                after = (starts[tp] if before is None else before) + shift
            elif to == EARLIEST:
                after = starts[tp]
            else:
                after = ends[tp] if to == LATEST or found is None else found.offset
            planned.append(PlannedReset(*tp, before, min(max(after, starts[tp]), ends[tp])))
        return planned

    def reset(self, group_id: str, planned: Iterable[PlannedReset], timeout_s: float) -> None:
        """Carry a plan out. GroupNotEmpty while the group has members."""
        some = list(planned)
        reply = self._connection.call(
            Api.GROUP_RESET,
            GroupResetRequest(group_id, [OffsetToCommit(p.topic, p.partition, p.after) for p in some]),
            OffsetCommitReply,
            partition=self._home(group_id, timeout_s),
            topic=OFFSETS_TOPIC,
            timeout_s=timeout_s,
        )
        for plan, number in zip(some, rows_for(some, reply.errors), strict=True):
            if number:
                raise error_by_number(number, f"{plan.topic}-{plan.partition} was not reset")

    def delete(self, group_id: str, timeout_s: float) -> int:
        """Forget a group; how many offsets it had."""
        reply = self._connection.call(
            Api.GROUP_DELETE,
            GroupDeleteRequest(group_id),
            GroupDeleteReply,
            partition=self._home(group_id, timeout_s),
            topic=OFFSETS_TOPIC,
            timeout_s=timeout_s,
        )
        return reply.offsets

    def partitions_of(self, topic: str, timeout_s: float) -> list[TopicPartition]:
        """All partitions of a topic."""
        found = self._connection.topic(topic, timeout_s=timeout_s)
        return [TopicPartition(topic, partition.index) for partition in found.partitions]

    def _home(self, group_id: str, timeout_s: float) -> int:
        return self._home_partition(group_id, timeout_s).partition

    def _home_partition(self, group_id: str, timeout_s: float) -> PartitionMetadata:
        check_text(group_id=group_id)
        try:
            topic = self._connection.topic(OFFSETS_TOPIC, timeout_s=timeout_s)
        except UnknownTopic:
            raise UnknownGroup(f"there is no group {group_id!r}: nobody has used one on this node") from None
        return topic.partitions[partition_for(group_id.encode(), OFFSETS_PARTITIONS)]

    def _ends(
        self, tps: list[TopicPartition], timeout_s: float
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where the logs begin and end. The ends are asked for last: lag may be a little too high, never too low."""
        found = [
            lookups.list_offsets(self._connection, dict.fromkeys(tps, end), timeout_s)
            for end in (EARLIEST, LATEST)
        ]
        starts, ends = ({tp: at.offset if at else 0 for tp, at in some.items()} for some in found)
        return starts, ends


def _behind(one: GroupPartition, start: int, end: int) -> GroupPartition:
    """A partition whose log is known to begin and end there. Since when it is behind, its leader alone could tell."""
    lag = max(0, end - max(one.committed or 0, start))
    return replace(one, log_start_offset=start, readable_offset=end, lag=lag, lag_ms=None if lag else 0)


def _left_s(deadline_s: float) -> float:
    return max(deadline_s - time.monotonic(), 0.001)


def _partitions(some: Iterable[TopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, index) for one in some for index in one.partitions]
