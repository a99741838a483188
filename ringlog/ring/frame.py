"""The header of a frame: the first 32 bytes of every ring message that carries a request or a reply.

All integers are little-endian::

     0  version       u8     1
     1  api_key       u8     0: produce; others are opaque to native code
     2  flags         u16    of the api
     4  partition     u32    a node-wide partition id
     8  correlation   u64    chosen by the client, returned with the reply
    16  session       u64    stamped by the network process: what a client writes here counts for nothing
    24  deadline_ms   u32    from the client: how long it waits; in a ring: when that is over, see `due_at`
    28  body_bytes    u32    bytes that follow, exactly to the end of the message
    32  body                 produce: whole record batches v2 for that one partition, at least one; with the flag
                             NEAR where they lie in a client's memory instead (`net/near.py`)

The native twin is `frame_layout.hpp`.
"""

from __future__ import annotations

import struct

import numpy as np

FRAME_VERSION = 1
FRAME_HEADER_BYTES = 32
API_PRODUCE = 0
_U32_MAX = 2**32 - 1
_PATIENCE_MS_MAX = 2**31 - 1
"""24 days: half of what the field holds, so that before and after can be told apart."""

FRAME_HEADER = np.dtype(
    [
        ("version", "<u1"),
        ("api_key", "<u1"),
        ("flags", "<u2"),
        ("partition", "<u4"),
        ("correlation", "<u8"),
        ("session", "<u8"),
        ("deadline_ms", "<u4"),
        ("body_bytes", "<u4"),
    ]
)
"""For headers in bulk: an array of these is an array of frame headers, byte for byte."""

_PACKED = struct.Struct("<BBHIQQII")
assert _PACKED.size == FRAME_HEADER.itemsize == FRAME_HEADER_BYTES


def frame_header(
    *,
    api_key: int,
    partition: int,
    correlation: int,
    body_bytes: int,
    session: int = 0,
    flags: int = 0,
    deadline_ms: int = 0,
) -> bytes:
    """The 32 bytes that go before a body of `body_bytes`.

    >>> frame_header(api_key=7, partition=1, correlation=2, body_bytes=5)[:8].hex()
    '0107000001000000'
    """
    return _PACKED.pack(
        FRAME_VERSION, api_key, flags, partition, correlation, session, deadline_ms, body_bytes
    )


def due_at(now_ms: int, patience_ms: int) -> int:
    """What a frame in a ring says of how long its client waits: when it gives up, on the monotonic clock that all
    processes of a host share, modulo 2^32; 0: it waits for ever.

    >>> due_at(1_000, 500), due_at(1_000, 0)
    (1500, 0)
    """
    return ((now_ms + min(patience_ms, _PATIENCE_MS_MAX)) & _U32_MAX) or 1 if patience_ms else 0


def is_overdue(due_ms: int, now_ms: int) -> bool:
    """Whether nobody waits any more for the answer to a frame of a ring.

    >>> is_overdue(1_500, 1_499), is_overdue(1_500, 1_500), is_overdue(0, 10**9)
    (False, True, False)
    """
    return due_ms != 0 and (now_ms - due_ms) & _U32_MAX <= _PATIENCE_MS_MAX
