"""What is told of groups to those who look at them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringlog.coordination import offsets
from ringlog.coordination.catalogue import Catalogue
from ringlog.coordination.lag import Ends, lags, total
from ringlog.coordination.records import by_topic
from ringlog.coordination.state import Group, GroupsImage
from ringlog.model import TopicPartition
from ringlog.net.group_messages import (
    GroupDescribeReply,
    GroupSummary,
    MemberDescription,
    OffsetFetchRequest,
    TopicPartitions,
)


def summaries(image: GroupsImage, catalogue: Catalogue, ends: Ends, now_ms: int) -> list[GroupSummary]:
    """All groups, in short."""
    found = []
    for group in image.groups.values():
        committed = offsets.fetch(group, OffsetFetchRequest(group.group_id), catalogue)
        behind = total(lags(group, committed, ends, now_ms))
        value, members = group.value, len(group.members)
        found.append(GroupSummary(group.group_id, group.state, members, value.epoch, value.assignor, *behind))
    return found


def described(
    group: Group, catalogue: Catalogue, heard_ms: Mapping[str, int], ends: Ends, now_ms: int
) -> GroupDescribeReply:
    """A group with its members and offsets, and how far it is behind."""
    committed = offsets.fetch(group, OffsetFetchRequest(group.group_id), catalogue)
    members = [
        MemberDescription(
            member.member_id,
            member.said.instance_id,
            member.said.client_id,
            member.epoch,
            [*member.said.topics, *([member.said.pattern] if member.said.pattern is not None else [])],
            _grouped(member.told),
            _grouped(member.target),
            _grouped(tp for tp, holding in member.holdings.items() if holding.revoking),
            now_ms - heard_ms.get(member.member_id, now_ms),
        )
        for member in sorted(group.members.values(), key=lambda member: member.order)
    ]
    value = group.value
    behind = lags(group, committed, ends, now_ms)
    return GroupDescribeReply(
        group.group_id, group.state, value.epoch, value.assignor, members, committed, behind
    )


def _grouped(tps: Iterable[TopicPartition]) -> list[TopicPartitions]:
    return [TopicPartitions(topic, some) for topic, some in by_topic(tps).items()]
