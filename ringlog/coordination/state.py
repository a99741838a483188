"""What the records of the offsets topic add up to: groups, members, offsets. The only way to change it is a record.

    target    what a member is to hold in the end, made anew with every group epoch
    holdings  what it may be working on now: what it was told to hold, and what it has not given up yet
    told      the holdings that it keeps

A partition has one holder at most. It is given when nobody holds it, and free when its holder said, with the
epoch that it was told with, that it has given it up; or has left; or its session is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ringlog.coordination.records import (
    GroupKey,
    GroupValue,
    HoldingKey,
    HoldingValue,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
    Record,
    TargetKey,
    TargetValue,
    partitions_in,
)
from ringlog.errors import InvariantBroken
from ringlog.model import TopicPartition


class Holding(NamedTuple):
    """A partition that a member holds."""

    since: int
    """The member epoch that it was given with: commits of older epochs are not about this time."""
    revoking: bool


@dataclass(slots=True)
class Member:
    """A member of a group."""

    member_id: str
    said: MemberValue
    epoch: int = 0
    """0: it has not been told anything yet."""
    target: frozenset[TopicPartition] = frozenset()
    holdings: dict[TopicPartition, Holding] = field(default_factory=dict)

    @property
    def told(self) -> frozenset[TopicPartition]:
        return frozenset(tp for tp, holding in self.holdings.items() if not holding.revoking)

    @property
    def order(self) -> tuple[str, str]:
        """Where it stands among the others: a restarted instance where it stood."""
        return (self.said.instance_id or self.member_id, self.member_id)


NEW = GroupValue(0, "", {}, 0)
"""Of a group that nobody has joined yet."""


@dataclass(slots=True)
class Group:
    """A group: members and how far they have come."""

    group_id: str
    value: GroupValue = NEW
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    """The member of each instance id."""
    holders: dict[TopicPartition, str] = field(default_factory=dict)
    offsets: dict[TopicPartition, OffsetValue] = field(default_factory=dict)
    count: int = 0
    """The highest epoch that the group or a member of it ever had."""

    @property
    def stable(self) -> bool:
        """Everyone holds what they are to hold."""
        return all(member.holdings.keys() == member.target for member in self.members.values())

    @property
    def state(self) -> str:
        return "empty" if not self.members else "stable" if self.stable else "reconciling"


_NOBODY = MemberValue((), None, 0, "", "", "")


class GroupsImage:
    """All groups of one partition of the offsets topic."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}

    def replay(self, record: Record) -> None:
        """Apply one record. After compaction those of one group may come in another order than they were made in."""
        key, value = record
        group = self.groups.get(key.group)
        if group is None:
            if value is None:
                return
            group = self.groups[key.group] = Group(key.group)
        if type(key) is OffsetKey and type(value) is OffsetValue:
            group.offsets[TopicPartition(key.topic, key.partition)] = (
                value  # first: there are so many of these
            )
            return
        match key, value:
            case GroupKey(), GroupValue():
                group.value = value
                group.count = max(group.count, value.epoch)
            case GroupKey(), None:
                group.value = GroupValue(group.count, "", {}, 0)
            case MemberKey(), MemberValue():
                member = _member(group, key.member)
                member.said = value
                if value.instance_id:
                    group.instances[value.instance_id] = key.member
            case MemberKey(), None:
                _leave(group, key.member)
            case TargetKey(), TargetValue():
                _member(group, key.member).target = partitions_in(value.partitions)
            case HoldingKey(), HoldingValue():
                _hold(group, _member(group, key.member), value)
            case OffsetKey(), None:
                group.offsets.pop(TopicPartition(key.topic, key.partition), None)
            case ((TargetKey() | HoldingKey()), None):
                _leave(group, key.member)
            case _:
                raise InvariantBroken(f"a group record with key {key} and value {value}")
        if value is None and not group.members and not group.offsets and not group.value.assignor:
            del self.groups[key.group]

    def loaded(self) -> None:
        """All records were replayed: members of whom only half a record is left are none."""
        for group in self.groups.values():
            for member in [m.member_id for m in group.members.values() if m.said is _NOBODY]:
                _leave(group, member)


def _member(group: Group, member_id: str) -> Member:
    found = group.members.get(member_id)
    if found is None:
        found = group.members[member_id] = Member(member_id, _NOBODY)
    return found


def _leave(group: Group, member_id: str) -> None:
    member = group.members.pop(member_id, None)
    if member is None:
        return
    for tp in member.holdings:
        if group.holders.get(tp) == member_id:
            del group.holders[tp]
    if group.instances.get(member.said.instance_id) == member_id:
        del group.instances[member.said.instance_id]


def _hold(group: Group, member: Member, value: HoldingValue) -> None:
    for tp in member.holdings:
        if group.holders.get(tp) == member.member_id:
            del group.holders[tp]
    member.epoch = value.epoch
    member.holdings = {
        TopicPartition(topic, index): Holding(since, revoking)
        for topic, some in value.holdings.items()
        for index, since, revoking in some
    }
    group.holders.update(dict.fromkeys(member.holdings, member.member_id))
    group.count = max(group.count, value.epoch)
