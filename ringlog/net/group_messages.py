"""Bodies of frames about consumer groups. Pure; docs/PROTOCOL.md lists every field.

The header of such a request names a partition of the offsets topic: that with the
index murmur2(group id) modulo OFFSETS_PARTITIONS.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ringlog.limits import (
    FETCH_PARTITIONS_MAX,
    GROUP_ID_CHARS_MAX,
    GROUP_TOPICS_MAX,
    OFFSET_METADATA_CHARS_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    SESSION_TIMEOUT_MS_DEFAULT,
    TOPIC_NAME_CHARS_MAX,
)
from ringlog.net.messages import Body, Int64, make_decoders

OFFSETS_TOPIC = "__consumer_offsets"
"""Where groups are kept: made when it is first needed, OFFSETS_PARTITIONS partitions, compacted."""

JOIN = 0
"""As a member epoch: this member begins, and holds nothing."""
LEAVE = -1
"""As a member epoch: this member ends, and holds nothing any more. Of a commit: the committer is no member."""
NO_OFFSET = -1

Name = Annotated[str, msgspec.Meta(max_length=GROUP_ID_CHARS_MAX)]
TopicName = Annotated[str, msgspec.Meta(max_length=TOPIC_NAME_CHARS_MAX)]
Index = Annotated[int, msgspec.Meta(ge=0, lt=PARTITIONS_PER_TOPIC_MAX)]
_SOME = msgspec.Meta(max_length=FETCH_PARTITIONS_MAX)


class TopicPartitions(Body, frozen=True):
    """Some partitions of a topic, by their indexes."""

    topic: TopicName
    partitions: Annotated[list[Index], _SOME]


class GroupHeartbeatRequest(Body, frozen=True):
    """Join, stay in, or leave a group. Answered at once when the member is to hold other partitions than at
    `member_epoch`, and after `wait_ms` otherwise."""

    group_id: Name
    member_id: Name
    """Chosen by the client, unique: no two members ever have the same."""
    member_epoch: Int64
    """That of the last reply; JOIN or LEAVE."""
    owned: Annotated[list[TopicPartitions], _SOME] | None = None
    """What the member holds. One that it was told to give up is free for others when it is missing here; None: it is
    still busy giving up."""
    wait_ms: Int64 = 0
    topics: Annotated[list[TopicName], msgspec.Meta(max_length=GROUP_TOPICS_MAX)] | None = None
    """Subscribed to; None together with pattern None: as before."""
    pattern: TopicName | None = None
    """Subscribed to all topics whose names fit: * any characters, ? one, [abc] one of these."""
    session_timeout_ms: Int64 = SESSION_TIMEOUT_MS_DEFAULT
    instance_id: Name = ""
    """A member with a name keeps its partitions when its process is restarted within the session timeout."""
    assignor: Name = ""
    """`sticky`, `range` or `round_robin`; "": sticky."""
    client_id: Name = ""


class GroupHeartbeatReply(Body, frozen=True):
    """What the member is to hold from now on: it gives up all else, and says so in its next heartbeat."""

    member_epoch: int
    assigned: list[TopicPartitions] | None = None
    """None: nothing has changed since the epoch of the request."""


class OffsetToCommit(Body, frozen=True):
    """The group has done all below `offset`."""

    topic: TopicName
    partition: Index
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    metadata: Annotated[str, msgspec.Meta(max_length=OFFSET_METADATA_CHARS_MAX)] = ""


class OffsetCommitRequest(Body, frozen=True):
    """Answered when the offsets are as durable as any record."""

    group_id: Name
    member_id: Name
    member_epoch: Int64
    """LEAVE: not a member; taken only while the group has none."""
    sequence: Int64
    """Grows with each commit of the member, so that a delayed one never goes back. A repeat has the same number."""
    offsets: Annotated[list[OffsetToCommit], _SOME]


class OffsetCommitReply(Body, frozen=True):
    """An error number for each offset of the request, 0: it counts, or a later commit of the member does."""

    errors: list[int]


class OffsetFetchRequest(Body, frozen=True):
    """None: all that the group has committed."""

    group_id: Name
    partitions: Annotated[list[TopicPartitions], _SOME] | None = None


class CommittedOffset(Body, frozen=True):
    """-1: nothing was committed."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    commit_ms: int = -1


class OffsetFetchReply(Body, frozen=True):
    """In the order of the request."""

    offsets: list[CommittedOffset]


class GroupListRequest(Body, frozen=True):
    """All groups that the shard of the header's partition keeps: ask one partition of each lane."""


class GroupSummary(Body, frozen=True):
    """A group in a list. `state`: empty, reconciling or stable."""

    group_id: str
    state: str
    members: int
    epoch: int
    assignor: str
    lag: int
    """Records that are still to be read, over all partitions."""
    lag_ms: int
    """How long ago the oldest of them came."""


class GroupListReply(Body, frozen=True):
    """By name. `loading`: partitions of the offsets topic whose groups are not known yet."""

    groups: list[GroupSummary]
    loading: int = 0


class GroupDescribeRequest(Body, frozen=True):
    """Everything about a group."""

    group_id: Name


class MemberDescription(Body, frozen=True):
    """A member: what it holds, what it will hold, and what it was told to give up."""

    member_id: str
    instance_id: str
    client_id: str
    member_epoch: int
    subscribed: list[str]
    assigned: list[TopicPartitions]
    target: list[TopicPartitions]
    revoking: list[TopicPartitions]
    heard_ms_ago: int


class PartitionLag(Body, frozen=True):
    """How far a group is behind in a partition; all -1 while nothing is known of its log."""

    partition: int
    log_start_offset: int
    readable_offset: int
    lag: int
    """Records that are still to be read. Without a commit, all that the log has."""
    lag_ms: int
    """How long ago the first of them came, at most; 0: there is none."""


class TopicLag(Body, frozen=True):
    """How far a group is behind in partitions of a topic."""

    topic: str
    partitions: list[PartitionLag]


class GroupDescribeReply(Body, frozen=True):
    """A group with its members, its offsets, and how far it is behind."""

    group_id: str
    state: str
    epoch: int
    assignor: str
    members: list[MemberDescription]
    offsets: list[CommittedOffset]
    lags: list[TopicLag]
    """Of all partitions that are held or have a committed offset."""


class GroupResetRequest(Body, frozen=True):
    """Let a group without members go on from these offsets."""

    group_id: Name
    offsets: Annotated[list[OffsetToCommit], _SOME]


class GroupDeleteRequest(Body, frozen=True):
    """Forget a group without members; or only these offsets of it."""

    group_id: Name
    partitions: Annotated[list[TopicPartitions], _SOME] | None = None


class GroupDeleteReply(Body, frozen=True):
    """How many offsets are forgotten."""

    offsets: int


make_decoders(globals())
