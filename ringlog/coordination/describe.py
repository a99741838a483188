"""What is told of groups to those who look at them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringlog.coordination.records import by_topic
from ringlog.coordination.state import Group, GroupsImage
from ringlog.model import TopicPartition
from ringlog.net.group_messages import (
    CommittedOffset,
    GroupDescribeReply,
    GroupSummary,
    MemberDescription,
    TopicPartitions,
)


def summaries(image: GroupsImage) -> list[GroupSummary]:
    """All groups, in short."""
    return [
        GroupSummary(group.group_id, group.state, len(group.members), group.value.epoch, group.value.assignor)
        for group in image.groups.values()
    ]


def described(
    group: Group, committed: list[CommittedOffset], heard_ms: Mapping[str, int], now_ms: int
) -> GroupDescribeReply:
    """A group with its members and offsets."""
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
    return GroupDescribeReply(group.group_id, group.state, value.epoch, value.assignor, members, committed)


def _grouped(tps: Iterable[TopicPartition]) -> list[TopicPartitions]:
    return [TopicPartitions(topic, some) for topic, some in by_topic(tps).items()]
