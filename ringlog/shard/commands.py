"""Frames that only processes of one node send each other, beside the requests and replies of clients. Pure.

A fetch reply with much data goes from shard to network process as a *lent* reply: the head of the reply, and
ranges of the shard's memory that hold the rest. The network process copies them into one message and gives
them back with RELEASE in the same cycle.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from ringlog.ring.frame import FRAME_HEADER_BYTES, frame_header

LENT = 1 << 13
"""A flag of a reply in a ring: the body is a lent reply."""


class NodeApi(IntEnum):
    """Api keys that are refused when they come from a client."""

    DELTA = 200
    """Controller to all: a change of metadata."""
    APPLIED = 201
    """Shard to controller: the metadata version that it serves."""
    RELEASE = 202
    """Network process to shard: tokens of lent replies."""
    LEFT = 203
    """Network process to shard: sessions of clients on this host whose processes have died."""
    GONE = 204
    """Network process to shard: sessions of clients whose connections have ended, and will not come back."""
    REPLICA_FETCH = 210
    """A shard of a follower's node to one of its leader's, and back: `replication.messages`. The session names the
    other node (`place`), the correlation the leader's shard."""
    REPLICA_HELD = 211
    """The same: what the follower holds by now. Not answered."""
    ALTER_ISR = 212
    """Shard to controller: `AlterIsrRequest`; back: `AlterIsrReply`."""
    PEER_HELLO = 213
    """The first word between two nodes: `net.peer_wire`. No shard sees it."""


REPLICA_APIS = frozenset({NodeApi.REPLICA_FETCH, NodeApi.REPLICA_HELD})
"""Between shards of different nodes."""

_NODE_MASK = 2**32 - 1

_LENT_HEAD = struct.Struct("<QII")
_RANGE = struct.Struct("<QQ")
_U64 = struct.Struct("<Q")


def node_frame(api: NodeApi, body: bytes, *, partition: int = 0) -> bytes:
    """A whole frame between processes of a node. `partition`: frames of one drain are taken in its order."""
    return frame_header(api_key=api, partition=partition, correlation=0, body_bytes=len(body)) + body


def place(node: int, shard: int = 0) -> int:
    """A node, and a shard of it, as the session of a frame names them.

    >>> place_of(place(3, 2))
    (3, 2)
    """
    return shard << 32 | node


def place_of(session: int) -> tuple[int, int]:
    """The node and the shard that a session names."""
    return session & _NODE_MASK, session >> 32


def pack_u64(*values: int) -> bytes:
    """Numbers, for APPLIED, RELEASE, LEFT and GONE."""
    return struct.pack(f"<{len(values)}Q", *values)


def unpack_u64(body: memoryview) -> tuple[int, ...]:
    return struct.unpack(f"<{len(body) // 8}Q", body)


class LentReply(NamedTuple):
    """The head of a reply's body, and where in the shard's memory the rest lies."""

    token: int
    head: bytes
    ranges: list[tuple[int, int]]
    """(position, bytes)"""

    @property
    def data_bytes(self) -> int:
        return sum(nbytes for _, nbytes in self.ranges)


def pack_lent(token: int, head: bytes, ranges: Sequence[tuple[int, int]]) -> bytes:
    """The body of a lent reply.

    >>> unpack_lent(memoryview(pack_lent(7, b"head", [(4096, 10)])))
    LentReply(token=7, head=b'head', ranges=[(4096, 10)])
    """
    packed = b"".join(_RANGE.pack(*piece) for piece in ranges)
    return _LENT_HEAD.pack(token, len(head), len(ranges)) + head + packed


def unpack_lent(body: memoryview) -> LentReply:
    token, head_bytes, count = _LENT_HEAD.unpack_from(body)
    at = _LENT_HEAD.size + head_bytes
    ranges = list(_RANGE.iter_unpack(body[at : at + count * _RANGE.size]))
    return LentReply(token, bytes(body[_LENT_HEAD.size : at]), ranges)


__all__ = [
    "FRAME_HEADER_BYTES",
    "LENT",
    "LentReply",
    "NodeApi",
    "node_frame",
    "pack_lent",
    "pack_u64",
    "place",
    "place_of",
    "unpack_lent",
    "unpack_u64",
]
