"""What the voters of a quorum say to each other, and what they keep: tagged msgpack arrays. Pure.

Every message names the epoch of its sender and who that is, disk included: a node whose disk was replaced or found
damaged has the same node id and another disk id, and nothing that the old disk promised is expected of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from ringlog.errors import CorruptFrame

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Voter(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A member of the quorum. An empty disk id stands for any disk: nobody has met this node yet."""

    node_id: int
    disk_id: str

    def admits(self, other: Voter) -> bool:
        """Whether the other one is the member that is meant here."""
        return self.node_id == other.node_id and self.disk_id in ("", other.disk_id)

    def __str__(self) -> str:
        return f"{self.node_id}/{self.disk_id or '*'}"


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One entry of the log: the epoch of the leader that appended it, at an index that counts from 1."""

    index: Count
    epoch: Count
    kind: Literal["data", "start", "voters"]
    """`start` is the first of a leader's epoch and says nothing; `voters` changes who the voters are."""
    data: bytes = b""


class Snapshot(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the log up to an index adds up to, in place of its entries."""

    last_index: Count
    last_epoch: Count
    voters: tuple[Voter, ...]
    """As of `last_index`."""
    data: bytes


class HardState(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What must never be forgotten: the highest epoch seen, and whom this voter voted for in it."""

    epoch: Count = 0
    voted_for: Voter | None = None


class _Message(msgspec.Struct, array_like=True, frozen=True, tag=True, gc=False):
    """From one voter to another. Fields are only ever added at the end, with a default."""

    epoch: Count
    sender: Voter


class VoteRequest(_Message, frozen=True, tag="vote?"):
    """Would you (`pre`), or do you, vote for me in this epoch? My log ends so."""

    last_index: Count
    last_epoch: Count
    pre: bool
    forced: bool = False
    """The leader itself asked for this election: a voter that still hears from it shall vote all the same."""


class VoteReply(_Message, frozen=True, tag="vote!"):
    """The answer. A granted pre-vote carries the epoch that it was asked for; it binds nobody."""

    granted: bool
    pre: bool


class AppendRequest(_Message, frozen=True, tag="append?"):
    """Entries that follow the one at `prev_index`, which must be of `prev_epoch`."""

    prev_index: Count
    prev_epoch: Count
    entries: tuple[Entry, ...]
    commit_index: Count


class AppendReply(_Message, frozen=True, tag="append!"):
    """Accepted: my log is flushed, and equal to yours, up to `index`. Otherwise: look at `index` and below."""

    accepted: bool
    index: Count
    index_epoch: Count = 0
    """Of a refusal: the epoch of my entry there."""
    refused_index: Count = 0
    """Of a refusal: the `prev_index` that did not match, so that an old one is told from a new one."""


class Beat(_Message, frozen=True, tag="beat?"):
    """I lead."""

    commit_index: Count
    """Never more than what the receiver is known to have."""
    disk_id: str
    """The disk that is known to have it: another one in its place must not believe that it does."""


class BeatReply(_Message, frozen=True, tag="beat!"):
    """I hear you."""


class SnapshotRequest(_Message, frozen=True, tag="snapshot?"):
    """What you lack is no longer in my log: begin from here. Answered by an AppendReply."""

    snapshot: Snapshot


class TransferRequest(_Message, frozen=True, tag="transfer!"):
    """You have all that I have: be elected, now."""


Message = (
    VoteRequest
    | VoteReply
    | AppendRequest
    | AppendReply
    | Beat
    | BeatReply
    | SnapshotRequest
    | TransferRequest
)

_encoder = msgspec.msgpack.Encoder()
_message: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_voters = msgspec.msgpack.Decoder(tuple[Voter, ...])


def encode_message(message: Message) -> bytes:
    """The bytes of a message."""
    return _encoder.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    """A message; CorruptFrame says what is wrong with it.

    >>> decode_message(encode_message(BeatReply(7, Voter(1, "a")))).epoch
    7
    """
    try:
        message = _message.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise CorruptFrame("quorum message", 0, str(wrong)) from None
    if isinstance(message, AppendRequest):
        _require_sequence(message)
    return message


def _require_sequence(request: AppendRequest) -> None:
    """Entries follow each other, and none is of an epoch that its sender has not reached."""
    index, epoch = request.prev_index, request.prev_epoch
    for entry in request.entries:
        if entry.index != index + 1 or not epoch <= entry.epoch <= request.epoch:
            raise CorruptFrame(
                "entries", 0, f"entry {entry.index} of epoch {entry.epoch} behind {index} of {epoch}"
            )
        if entry.kind == "voters" and not decode_voters(entry.data):
            raise CorruptFrame("voters", 0, "there are none")
        index, epoch = entry.index, entry.epoch


def encode_voters(voters: Sequence[Voter]) -> bytes:
    """The data of a `voters` entry."""
    return _encoder.encode(tuple(voters))


def decode_voters(data: bytes) -> tuple[Voter, ...]:
    """The voters that an entry names."""
    try:
        return _voters.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise CorruptFrame("voters", 0, str(wrong)) from None
