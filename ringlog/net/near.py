"""Batches that a node takes out of the memory of a client on the same host, and replies to fetches that it puts there,
instead of using the socket. Pure.

A client makes its batches in memory that it shares once per connection (`client/near_memory.py`). A produce request
with the flag NEAR then says where the batch lies. The network process adds whose memory that is, and the shard copies
the batch from there (`shard/near_batches.py`):

    0                   32         40      44    48       56        60           64       72
    ├───────────────────┼──────────┼───────┼─────┼────────┼─────────┼────────────┼────────┤
    │ header, with NEAR │ u64      │ u32   │ u32 │ u64    │ u32     │ u32        │ u64    │
    │                   │ position │ bytes │ crc │ number │ process │ descriptor │ nbytes │
    └───────────────────┴──────────┴───────┴─────┴────────┴─────────┴────────────┴────────┘
                          from the client          within the node: the memory

The memory stays the client's, which may write there at any time: by mistake, or because it has given up on a request
that is still on its way. So nothing in it is believed. The copy is judged, not the original: its CRC field must be the
one that the request names, which tells another batch in the same place, and it is checked as all others are.

A fetch with the flag NEAR names a place before its body, into which the network process may copy the body of the reply
straight from the shard's memory. The reply then has the flag NEAR, and says in 4 bytes how much lies there:

    0                   32         40      44     48            0                   32      36
    ├───────────────────┼──────────┼───────┼──────┼───────┤     ├───────────────────┼───────┤
    │ header, with NEAR │ u64      │ u32   │ u32  │ fetch │     │ header, with NEAR │ u32   │
    │                   │ position │ bytes │ zero │       │     │                   │ bytes │
    └───────────────────┴──────────┴───────┴──────┴───────┘     └───────────────────┴───────┘

A place is the node's to write in until the fetch is answered, or the connection is gone and the memory with it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ringlog.errors import CorruptFrame, InvalidRequest
from ringlog.limits import BATCH_HEADER_BYTES, FRAME_BYTES_MAX
from ringlog.net.framing import HEADER_BYTES, Flag, Header, pack_header

PLACE = struct.Struct("<QI4s")
_MEMORY = struct.Struct("<QIIQ")
_NAMED = struct.Struct("<QI4sQIIQ")
assert _NAMED.size == PLACE.size + _MEMORY.size
LANDING = struct.Struct("<QI4x")
"""Where a reply may be put: before the body of a fetch."""
LANDED = struct.Struct("<I")
"""How much of a reply was put there."""
_NEAR, _FETCH_REPLY = int(Flag.NEAR), int(Flag.REPLY | Flag.NEAR)
CRC = slice(17, 21)
"""Of a batch."""


class Place(NamedTuple):
    """A part of the memory that a client shares."""

    memory: memoryview
    position: int
    """Where it begins in what is shared."""


class SharedMemory(NamedTuple):
    """What a client shares with a node."""

    number: int
    """Never given twice by a network process: a descriptor may be used again for other memory."""
    process: int
    descriptor: int
    """Of that process."""
    nbytes: int
    landing: memoryview | None = None
    """The memory itself, where replies may be put there."""


class NearBatch(NamedTuple):
    """Where a batch lies."""

    position: int
    nbytes: int
    crc: bytes
    memory: SharedMemory


def place_of(frame: bytearray | memoryview, position: int) -> bytes:
    """What a request says instead of the sealed batch that lies in a frame behind the room for its header."""
    return PLACE.pack(position, len(frame) - HEADER_BYTES, bytes(frame[HEADER_BYTES:][CRC]))


def near_request(memory: SharedMemory | None, header: Header, frame: memoryview) -> tuple[memoryview, int]:
    """A request with the flag NEAR as a shard takes it, and how large it would be with the batch in it; InvalidRequest
    when it names none."""
    if memory is None:
        raise InvalidRequest("this connection has shared no memory: the batch must be in the request")
    if not header.flags & Flag.ACKS_MASK:
        # Nobody could say when its place is free again, nor how many such wait for a shard.
        raise InvalidRequest("a batch elsewhere is answered: use other acks than NONE")
    if len(frame) != HEADER_BYTES + PLACE.size:
        raise InvalidRequest(f"a batch elsewhere is named by {PLACE.size} bytes, not {header.body_bytes}")
    position, nbytes, _ = PLACE.unpack_from(frame, HEADER_BYTES)
    if not BATCH_HEADER_BYTES <= nbytes <= FRAME_BYTES_MAX - HEADER_BYTES:
        raise InvalidRequest(f"no batch has {nbytes} bytes")
    if position + nbytes > memory.nbytes:
        raise InvalidRequest(f"{nbytes} bytes at {position} are not in the {memory.nbytes} that are shared")
    head = pack_header(
        header.api_key,
        correlation=header.correlation,
        body_bytes=_NAMED.size,
        partition=header.partition,
        flags=header.flags,
    )
    named = bytearray(head)
    named += frame[HEADER_BYTES:]
    named += _MEMORY.pack(memory.number, memory.process, memory.descriptor, memory.nbytes)
    return memoryview(named), HEADER_BYTES + nbytes


def named_batch(body: memoryview) -> NearBatch:
    """What the body of such a request names; CorruptFrame unless it can be there."""
    if len(body) != _NAMED.size:
        raise CorruptFrame(
            "body", HEADER_BYTES, f"a batch in a client's memory is named by {_NAMED.size} bytes"
        )
    position, nbytes, crc, *memory = _NAMED.unpack(body)
    named = NearBatch(position, nbytes, crc, SharedMemory(*memory))
    if nbytes > FRAME_BYTES_MAX or position + nbytes > named.memory.nbytes:
        raise CorruptFrame("position", HEADER_BYTES, "no batch can be there")
    return named


def near_fetch(
    shared: SharedMemory | None, header: Header, frame: memoryview
) -> tuple[memoryview, memoryview]:
    """A fetch with the flag NEAR as one without, and the place that it names; InvalidRequest when that is none."""
    memory = shared.landing if shared is not None else None
    if memory is None:
        raise InvalidRequest("this connection has shared no memory to write in: replies come through it")
    if header.body_bytes < LANDING.size:
        raise InvalidRequest(f"a place for the reply is named by {LANDING.size} bytes")
    position, nbytes = LANDING.unpack_from(frame, HEADER_BYTES)
    if position + nbytes > len(memory):
        raise InvalidRequest(f"{nbytes} bytes at {position} are not in the {len(memory)} that are shared")
    head = pack_header(
        header.api_key,
        correlation=header.correlation,
        body_bytes=header.body_bytes - LANDING.size,
        partition=header.partition,
        flags=header.flags & ~_NEAR,
    )
    fetch = bytearray(head)
    fetch += frame[HEADER_BYTES + LANDING.size :]
    return memoryview(fetch), memory[position : position + nbytes]


def land(landing: memoryview, pieces: Sequence[bytes | memoryview]) -> int:
    """Put the pieces of a reply one behind the other into a place that has room for them; how much that is."""
    at = 0
    for piece in pieces:
        behind = at + len(piece)
        landing[at:behind] = piece
        at = behind
    return at


def landed_reply(api_key: int, *, correlation: int, partition: int, nbytes: int) -> bytes:
    """The frame that is sent for a reply that lies in the client's memory."""
    header = pack_header(
        api_key, correlation=correlation, partition=partition, flags=_FETCH_REPLY, body_bytes=LANDED.size
    )
    return header + LANDED.pack(nbytes)


def landed(landing: memoryview | None, body: memoryview) -> memoryview:
    """The body of a reply that says that it lies in a client's memory; CorruptFrame when it cannot lie there."""
    if len(body) != LANDED.size:
        raise CorruptFrame(
            "body", HEADER_BYTES, f"a reply elsewhere is named by {LANDED.size} bytes, not {len(body)}"
        )
    (nbytes,) = LANDED.unpack(body)
    if landing is None or nbytes > len(landing):
        room = 0 if landing is None else len(landing)
        raise CorruptFrame("body", HEADER_BYTES, f"{nbytes} bytes of a reply were put where {room} have room")
    return landing[:nbytes]
