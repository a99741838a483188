"""Changes of a group: a member joins, leaves, gives up; the target is made anew; partitions move. Pure.

Each function emits records into a `Change`, which applies them at once: the state is always what its records say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ringlog.coordination.assignors import ASSIGNORS
from ringlog.coordination.catalogue import Catalogue, subscribed_topics
from ringlog.coordination.records import (
    GroupKey,
    GroupValue,
    HoldingKey,
    HoldingValue,
    Key,
    MemberKey,
    MemberValue,
    Record,
    TargetKey,
    TargetValue,
    Value,
    by_topic,
)
from ringlog.coordination.state import Group, GroupsImage, Holding, Member
from ringlog.errors import InstanceFenced, check
from ringlog.model import TopicPartition

DEFAULT_ASSIGNOR = next(iter(ASSIGNORS))


class Change:
    """Records in the making. What was emitted has taken effect already."""

    def __init__(self, image: GroupsImage) -> None:
        self.image = image
        self.records: list[Record] = []

    def emit(self, key: Key, value: Value | None) -> None:
        record = Record(key, value)
        self.records.append(record)
        self.image.replay(record)


def enter(
    change: Change, group: Group, member_id: str, said: MemberValue, catalogue: Catalogue, now_ms: int
) -> None:
    """A member begins. One that is there already keeps what it holds, since it may hold it: the request may be a late
    copy of its first. But it may also have dropped all, so that commits from before count no more."""
    known = group.members.get(member_id)
    before = group.instances.get(said.instance_id) if said.instance_id else None
    if known is None and before is not None:
        _succeed(change, group, group.members[before], member_id, said, catalogue, now_ms)
    else:
        describe(change, group, member_id, said, catalogue, now_ms)
    if known is not None:
        epoch = group.count + 1
        held = {
            tp: Holding(held.since if held.revoking else epoch, held.revoking)
            for tp, held in known.holdings.items()
        }
        _set_holdings(change, group, known, epoch, held)


def describe(
    change: Change, group: Group, member_id: str, said: MemberValue, catalogue: Catalogue, now_ms: int
) -> None:
    """A new member, or one that says something else of itself than before."""
    known = group.members.get(member_id)
    if known is not None:
        said = _with_predecessor(said, known.said.predecessor)
        if said == known.said:
            return
    change.emit(MemberKey(group.group_id, member_id), said)
    if known is None or _reads(said) != _reads(known.said):
        retarget(change, group, catalogue, now_ms)


def remove(change: Change, group: Group, gone: Iterable[str], catalogue: Catalogue, now_ms: int) -> None:
    """Members have left, or are taken for dead: what they held is free."""
    for member_id in gone:
        _forget(change, group, member_id)
    retarget(change, group, catalogue, now_ms)


def give_up(change: Change, group: Group, member: Member) -> None:
    """The member said that it holds no more than it was told: the rest is free."""
    kept = {tp: holding for tp, holding in member.holdings.items() if not holding.revoking}
    if len(kept) < len(member.holdings):
        _set_holdings(change, group, member, member.epoch, kept)
        reconcile(change, group)


def follow(change: Change, group: Group, catalogue: Catalogue, now_ms: int) -> None:
    """The topics may have changed: a new target, if they did for this group."""
    if group.members and _topics_of(group, catalogue) != group.value.topics:
        retarget(change, group, catalogue, now_ms)


def retarget(change: Change, group: Group, catalogue: Catalogue, now_ms: int) -> None:
    """A new group epoch with a new target, and the first steps towards it."""
    members = sorted(group.members.values(), key=lambda member: member.order)
    reads = {m.member_id: subscribed_topics(catalogue, m.said.topics, m.said.pattern) for m in members}
    topics = _topics_of(group, catalogue)
    assignor = _elect(members) if members else group.value.assignor or DEFAULT_ASSIGNOR
    empty_since_ms = -1 if members else now_ms
    change.emit(GroupKey(group.group_id), GroupValue(group.count + 1, assignor, topics, empty_since_ms))
    if not members:
        return
    had = {member.member_id: member.target for member in members}
    counts = {name: partitions for name, (_, partitions) in topics.items()}
    for member_id, some in ASSIGNORS[assignor](reads, counts, had).items():
        if group.members[member_id].target != some:
            change.emit(TargetKey(group.group_id, member_id), TargetValue(by_topic(some)))
    reconcile(change, group)


def reconcile(change: Change, group: Group) -> None:
    """Bring every member as near to its target as can be now: tell it to give up what is not in it, and give it what is
    and nobody holds. What it keeps is not touched."""
    for member in list(group.members.values()):
        epoch = group.count + 1
        # One that it was told to give up and is to have after all, it gets again once it has said that it gave it up:
        # commits from before are then older than what it holds, and cannot overtake those that follow.
        wanted = {
            tp: Holding(held.since, held.revoking or tp not in member.target)
            for tp, held in member.holdings.items()
        }
        for tp in member.target:
            if tp not in group.holders:
                wanted[tp] = Holding(epoch, False)
        if wanted != member.holdings or member.epoch == 0:
            _set_holdings(change, group, member, epoch, wanted)


def _succeed(
    change: Change,
    group: Group,
    old: Member,
    member_id: str,
    said: MemberValue,
    catalogue: Catalogue,
    now_ms: int,
) -> None:
    """A restarted instance takes over what its predecessor had: nothing moves."""
    if old.said.predecessor == member_id:
        raise InstanceFenced(
            f"instance {said.instance_id!r} was taken over by another process. Stop one of the two"
        )
    target, reads = old.target, _reads(old.said)
    kept = [tp for tp in old.holdings if tp in target]
    _forget(change, group, old.member_id)
    said = _with_predecessor(said, old.member_id)
    change.emit(MemberKey(group.group_id, member_id), said)
    change.emit(TargetKey(group.group_id, member_id), TargetValue(by_topic(target)))
    member = group.members[member_id]
    epoch = group.count + 1
    _set_holdings(change, group, member, epoch, {tp: Holding(epoch, False) for tp in kept})
    if _reads(said) != reads:
        retarget(change, group, catalogue, now_ms)
    else:
        reconcile(change, group)  # what the old one was still giving up is free


def _set_holdings(
    change: Change, group: Group, member: Member, epoch: int, holdings: dict[TopicPartition, Holding]
) -> None:
    for tp in holdings:
        holder = group.holders.get(tp)
        check(holder is None or holder == member.member_id, "a partition has one holder at most")
    grouped: dict[str, list[tuple[int, int, bool]]] = {}
    for (topic, index), holding in sorted(holdings.items()):
        grouped.setdefault(topic, []).append((index, holding.since, holding.revoking))
    change.emit(HoldingKey(group.group_id, member.member_id), HoldingValue(epoch, grouped))


def _forget(change: Change, group: Group, member_id: str) -> None:
    for key in (HoldingKey, TargetKey, MemberKey):
        change.emit(key(group.group_id, member_id), None)


def _topics_of(group: Group, catalogue: Catalogue) -> dict[str, tuple[int, int]]:
    read: set[str] = set()
    for member in group.members.values():
        read |= subscribed_topics(catalogue, member.said.topics, member.said.pattern)
    return {name: (catalogue[name].topic_id, catalogue[name].partitions) for name in sorted(read)}


def _elect(members: Iterable[Member]) -> str:
    """The assignor that most ask for; of equals, the one that stands first."""
    votes = Counter(member.said.assignor or DEFAULT_ASSIGNOR for member in members)
    return max(ASSIGNORS, key=lambda name: votes[name])


def _reads(said: MemberValue) -> tuple[tuple[str, ...], str | None, str]:
    return said.topics, said.pattern, said.assignor


def _with_predecessor(said: MemberValue, predecessor: str) -> MemberValue:
    return MemberValue(
        said.topics,
        said.pattern,
        said.session_timeout_ms,
        said.instance_id,
        said.assignor,
        said.client_id,
        predecessor,
    )
