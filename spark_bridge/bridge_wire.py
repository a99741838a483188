"""What executors and a bridge say to each other: ringlog's frames, with one question of their own. Pure.

A question names a range, the columns that are wanted, and a credit: how many bytes of columns the asker has room for.
The answer holds records from the range's start on, at most one credit (a single larger record comes all the same),
and where to go on. So no side keeps a state that the other depends on, and a range may be asked for again anywhere.
"""

from __future__ import annotations

import struct
from typing import Annotated, NamedTuple

import msgspec

from ringlog.client.settings import endpoints_of
from ringlog.errors import CorruptFrame
from ringlog.limits import MIB
from ringlog.net.messages import Body, make_decoders

READ = 100
"""The api key of the question. No node has one so high that clients may use."""
CREDIT_BYTES = 8 * MIB
"""What a task has room for at a time, beside the piece that it works on."""
BRIDGE_PORT_ABOVE = 100
"""A bridge listens so many ports above its node, unless it is told otherwise."""

_HEAD = struct.Struct("<qQ")
HEAD_BYTES = _HEAD.size


class ReadRequest(Body, frozen=True):
    """The question."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0)]
    start: Annotated[int, msgspec.Meta(ge=0)]
    end: Annotated[int, msgspec.Meta(ge=0)]
    columns: Annotated[list[str], msgspec.Meta(min_length=1, max_length=8)]
    credit_bytes: Annotated[int, msgspec.Meta(ge=1)]
    topic_id: int | None = None
    """Of the topic that the range is of; None: whichever has the name."""


class ReadReply(NamedTuple):
    """The answer: an Arrow IPC record batch, and the offset to ask for next."""

    next_offset: int
    batch: memoryview


def pack_reply_head(next_offset: int, batch_bytes: int) -> bytes:
    """The 16 bytes before the batch.

    >>> unpack_reply(memoryview(pack_reply_head(7, 2) + b"hi")).next_offset
    7
    """
    return _HEAD.pack(next_offset, batch_bytes)


def unpack_reply(body: memoryview) -> ReadReply:
    """CorruptFrame unless the lengths fit."""
    if len(body) < HEAD_BYTES:
        raise CorruptFrame("body", 32, f"an answer of {len(body)} bytes")
    next_offset, batch_bytes = _HEAD.unpack_from(body)
    if batch_bytes != len(body) - HEAD_BYTES:
        raise CorruptFrame("batch_bytes", 40, f"it says {batch_bytes}, and {len(body) - HEAD_BYTES} follow")
    return ReadReply(next_offset, body[HEAD_BYTES:])


def default_bridge(bootstrap: str) -> str | None:
    """Where a node's bridge is, unless somebody chose another place; None when that cannot be said.

    >>> default_bridge("10.0.0.7:9400")
    '10.0.0.7:9500'
    """
    for endpoint in endpoints_of(bootstrap):
        if endpoint.startswith("tcp://"):
            host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
            if int(port) + BRIDGE_PORT_ABOVE < 65536:
                return f"{host}:{int(port) + BRIDGE_PORT_ABOVE}"
    return None


make_decoders(globals())
