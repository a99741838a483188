"""Memory that a client shares with nodes on its host (`net/near.py`): a producer makes its batches there, and they read
them; a consumer has its replies put there, and they write them.

A part of it that is given away is a place. It is free again when nobody holds what lies there: not the batch, nor a
socket that still sends it, nor a record of the reply. The first one that is free is given first: it is soon used again,
and stays in the cache.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable

import numpy as np

from ringlog.limits import BLOCK_BYTES, KIB, LANDING_MEMORY_BYTES, MIB, NEAR_MEMORY_BYTES_MAX
from ringlog.net.near import Place
from ringlog.net.shared_memory import make_shared

BATCH_BYTES_MIN = 64 * KIB
"""Smaller batches cost the same whichever way they take."""
MEMORY_BYTES = 32 * MIB
"""For all batches that are on their way at once; more are made elsewhere, and sent. Pages are taken when first used."""
_LANDING_UNIT_BYTES = 1 * MIB
assert MEMORY_BYTES <= NEAR_MEMORY_BYTES_MAX


class NearMemory:
    """The memory of one client in one process. Safe to use from many threads; the child of a fork makes its own."""

    def __init__(self, unit_bytes: int, memory_bytes: int = MEMORY_BYTES, *, writable: bool = False) -> None:
        """Places have whole units. `writable`: by nodes. OSError where the system gives no such memory."""
        self._unit_bytes = -(-unit_bytes // BLOCK_BYTES) * BLOCK_BYTES
        count = max(1, memory_bytes // self._unit_bytes)
        self.nbytes = count * self._unit_bytes
        self.writable = writable
        self.retired = False
        self.descriptor = make_shared("ringlog-client", self.nbytes)
        weakref.finalize(self, os.close, self.descriptor).atexit = False
        self._memory = np.frombuffer(mmap.mmap(self.descriptor, self.nbytes), dtype=np.uint8)
        self._lock = threading.Lock()
        self._free = (1 << count) - 1
        """A bit for each unit."""
        self._returned: deque[int] = deque()
        """Units that became free since, by whatever thread let go of the last view: it must wait for no lock."""

    def take(self, nbytes: int = 0) -> Place | None:
        """A place of so many bytes, or of one unit, that nobody uses; None when there is none."""
        units = max(1, -(-nbytes // self._unit_bytes))
        with self._lock:
            while self._returned:
                self._free |= self._returned.popleft()
            # Bits where as many free units follow each other, doubling what is known to be free.
            starts, known = self._free, 1
            while known < units:
                step = min(known, units - known)
                starts &= starts >> step
                known += step
            if self.retired or not starts:
                return None
            first = (starts & -starts).bit_length() - 1
            taken = (1 << units) - 1 << first
            self._free &= ~taken
        position = first * self._unit_bytes
        here = self._memory[position : position + units * self._unit_bytes]
        weakref.finalize(here, self._returned.append, taken).atexit = False
        return Place(memoryview(here.data), position)

    def retire(self) -> None:
        """Give no place any more, also none that becomes free."""
        self.retired = True


Shares = Callable[[], NearMemory | None]
"""What a client shares on a new connection, if anything."""


def near_memory(batch_bytes: int) -> NearMemory | None:
    """Memory for batches of this size; None where they are too small or too large for it, or the system gives none."""
    if not BATCH_BYTES_MIN <= batch_bytes <= MEMORY_BYTES:
        return None
    try:
        return NearMemory(batch_bytes)
    except OSError:
        return None  # forbidden, or out of descriptors: batches go through the socket


def landing_memory() -> NearMemory | None:
    """Memory for the replies of one connection; None where the system gives none, or while the process forks.

    Each connection has its own: a node that stood still may write where a fetch said long after its client gave it up.
    """
    if _forks.under_way:
        return None
    try:
        made = NearMemory(_LANDING_UNIT_BYTES, LANDING_MEMORY_BYTES, writable=True)
    except OSError:
        return None  # forbidden, or out of descriptors: replies come through the socket
    _forks.landings.add(made)
    return made


class _Forks:
    """What was read lies in memory that parent and child have in common, and the child goes on to use it. So before a
    fork all of it is retired: nothing that the child can see is ever written over. The parent shares new memory."""

    def __init__(self) -> None:
        self.landings: weakref.WeakSet[NearMemory] = weakref.WeakSet()
        self.under_way = False

    def begin(self) -> None:
        self.under_way = True
        for memory in list(self.landings):
            memory.retire()
        self.landings.clear()

    def end(self) -> None:
        self.under_way = False


_forks = _Forks()
os.register_at_fork(before=_forks.begin, after_in_parent=_forks.end, after_in_child=_forks.end)
