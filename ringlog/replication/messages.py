"""What replicas say to each other: fetches and their answers. Every part carries the leader epoch. Pure.

A follower node asks a leader node for many partitions at once. The first fetch of a session names them all; later
ones name those whose position changed. A session is a conversation: its fetches are numbered, and one that does not
continue the numbering is answered with `lost`, upon which the follower begins anew.
"""

from __future__ import annotations

import msgspec

from ringlog.errors import CorruptFrame


class Want(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A follower's position in one partition, and a request for what comes next."""

    partition: int
    leader_epoch: int
    """Under which the follower follows. A leader of another epoch refuses."""
    fetch_offset: int
    """Where its log ends."""
    last_epoch: int
    """The leader epoch of its last batch; −1: it has none. Equal logs have equal ones at equal offsets."""
    held_offset: int
    """How far it holds the log at the topic's ack level. Never above fetch_offset."""
    bytes_max: int
    start_offset: int = -1
    """Where its log begins, also after a power loss; −1: it does not say."""


class ReplicaFetch(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One fetch of a node."""

    node: int
    node_epoch: int
    """Of the node's registration with the controller: not the same after a restart."""
    lane: int
    """Which of the node's shards asks."""
    session: int
    """Chosen by the lane: each is larger than those before."""
    sequence: int
    """0 begins the session anew."""
    wait_ms: int
    bytes_max: int
    wants: list[Want]
    forget: list[int]


class ReplicaHeld(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A node reports that it holds more by now. Not answered; a later one says all that a lost one said."""

    node: int
    node_epoch: int
    wants: list[Want]
    session: int = -1
    """The conversation of which the positions are; −1: it does not say."""


class Part(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The answer about one partition. Its batches follow the head of the reply, in the order of the parts."""

    partition: int
    error: int
    """0, or the number of an error."""
    leader_epoch: int
    """Of the leader that answers."""
    fetch_offset: int
    """As it was asked: an answer that comes late is known by it."""
    high_watermark: int
    start_offset: int
    """Where the leader's log begins: what is below was deleted, and followers delete it, too."""
    nbytes: int = 0
    diverging_epoch: int = -1
    diverging_offset: int = -1
    """If not −1, the follower's log is no prefix: `diverging_epoch`, the largest not above its last, ends here."""
    is_free: bool = False
    """Nobody counts on the follower: it is not in sync, nor on its way to be by what it said before this question."""


class ReplicaFetched(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The head of an answer."""

    session: int
    sequence: int
    lost: bool
    """The leader does not know the session: begin anew."""
    parts: list[Part]


_encoder = msgspec.msgpack.Encoder()
_fetch = msgspec.msgpack.Decoder(ReplicaFetch)
_held = msgspec.msgpack.Decoder(ReplicaHeld)
_fetched = msgspec.msgpack.Decoder(ReplicaFetched)
_HEAD_LENGTH_BYTES = 4


def encode_ask(message: ReplicaFetch | ReplicaHeld) -> bytes:
    """The body of what a follower sends."""
    return _encoder.encode(message)


def decode_fetch(body: bytes | memoryview, caller: int) -> ReplicaFetch:
    """A replica fetch of a node; raises CorruptFrame, also when it is said in the name of another one."""
    try:
        fetch = _fetch.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise CorruptFrame("replica fetch", 0, str(wrong)) from None
    _require_node(fetch.node, caller)
    return fetch


def decode_held(body: bytes | memoryview, caller: int) -> ReplicaHeld:
    """A report of what a node holds; raises CorruptFrame, also when it is said in the name of another one."""
    try:
        held = _held.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise CorruptFrame("replica report", 0, str(wrong)) from None
    _require_node(held.node, caller)
    return held


def encode_fetched(fetched: ReplicaFetched) -> bytes:
    """The head of an answer's body: its length, then itself. The batches follow.

    >>> body = encode_fetched(ReplicaFetched(1, 2, False, [Part(7, 0, 3, 100, 90, 0, nbytes=3)])) + b"abc"
    >>> head, at = decode_fetched(body)
    >>> head.parts[0].partition, body[at:]
    (7, b'abc')
    """
    head = _encoder.encode(fetched)
    return len(head).to_bytes(_HEAD_LENGTH_BYTES, "little") + head


def decode_fetched(body: bytes | memoryview) -> tuple[ReplicaFetched, int]:
    """An answer's head, and where its batches begin; raises CorruptFrame unless the batches fill the body."""
    size = len(body)
    end = _HEAD_LENGTH_BYTES + int.from_bytes(body[:_HEAD_LENGTH_BYTES], "little")
    if size < _HEAD_LENGTH_BYTES or end > size:
        raise CorruptFrame("replica fetch head", 0, f"it ends at {end}, the body at {size}")
    try:
        fetched = _fetched.decode(body[_HEAD_LENGTH_BYTES:end])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise CorruptFrame("replica fetch head", _HEAD_LENGTH_BYTES, str(wrong)) from None
    if any(part.nbytes < 0 for part in fetched.parts) or end + sum(p.nbytes for p in fetched.parts) != size:
        raise CorruptFrame("replica fetch data", end, "the parts do not add up to the bytes that follow")
    return fetched, end


def _require_node(named: int, caller: int) -> None:
    if named != caller:
        raise CorruptFrame("node", 0, f"node {caller} speaks for node {named}")
