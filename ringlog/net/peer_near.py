"""Answers of a leader's node to a follower's on the same host, put into memory that the follower's node shares, instead
of through the socket. Pure.

A node shares memory once with each call that it makes: the hello says where it is. Nothing of a hello is believed, so
the memory begins with what nobody else's does, and a key that the hello names: who can write it there may have it
written to. Without the first, a key that is guessed would do: fresh memory that a consumer shares begins with zeros.
It also says where places are, of which the rest is made: another version may have other ones.

    0       16           20            24        40    BLOCK_BYTES      + place bytes
    ├───────┼────────────┼─────────────┼─────────┼┄┄┄┄┄┼────────────────┼───────────┄
    │ magic │ u32        │ u32         │ the key │     │ place          │ place
    │       │ how many   │ place bytes │         │     │                │
    └───────┴────────────┴─────────────┴─────────┴┄┄┄┄┄┴────────────────┴───────────┄

A fetch may grant a place, by the flag NEAR and 8 bytes before its body; it is the other node's until an answer says
what was put there, or the call is over and the memory with it. So a node that stood still, and writes late, writes
where nobody looks any more. An answer with the flag NEAR says where its body lies:

    0                   32         40                  0                   32         40      44     48
    ├───────────────────┼──────────┼───────┤           ├───────────────────┼──────────┼───────┼──────┤
    │ header, with NEAR │ u64      │ fetch │           │ header, with NEAR │ u64      │ u32   │ mark │
    │                   │ position │       │           │                   │ position │ bytes │      │
    └───────────────────┴──────────┴───────┘           └───────────────────┴──────────┴───────┴──────┘

The mark is the beginning of the key: an answer from a connection before counts for nothing, whatever a socket does.
Any place that was granted serves any answer: a fetch that waits for news keeps none from others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from ringlog.errors import CorruptFrame, InvalidRequest, RinglogError
from ringlog.limits import BLOCK_BYTES, REPLICA_PLACE_BYTES, REPLICA_PLACES
from ringlog.net.framing import HEADER_BYTES
from ringlog.net.near import land

KEY_BYTES = 16
MEMORY_BYTES = BLOCK_BYTES + REPLICA_PLACES * REPLICA_PLACE_BYTES
_BEGINNING = struct.Struct("<16sII")
_MAGIC = b"ringlog answers\n"
HEAD_BYTES = _BEGINNING.size + KEY_BYTES
_GRANTED = struct.Struct("<Q")
_LANDED = struct.Struct("<QI4s")
_POSITIONS = range(BLOCK_BYTES, MEMORY_BYTES, REPLICA_PLACE_BYTES)

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Offer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Memory that a node shares with one that it calls, should that be on the same host."""

    host: str
    process: _Number
    descriptor: _Number
    """Of that process."""
    key: bytes
    """What the memory has in its head."""

    @property
    def mark(self) -> bytes:
        """What answers say of the memory."""
        return self.key[:4]

    def head(self) -> bytes:
        """What the memory begins with."""
        return _BEGINNING.pack(_MAGIC, REPLICA_PLACES, REPLICA_PLACE_BYTES) + self.key


MapMemory = Callable[[int, int, int], memoryview]
"""The memory of a process behind a descriptor, so many bytes, to be written; InvalidRequest when there is none."""


class Landing:
    """The memory as who shares it knows it."""

    def __init__(self, memory: memoryview, offer: Offer) -> None:
        memory[:HEAD_BYTES] = offer.head()
        self.offer = offer
        self.is_taken = False
        """The other node has it before its eyes."""
        self._memory = memory
        self._free = list(reversed(_POSITIONS))
        """The one that was free last is given first: the cache still has it."""
        self._granted: set[int] = set()

    def grant(self) -> int | None:
        """A place that a fetch may grant; None when none is free, or the other node takes none."""
        if not self.is_taken or not self._free:
            return None
        position = self._free.pop()
        self._granted.add(position)
        return position

    def revoke(self, position: int) -> None:
        """The fetch did not leave."""
        self._granted.remove(position)
        self._free.append(position)

    def take(self, body: bytes | memoryview) -> tuple[int, memoryview]:
        """Where the body of an answer lies, and the body itself, until the place is `freed`; CorruptFrame when it
        cannot be there."""
        if len(body) != _LANDED.size:
            raise CorruptFrame("body", HEADER_BYTES, f"an answer elsewhere is named by {_LANDED.size} bytes")
        position, nbytes, mark = _LANDED.unpack(body)
        if mark != self.offer.mark or position not in self._granted or nbytes > REPLICA_PLACE_BYTES:
            raise CorruptFrame(
                "position", HEADER_BYTES, f"no place of {nbytes} bytes was granted at {position}"
            )
        self._granted.remove(position)
        return position, self._memory[position : position + nbytes]

    def freed(self, position: int) -> None:
        """What lay there was copied."""
        self._free.append(position)


class Places:
    """The memory as who writes there knows it."""

    def __init__(self, memory: memoryview, offer: Offer) -> None:
        self._memory = memory
        self._mark = offer.mark
        self._free: list[int] = []

    def granted(self, fetch: memoryview) -> memoryview:
        """A fetch that begins with a place, without it; InvalidRequest when it names none."""
        if len(fetch) < _GRANTED.size:
            raise InvalidRequest(f"a place for an answer is named by {_GRANTED.size} bytes")
        (position,) = _GRANTED.unpack_from(fetch)
        if position not in _POSITIONS or position in self._free:
            raise InvalidRequest(f"there is no place at {position} to be granted")
        self._free.append(position)
        return fetch[_GRANTED.size :]

    def put(self, pieces: Sequence[bytes | memoryview], nbytes: int) -> int | None:
        """Copy an answer of so many bytes to a place, and say to which; None when none was granted, or it is too large
        for any."""
        if not self._free or nbytes > REPLICA_PLACE_BYTES:
            return None
        position = self._free.pop()
        land(self._memory[position : position + nbytes], pieces)
        return position

    def landed(self, position: int, nbytes: int) -> bytes:
        """What is sent instead of the body that lies there."""
        return _LANDED.pack(position, nbytes, self._mark)

    def put_back(self, position: int) -> None:
        """Nobody was told of what lies there."""
        self._free.append(position)


def grant_of(position: int) -> bytes:
    """What goes before the body of a fetch that grants a place."""
    return _GRANTED.pack(position)


def places_of(offer: Offer | None, host: str, map_memory: MapMemory) -> Places | None:
    """Where answers to who makes this offer may be put; None where they go through the socket."""
    if offer is None or offer.host != host or len(offer.key) != KEY_BYTES:
        return None
    try:
        memory = map_memory(offer.process, offer.descriptor, MEMORY_BYTES)
    except RinglogError:
        return None  # it cannot be reached from here: in another container, say
    return Places(memory, offer) if memory[:HEAD_BYTES] == offer.head() else None
