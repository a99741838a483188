"""Batches that a node takes out of the memory of a client on the same host, instead of out of its socket. Pure.

A client makes its batches in memory that it shares once per connection (`client/near_memory.py`). A produce request
with the flag NEAR then says where the batch lies, and the network process copies it from there straight into a ring:

    0                   32         40      44    48
    ├───────────────────┼──────────┼───────┼─────┤
    │ header, with NEAR │ u64      │ u32   │ u32 │
    │                   │ position │ bytes │ crc │
    └───────────────────┴──────────┴───────┴─────┘

The memory stays the client's, which may write there at any time: by mistake, or because it has given up on a request
that is still on its way. So nothing in it is believed. The copy is judged, not the original: its CRC field must be the
one that the request names, which tells another batch in the same place, and the shard checks it as it does all others.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ringlog.errors import InvalidRequest
from ringlog.limits import BATCH_HEADER_BYTES, FRAME_BYTES_MAX
from ringlog.net.framing import HEADER_BYTES, Flag, Header, pack_header

PLACE = struct.Struct("<QI4s")
_NEAR = int(Flag.NEAR)
_CRC = slice(HEADER_BYTES + 17, HEADER_BYTES + 21)
"""Of a frame with a batch in it."""


def place_of(frame: bytearray | memoryview, position: int) -> bytes:
    """What a request says instead of the sealed batch that lies in a frame behind the room for its header."""
    return PLACE.pack(position, len(frame) - HEADER_BYTES, bytes(frame[_CRC]))


class NearBatch(NamedTuple):
    """A batch in a client's memory, and the header of the frame that it is copied into."""

    head: bytes
    batch: memoryview
    crc: bytes

    @property
    def frame_bytes(self) -> int:
        return HEADER_BYTES + len(self.batch)

    def copy_to(self, frame: memoryview | bytearray) -> bool:
        """Make the frame. False when another batch, or none, lies there by now."""
        frame[:HEADER_BYTES] = self.head
        frame[HEADER_BYTES:] = self.batch
        return bytes(frame[_CRC]) == self.crc


def near_batch(memory: memoryview | None, header: Header, frame: memoryview) -> NearBatch:
    """The batch that a request with the flag NEAR names; InvalidRequest when that is none."""
    if memory is None:
        raise InvalidRequest("this connection has shared no memory: the batch must be in the request")
    if len(frame) != HEADER_BYTES + PLACE.size:
        raise InvalidRequest(f"a batch elsewhere is named by {PLACE.size} bytes, not {header.body_bytes}")
    position, nbytes, crc = PLACE.unpack_from(frame, HEADER_BYTES)
    if not BATCH_HEADER_BYTES <= nbytes <= FRAME_BYTES_MAX - HEADER_BYTES:
        raise InvalidRequest(f"no batch has {nbytes} bytes")
    if position + nbytes > len(memory):
        raise InvalidRequest(f"{nbytes} bytes at {position} are not in the {len(memory)} that are shared")
    head = pack_header(
        header.api_key,
        correlation=header.correlation,
        body_bytes=nbytes,
        partition=header.partition,
        flags=header.flags & ~_NEAR,
    )
    return NearBatch(head, memory[position : position + nbytes], crc)
