"""Memory in which a producer makes its batches, and out of which a node on the same host reads them (`net/near.py`).

It is divided into places of one batch each. A place is free again when nobody holds what was made there: not the batch,
and not a socket that still sends it. The place that was used last is given first: it is still in the cache.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import NamedTuple

import numpy as np

from ringlog.limits import BLOCK_BYTES, KIB, MIB, NEAR_MEMORY_BYTES_MAX
from ringlog.net.shared_memory import make_shared

BATCH_BYTES_MIN = 64 * KIB
"""Smaller batches cost the same whichever way they take."""
MEMORY_BYTES = 32 * MIB
"""For all batches that are on their way at once; more are made elsewhere, and sent. Pages are taken when first used."""
assert MEMORY_BYTES <= NEAR_MEMORY_BYTES_MAX


class Place(NamedTuple):
    """Room for one batch."""

    memory: memoryview
    position: int
    """Where it begins in what is shared."""


class NearMemory:
    """The memory of one producer in one process. Safe to use from many threads; the child of a fork makes its own."""

    def __init__(self, batch_bytes: int) -> None:
        """`batch_bytes`: what a place takes at least. OSError where the system gives no such memory."""
        self._place_bytes = -(-batch_bytes // BLOCK_BYTES) * BLOCK_BYTES
        count = max(1, MEMORY_BYTES // self._place_bytes)
        self.nbytes = count * self._place_bytes
        self.descriptor = make_shared("ringlog-producer", self.nbytes)
        weakref.finalize(self, os.close, self.descriptor).atexit = False
        self._memory = np.frombuffer(mmap.mmap(self.descriptor, self.nbytes), dtype=np.uint8)
        self._free = list(range(count - 1, -1, -1))

    def take(self) -> Place | None:
        """A place that nobody uses; None when all are in use."""
        try:
            number = self._free.pop()
        except IndexError:
            return None
        position = number * self._place_bytes
        here = self._memory[position : position + self._place_bytes]
        weakref.finalize(here, self._free.append, number).atexit = False
        return Place(memoryview(here.data), position)


def near_memory(batch_bytes: int) -> NearMemory | None:
    """Memory for batches of this size; None where they are too small or too large for it, or the system gives none."""
    if not BATCH_BYTES_MIN <= batch_bytes <= MEMORY_BYTES:
        return None
    try:
        return NearMemory(batch_bytes)
    except OSError:
        return None  # forbidden, or out of descriptors: batches go through the socket
