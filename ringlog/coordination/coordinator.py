"""The coordinator of the groups of one partition of the offsets topic: heartbeats, sessions, time. Pure.

A call returns an `Outcome`: records to append, and replies that go out when those records, and all before them, are
durable. The records have taken effect when the call returns; should they be lost, so must this object be: a new one
that replays the log knows what is true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ringlog.coordination import membership, offsets
from ringlog.coordination.assignors import ASSIGNORS
from ringlog.coordination.catalogue import Catalogue
from ringlog.coordination.describe import described
from ringlog.coordination.lag import Ends
from ringlog.coordination.membership import Change
from ringlog.coordination.records import MemberKey, MemberValue, OffsetKey, Record, by_topic
from ringlog.coordination.sessions import MemberAt, Sessions, Ticket
from ringlog.coordination.state import Group, GroupsImage, Member
from ringlog.coordination.waiting import WaitingRoom
from ringlog.errors import (
    InstanceFenced,
    InvalidRequest,
    LimitExceeded,
    MemberFenced,
    RinglogError,
    UnknownGroup,
)
from ringlog.limits import (
    GROUP_MEMBERS_MAX,
    GROUPS_PER_PARTITION_MAX,
    HEARTBEAT_WAIT_MS_MAX,
    SESSION_TIMEOUT_MS_MAX,
    SESSION_TIMEOUT_MS_MIN,
)
from ringlog.model import TopicPartition
from ringlog.net.group_messages import (
    JOIN,
    LEAVE,
    GroupDeleteReply,
    GroupDeleteRequest,
    GroupDescribeRequest,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    GroupResetRequest,
    OffsetCommitReply,
    OffsetCommitRequest,
    OffsetFetchReply,
    OffsetFetchRequest,
    TopicPartitions,
)
from ringlog.net.wire_errors import number_of

EXPIRY_CHECK_MS = 10 * 60_000
"""Between two looks for offsets that have expired."""
EXPIRED_RECORDS_MAX = 5_000
"""Records that one look makes, about: more would hold up everybody else, and fill the log's memory."""
EXPIRY_PAUSE_MS = 100
"""Until the next look, when there were more."""
GONE_MS = 1000
"""How long a member of whose process the connection has ended may take to be heard of again."""


class Reply(NamedTuple):
    """An answer for somebody who waited."""

    ticket: Ticket
    body: msgspec.Struct | RinglogError


class Outcome(NamedTuple):
    """Records to append, and replies for when they are durable."""

    records: list[Record]
    replies: list[Reply]


class GroupCoordinator:
    """The groups of one partition, their sessions and the heartbeats that wait."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.image = GroupsImage()
        self.catalogue = catalogue
        self._sessions = Sessions()
        self._waiting = WaitingRoom()
        self._expiry_ms = 0

    def loaded(self, now_ms: int) -> None:
        """The log was replayed. Members keep what they had, and their sessions begin anew."""
        self.image.loaded()
        self._expiry_ms = now_ms + EXPIRY_CHECK_MS
        for group in self.image.groups.values():
            for member in group.members.values():
                self._hear(group, member, now_ms)

    # -- what members ask ----------------------------------------------------------------------------------------

    def heartbeat(self, ticket: Ticket, request: GroupHeartbeatRequest, now_ms: int) -> Outcome:
        """Join, stay or leave."""
        change = Change(self.image)
        group = self._group(request)
        replies: list[Reply] = []
        if request.member_epoch == LEAVE:
            if request.member_id in group.members:
                membership.remove(change, group, [request.member_id], self.catalogue, now_ms)
            replies.append(Reply(ticket, GroupHeartbeatReply(LEAVE, [])))
            return self._outcome(change, group, replies)
        if request.member_epoch == JOIN:
            self._join(change, group, request, now_ms)
        else:
            self._stay(change, group, request, now_ms)
        member = group.members[request.member_id]
        self._hear(group, member, now_ms, ticket)
        at = MemberAt(group.group_id, member.member_id)
        superseded = self._waiting.leave(at)
        if superseded is not None:
            replies.append(Reply(superseded.ticket, GroupHeartbeatReply(superseded.epoch)))
        # A member must be heard of several times in a session.
        wait_ms = min(max(request.wait_ms, 0), HEARTBEAT_WAIT_MS_MAX, member.said.session_timeout_ms // 3)
        if member.epoch != request.member_epoch:
            replies.append(Reply(ticket, _assigned(member)))
        elif wait_ms == 0:
            replies.append(Reply(ticket, GroupHeartbeatReply(member.epoch)))
        else:
            self._waiting.enter(at, ticket, member.epoch, now_ms + wait_ms)
        return self._outcome(change, group, replies)

    def _group(self, request: GroupHeartbeatRequest) -> Group:
        found = self.image.groups.get(request.group_id)
        if found is not None:
            return found
        if not request.group_id or not request.member_id:
            raise InvalidRequest("a heartbeat needs the names of a group and of a member")
        if request.member_epoch > JOIN:
            raise _unknown(request)
        made = self._known_or_new(request.group_id)
        if request.member_epoch == LEAVE:
            return made
        _said(request, None)  # nothing is made for a request that cannot be right
        self.image.groups[request.group_id] = made
        return made

    def _known_or_new(self, group_id: str) -> Group:
        """A group; one that nobody has heard of is not kept yet, but there must be room for it."""
        found = self.image.groups.get(group_id)
        if found is None and len(self.image.groups) >= GROUPS_PER_PARTITION_MAX:
            raise LimitExceeded(f"the node keeps no more than {GROUPS_PER_PARTITION_MAX} groups in one place")
        return found or Group(group_id)

    def _join(self, change: Change, group: Group, request: GroupHeartbeatRequest, now_ms: int) -> None:
        said = _said(request, None)
        full = len(group.members) >= GROUP_MEMBERS_MAX
        if full and request.member_id not in group.members and said.instance_id not in group.instances:
            raise LimitExceeded(
                f"group {group.group_id!r} has {GROUP_MEMBERS_MAX} members, and takes no more"
            )
        membership.enter(change, group, request.member_id, said, self.catalogue, now_ms)

    def _stay(self, change: Change, group: Group, request: GroupHeartbeatRequest, now_ms: int) -> None:
        member = group.members.get(request.member_id)
        if member is None:
            if request.instance_id and request.instance_id in group.instances:
                raise InstanceFenced(
                    f"instance {request.instance_id!r} was taken over by another process. Stop one of the two"
                )
            raise _unknown(request)
        if request.member_epoch < LEAVE or request.member_epoch > member.epoch:
            raise MemberFenced(
                f"member epoch {request.member_epoch} was never given: the member is at {member.epoch}. "
                "Drop everything and rejoin"
            )
        owned = None if request.owned is None else _partitions(request.owned)
        if owned is not None and not owned <= member.holdings.keys():
            raise MemberFenced(
                "the member claims partitions that it does not hold. Drop everything and rejoin"
            )
        # An older epoch: the reply that told it more is lost, or this is a late copy. It gives up nothing by it.
        if owned is not None and request.member_epoch == member.epoch and owned <= member.told:
            membership.give_up(change, group, member)
        if request.topics is not None or request.pattern is not None:
            said = _said(request, member)
            membership.describe(change, group, member.member_id, said, self.catalogue, now_ms)

    # -- offsets ---------------------------------------------------------------------------------------------------

    def commit(self, ticket: Ticket, request: OffsetCommitRequest, now_ms: int) -> Outcome:
        """Remember how far the group has come."""
        group = self._known_or_new(request.group_id)
        records, errors = offsets.commit(group, request, self.catalogue, now_ms)
        return self._apply(records, ticket, OffsetCommitReply(_numbers(errors)))

    def fetch_offsets(self, ticket: Ticket, request: OffsetFetchRequest) -> Outcome:
        """How far the group has come."""
        found = offsets.fetch(self.image.groups.get(request.group_id), request, self.catalogue)
        return Outcome([], [Reply(ticket, OffsetFetchReply(found))])

    def reset(self, ticket: Ticket, request: GroupResetRequest, now_ms: int) -> Outcome:
        """Let the group go on from elsewhere."""
        group = self._known_or_new(request.group_id)
        records, errors = offsets.reset(group, request, self.catalogue, now_ms)
        return self._apply(records, ticket, OffsetCommitReply(_numbers(errors)))

    def delete(self, ticket: Ticket, request: GroupDeleteRequest) -> Outcome:
        """Forget the group, or some of its offsets."""
        records = offsets.delete(self.image.groups.get(request.group_id), request)
        count = sum(isinstance(record.key, OffsetKey) for record in records)
        return self._apply(records, ticket, GroupDeleteReply(count))

    def describe(self, ticket: Ticket, request: GroupDescribeRequest, ends: Ends, now_ms: int) -> Outcome:
        """Everything about a group, as it is in this moment."""
        group = self.image.groups.get(request.group_id)
        if group is None:
            raise UnknownGroup(f"there is no group {request.group_id!r}")
        heard_ms = self._sessions.heard_ms(group.group_id, group.members)
        return Outcome([], [Reply(ticket, described(group, self.catalogue, heard_ms, ends, now_ms))])

    def _apply(self, records: list[Record], ticket: Ticket, reply: msgspec.Struct) -> Outcome:
        for record in records:
            self.image.replay(record)
        return Outcome(records, [Reply(ticket, reply)])

    # -- time and topics -----------------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int | None:
        """When `tick` has something to do next."""
        expiry_ms = self._expiry_ms if self.image.groups else None
        dues = (self._sessions.next_due_ms, self._waiting.next_due_ms, expiry_ms)
        return min((due for due in dues if due is not None), default=None)

    def tick(self, now_ms: int) -> Outcome:
        """End sessions of silent members, answer heartbeats that have waited long enough, expire old offsets."""
        change = Change(self.image)
        replies = [Reply(over.ticket, GroupHeartbeatReply(over.epoch)) for over in self._waiting.over(now_ms)]
        dead: dict[str, list[str]] = {}
        for group_id, member_id in self._sessions.over(now_ms):
            dead.setdefault(group_id, []).append(member_id)
        for group_id, gone in dead.items():
            group = self.image.groups[group_id]
            membership.remove(change, group, gone, self.catalogue, now_ms)
            self._tell(group, replies)
        if now_ms >= self._expiry_ms:
            over = offsets.expired(self.image, self.catalogue, now_ms, EXPIRED_RECORDS_MAX)
            is_all = len(over) < EXPIRED_RECORDS_MAX
            self._expiry_ms = now_ms + (EXPIRY_CHECK_MS if is_all else EXPIRY_PAUSE_MS)
            for record in over:
                change.emit(record.key, record.value)
        return Outcome(change.records, replies)

    def follow(self, catalogue: Catalogue, now_ms: int) -> Outcome:
        """Topics or partitions came or went."""
        self.catalogue = catalogue
        change = Change(self.image)
        replies: list[Reply] = []
        for group in list(self.image.groups.values()):
            before = len(change.records)
            membership.follow(change, group, catalogue, now_ms)
            if len(change.records) > before:
                self._tell(group, replies)
        return Outcome(change.records, replies)

    def clients_left(self, gone: Callable[[Ticket], bool], now_ms: int) -> None:
        """Processes of members have died: unless they are heard of again soon, their sessions are over."""
        self._sessions.end_at(now_ms + GONE_MS, gone)

    def forget(self, gone: Callable[[Ticket], bool]) -> None:
        """Nobody is there any more behind tickets of which `gone` is true."""
        self._waiting.forget(gone)

    def abandon(self) -> list[Ticket]:
        """This coordinator ends: all who wait for it."""
        return self._waiting.empty()

    # -- inside --------------------------------------------------------------------------------------------------

    def _hear(self, group: Group, member: Member, now_ms: int, ticket: Ticket = None) -> None:
        at, timeout_ms = MemberAt(group.group_id, member.member_id), member.said.session_timeout_ms
        self._sessions.hear(at, timeout_ms=timeout_ms, now_ms=now_ms, ticket=ticket)

    def _outcome(self, change: Change, group: Group, replies: list[Reply]) -> Outcome:
        for record in change.records:
            if isinstance(record.key, MemberKey) and record.value is None:
                self._sessions.forget(MemberAt(record.key.group, record.key.member))
        if change.records:
            self._tell(group, replies)
        return Outcome(change.records, replies)

    def _tell(self, group: Group, replies: list[Reply]) -> None:
        """Answer the heartbeats of members that are to hold something else now, or are members no more."""
        for at, waiting in self._waiting.of(group.group_id):
            member = group.members.get(at.member_id)
            if member is not None and member.epoch == waiting.epoch:
                continue
            self._waiting.leave(at)
            gone = MemberFenced("the member was removed from its group. Drop everything and rejoin")
            replies.append(Reply(waiting.ticket, gone if member is None else _assigned(member)))


def _assigned(member: Member) -> GroupHeartbeatReply:
    grouped = by_topic(member.told)
    return GroupHeartbeatReply(
        member.epoch, [TopicPartitions(topic, some) for topic, some in grouped.items()]
    )


def _partitions(some: list[TopicPartitions]) -> set[TopicPartition]:
    return {TopicPartition(each.topic, index) for each in some for index in each.partitions}


def _said(request: GroupHeartbeatRequest, known: Member | None) -> MemberValue:
    if known is None and not request.topics and request.pattern is None:
        raise InvalidRequest("a member names topics or a pattern when it joins")
    if request.assignor and request.assignor not in ASSIGNORS:
        raise InvalidRequest(f"assignor {request.assignor!r}: use one of {', '.join(ASSIGNORS)}")
    if not SESSION_TIMEOUT_MS_MIN <= request.session_timeout_ms <= SESSION_TIMEOUT_MS_MAX:
        raise InvalidRequest(
            f"session_timeout_ms={request.session_timeout_ms}: "
            f"use {SESSION_TIMEOUT_MS_MIN} to {SESSION_TIMEOUT_MS_MAX}"
        )
    return MemberValue(
        tuple(sorted(set(request.topics or ()))),
        request.pattern,
        request.session_timeout_ms,
        request.instance_id,
        request.assignor,
        request.client_id,
    )


def _numbers(errors: list[RinglogError | None]) -> list[int]:
    return [0 if error is None else number_of(error) for error in errors]


def _unknown(request: GroupHeartbeatRequest) -> MemberFenced:
    return MemberFenced(
        f"group {request.group_id!r} has no member {request.member_id!r}. Drop everything and rejoin"
    )
