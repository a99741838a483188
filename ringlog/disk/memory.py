"""Memory that a direct write accepts."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

from ringlog.limits import BLOCK_BYTES, MIB

_HUGE_BYTES_MIN = 4 * MIB

assert mmap.PAGESIZE % BLOCK_BYTES == 0, "pages align blocks"


def aligned(nbytes: int) -> memoryview:
    """Zeroed memory that begins at a multiple of BLOCK_BYTES. It lives as long as a view of it does.

    >>> chunk = aligned(8192)
    >>> chunk[:2] = b"ok"
    >>> bytes(chunk[:3])
    b'ok\\x00'
    """
    if nbytes <= 0:
        raise ValueError(f"aligned memory of {nbytes} bytes")
    memory = mmap.mmap(-1, nbytes)
    if nbytes >= _HUGE_BYTES_MIN:
        # Fewer page faults, and fewer pages to pin for each direct write.
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def require_bytes(view: memoryview, *, writable: bool = False) -> None:
    """Refuse what a device cannot be given as it is: no bytes, gaps between them, items wider than one.

    >>> require_bytes(memoryview(b"abcd"))
    >>> require_bytes(memoryview(b"abcd")[::2])
    Traceback (most recent call last):
    ...
    ValueError: a disk moves contiguous bytes, not a view of format 'B' and strides (2,)
    """
    if view.format != "B" or view.ndim != 1 or not view.contiguous:
        raise ValueError(
            f"a disk moves contiguous bytes, not a view of format {view.format!r} and strides {view.strides}"
        )
    if view.nbytes == 0:
        raise ValueError("a disk cannot move an empty view")
    if writable and view.readonly:
        raise ValueError("a disk cannot read into a view that is read-only")


def gathered(pieces: Sequence[memoryview], pieces_max: int) -> Sequence[memoryview]:
    """The same bytes in no more than `pieces_max` pieces: what is too many at the end is copied into one.

    >>> [bytes(piece) for piece in gathered([memoryview(b"a"), memoryview(b"b"), memoryview(b"c")], 2)]
    [b'a', b'bc']
    """
    if len(pieces) <= pieces_max:
        return pieces
    rest = pieces[pieces_max - 1 :]
    joined = aligned(sum(piece.nbytes for piece in rest))
    at = 0
    for piece in rest:
        joined[at : at + piece.nbytes] = piece
        at += piece.nbytes
    return [*pieces[: pieces_max - 1], joined]
