"""Frames: the 32-byte header that goes before every body, in both directions. Pure; docs/PROTOCOL.md explains it.

A message on the wire is one frame. The layout of the header is that of `ringlog.ring.frame`, so that a frame
goes from the socket into a shard's ring as it came.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from ringlog.errors import CorruptFrame, UnsupportedVersion
from ringlog.ring.frame import FRAME_HEADER_BYTES, FRAME_VERSION

HEADER_BYTES = FRAME_HEADER_BYTES
_HEADER = struct.Struct("<BBHIQQII")
_new_tuple = tuple.__new__
"""What makes a named tuple of as many fields as it has: its own `_make` is four calls, of each frame that there is."""


class Api(IntEnum):
    """What a request asks for. The numbers never change; a number that went out of use is never given again."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    INIT_PRODUCER = 4
    CREATE_TOPIC = 5
    DELETE_TOPIC = 6
    ALTER_TOPIC = 7
    ADD_PARTITIONS = 8
    DESCRIBE_PARTITIONS = 9
    GROUP_HEARTBEAT = 10
    OFFSET_COMMIT = 11
    OFFSET_FETCH = 12
    GROUP_LIST = 13
    GROUP_DESCRIBE = 14
    GROUP_RESET = 15
    GROUP_DELETE = 16
    DELETE_RECORDS = 20
    SPLIT_POINTS = 25
    REASSIGN = 26
    DRAIN_NODE = 27
    ALTER_CLUSTER = 28
    SHARE_MEMORY = 29


GROUP_APIS = frozenset(
    {
        Api.GROUP_HEARTBEAT,
        Api.OFFSET_COMMIT,
        Api.OFFSET_FETCH,
        Api.GROUP_LIST,
        Api.GROUP_DESCRIBE,
        Api.GROUP_RESET,
        Api.GROUP_DELETE,
    }
)
"""About consumer groups: the header names the group's partition of the offsets topic."""
SHARD_APIS = GROUP_APIS | {
    Api.PRODUCE,
    Api.FETCH,
    Api.LIST_OFFSETS,
    Api.DESCRIBE_PARTITIONS,
    Api.DELETE_RECORDS,
    Api.SPLIT_POINTS,
}
"""Answered by the shard that serves the partition in the header."""
CONTROLLER_APIS = frozenset(
    {
        Api.INIT_PRODUCER,
        Api.CREATE_TOPIC,
        Api.DELETE_TOPIC,
        Api.ALTER_TOPIC,
        Api.ADD_PARTITIONS,
        Api.REASSIGN,
        Api.DRAIN_NODE,
        Api.ALTER_CLUSTER,
    }
)
"""Answered by the controller; METADATA and SHARE_MEMORY alone are answered where they arrive."""


class Flag(IntEnum):
    """Bits of the header's flags."""

    ACKS_MASK = 0b11
    """Of a produce request: an Acks."""
    NEAR = 1 << 2
    """Of a produce request: the body says where in the client's memory the batch lies. Of a fetch: it begins with where
    the reply may be put; of its reply: it was put there."""
    ERROR = 1 << 14
    """Of a reply: the body is an ErrorReply."""
    REPLY = 1 << 15


class Acks(IntEnum):
    """When a produce request is answered."""

    NONE = 0
    """Never."""
    LEADER = 1
    """When it is as durable on the partition's leader as the topic's flush policy says."""
    ALL = 2
    """When all in-sync replicas have it so."""
    RECEIVED = 3
    """When its leader has it in memory. It promises nothing, but that there is room for the next one."""


class Header(NamedTuple):
    """A frame's first 32 bytes."""

    version: int
    api_key: int
    flags: int
    partition: int
    """A partition's node-wide id, from the metadata; 0 where the api is not about one."""
    correlation: int
    """Chosen by the client and returned with the reply."""
    received: int
    """Of a request: bytes of reply frames that the client has received on this connection so far. A node holds
    fetches back while too much that it sent is not received yet. Of a reply: 0."""
    deadline_ms: int
    """Of a request: how long the client will wait for the answer."""
    body_bytes: int


def pack_header(
    api_key: int,
    *,
    correlation: int,
    body_bytes: int,
    partition: int = 0,
    flags: int = 0,
    received: int = 0,
    deadline_ms: int = 0,
) -> bytes:
    """The 32 bytes that go before a body.

    >>> unpack_header(pack_header(Api.METADATA, correlation=7, body_bytes=2) + b"hi").correlation
    7
    """
    return _HEADER.pack(
        FRAME_VERSION, api_key, flags, partition, correlation, received, deadline_ms, body_bytes
    )


def unpack_header(frame: bytes | memoryview) -> Header:
    """The header of a whole frame; raises CorruptFrame or UnsupportedVersion unless it fits the bytes."""
    size = len(frame)
    if size < HEADER_BYTES:
        raise CorruptFrame("header", 0, f"a frame of {size} bytes; a header alone has {HEADER_BYTES}")
    header = _new_tuple(Header, _HEADER.unpack_from(frame))
    if header.version != FRAME_VERSION:
        raise UnsupportedVersion(f"frame version {header.version}; this side speaks {FRAME_VERSION}")
    if header.body_bytes != size - HEADER_BYTES:
        raise CorruptFrame(
            "body_bytes",
            28,
            f"it says {header.body_bytes}, and {size - HEADER_BYTES} bytes follow the header",
        )
    return header
