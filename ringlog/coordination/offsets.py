"""Committed offsets: taken, told, set back and expired. Pure: functions of a group and a request."""

from __future__ import annotations

from collections.abc import Iterable

from ringlog.coordination.catalogue import Catalogue
from ringlog.coordination.records import GroupKey, OffsetKey, OffsetValue, Record
from ringlog.coordination.state import Group, GroupsImage
from ringlog.errors import GroupNotEmpty, MemberFenced, RinglogError, UnknownGroup, UnknownTopic
from ringlog.limits import OFFSETS_EXPIRY_MS
from ringlog.model import TopicPartition
from ringlog.net.group_messages import (
    LEAVE,
    NO_OFFSET,
    CommittedOffset,
    GroupDeleteRequest,
    GroupResetRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetToCommit,
)


def commit(
    group: Group, request: OffsetCommitRequest, catalogue: Catalogue, now_ms: int
) -> tuple[list[Record], list[RinglogError | None]]:
    """Records of the offsets that count, and for each offset of the request what is wrong with it.

    An offset counts when the member holds the partition, and has held it since the epoch that it committed with;
    and when it has committed none with a higher sequence there. One that came too late is answered as if it
    counted: what the member committed after it does.
    """
    member = group.members.get(request.member_id)
    outsider = member is None and request.member_epoch == LEAVE
    if outsider and group.members:
        raise GroupNotEmpty(
            f"group {group.group_id!r} has members, which alone commit for it. Stop them, or subscribe"
        )
    if member is None and not outsider:
        raise MemberFenced(
            f"group {group.group_id!r} has no member {request.member_id!r}. Drop everything and rejoin"
        )
    records: list[Record] = []
    errors: list[RinglogError | None] = []
    for wanted in request.offsets:
        tp = TopicPartition(wanted.topic, wanted.partition)
        topic = catalogue.get(wanted.topic)
        if topic is None or wanted.partition >= topic.partitions:
            errors.append(UnknownTopic(f"there is no partition {tp}"))
            continue
        if member is not None:
            holding = member.holdings.get(tp)
            if holding is None or request.member_epoch < holding.since or request.member_epoch > member.epoch:
                errors.append(MemberFenced(f"{tp} is not held by the member since that epoch"))
                continue
        errors.append(None)
        known = group.offsets.get(tp)
        if known is not None and known.member == request.member_id and known.sequence >= request.sequence:
            continue
        records.append(_record(group, wanted, topic.topic_id, request.member_id, request.sequence, now_ms))
    return records, errors


def fetch(group: Group | None, request: OffsetFetchRequest, catalogue: Catalogue) -> list[CommittedOffset]:
    """What a group has committed. An offset of a topic that was deleted and made anew means nothing any more."""
    if request.partitions is None:
        tps: Iterable[TopicPartition] = sorted(group.offsets) if group is not None else ()
    else:
        tps = [TopicPartition(some.topic, at) for some in request.partitions for at in some.partitions]
    found = []
    for tp in tps:
        known = group.offsets.get(tp) if group is not None else None
        topic = catalogue.get(tp.topic)
        if known is not None and topic is not None and topic.topic_id == known.topic_id:
            found.append(CommittedOffset(*tp, known.offset, known.metadata, known.commit_ms))
        elif request.partitions is not None:
            found.append(CommittedOffset(*tp, NO_OFFSET))
    return found


def reset(
    group: Group, request: GroupResetRequest, catalogue: Catalogue, now_ms: int
) -> tuple[list[Record], list[RinglogError | None]]:
    """Set offsets, forwards or back. Only of a group without members: they would go on from where they are."""
    _require_empty(group)
    records: list[Record] = []
    errors: list[RinglogError | None] = []
    for wanted in request.offsets:
        topic = catalogue.get(wanted.topic)
        if topic is None or wanted.partition >= topic.partitions:
            errors.append(UnknownTopic(f"there is no partition {wanted.topic}-{wanted.partition}"))
            continue
        errors.append(None)
        records.append(_record(group, wanted, topic.topic_id, "", 0, now_ms))
    return records, errors


def delete(group: Group | None, request: GroupDeleteRequest) -> list[Record]:
    """Forget a group that has no members, or some of its offsets."""
    if group is None:
        raise UnknownGroup(f"there is no group {request.group_id!r}")
    _require_empty(group)
    if request.partitions is None:
        return _end(group)
    named = (TopicPartition(some.topic, at) for some in request.partitions for at in some.partitions)
    return [Record(OffsetKey(group.group_id, *tp), None) for tp in named if tp in group.offsets]


def expired(image: GroupsImage, catalogue: Catalogue, now_ms: int, records_max: int) -> list[Record]:
    """Records that forget the groups nobody has used for OFFSETS_EXPIRY_MS; and of those that live on, offsets as old
    as that of topics that are no more. Ends with the group that makes `records_max` of them."""
    records: list[Record] = []
    for group in image.groups.values():
        if len(records) >= records_max:
            break
        used_ms = max(
            (value.commit_ms for value in group.offsets.values()), default=group.value.empty_since_ms
        )
        if not group.members and max(used_ms, group.value.empty_since_ms) + OFFSETS_EXPIRY_MS <= now_ms:
            records += _end(group)
            continue
        for tp, value in group.offsets.items():
            topic = catalogue.get(tp.topic)
            is_gone = topic is None or topic.topic_id != value.topic_id
            if is_gone and value.commit_ms + OFFSETS_EXPIRY_MS <= now_ms:
                records.append(Record(OffsetKey(group.group_id, *tp), None))
    return records


def _record(
    group: Group, wanted: OffsetToCommit, topic_id: int, member_id: str, sequence: int, now_ms: int
) -> Record:
    key = OffsetKey(group.group_id, wanted.topic, wanted.partition)
    return Record(key, OffsetValue(wanted.offset, wanted.metadata, now_ms, topic_id, member_id, sequence))


def _end(group: Group) -> list[Record]:
    records = [Record(OffsetKey(group.group_id, *tp), None) for tp in group.offsets]
    return [*records, Record(GroupKey(group.group_id), None)]


def _require_empty(group: Group) -> None:
    if group.members:
        raise GroupNotEmpty(
            f"group {group.group_id!r} has {len(group.members)} members. Stop them, then retry"
        )
