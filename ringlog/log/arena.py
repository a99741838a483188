"""A shard's buffer memory: one aligned region, cut into slabs, cut into chunks.

Append buffers, the recent tail and cold reads all live here, so that one number bounds the memory of a
shard, and (in a node) one shared region holds all that another process may be pointed at.

    region  │ slab 1 MiB │ slab │ slab │ slab │ …
    a slab    is whole, part of a longer run, or cut into chunks of 16 KiB or 128 KiB

A chunk is counted: it returns to the arena when its last holder lets go. Nothing here ever times out.
"""

from __future__ import annotations

import mmap

from ringlog.errors import check
from ringlog.limits import KIB, MIB

SLAB_BYTES = 1 * MIB
_WARM_AHEAD = 4
"""Slabs that are kept warm in front of the first free one."""
CHUNK_CLASSES = (16 * KIB, 128 * KIB, SLAB_BYTES)


class Chunk:
    """A piece of the region, held by whoever retained it."""

    __slots__ = ("_arena", "holders", "nbytes", "position", "view")

    def __init__(self, arena: Arena, position: int, nbytes: int) -> None:
        self._arena = arena
        self.position = position
        """Where it begins in the region: what a reader in another process is told."""
        self.nbytes = nbytes
        self.view = arena.region[position : position + nbytes]
        self.holders = 1

    def retain(self) -> None:
        check(self.holders > 0, "only a held chunk can be held again")
        self.holders += 1

    def release(self) -> None:
        check(self.holders > 0, "a chunk is released once for each hold")
        self.holders -= 1
        if self.holders == 0:
            self._arena._give_back(self)


class Arena:
    """Hands out chunks of a region whose start is aligned to the device's blocks.

    >>> arena = Arena(memoryview(bytearray(4 * MIB)))
    >>> chunk = arena.take(20_000)
    >>> chunk.nbytes, arena.free_bytes
    (131072, 4063232)
    >>> chunk.release(); arena.free_bytes == arena.total_bytes
    True
    """

    def __init__(self, region: memoryview) -> None:
        check(
            region.nbytes >= SLAB_BYTES and region.nbytes % SLAB_BYTES == 0,
            "an arena is a number of whole slabs",
        )
        self.region = region
        self.total_bytes = region.nbytes
        self.free_bytes = region.nbytes
        self._slab_free = [True] * (region.nbytes // SLAB_BYTES)
        self._slabs_free = len(self._slab_free)
        self._warm_slabs = 0
        """Slabs from the start that were touched before; those behind cost page faults."""
        self.is_warm = False
        """`warm_up` has nothing to do until another slab is taken."""
        self._cut_free: dict[int, list[int]] = {size: [] for size in CHUNK_CLASSES[:-1]}
        self._cut_taken: dict[int, int] = {}
        """Chunks out of each cut slab; a slab with none out becomes whole again."""

    def warm_up(self) -> None:
        """Touch the next slab before it is needed, so that no append pays for the page faults of fresh memory.
        To be called while a device is at work and the caller would wait anyway."""
        free = self._slab_free
        while self._warm_slabs < len(free) and not free[self._warm_slabs]:
            self._warm_slabs += 1  # in use: whoever holds it touches it
        if self._warm_slabs == len(free) or self._warm_slabs >= free.index(True) + _WARM_AHEAD:
            self.is_warm = True
            return
        start = self._warm_slabs * SLAB_BYTES
        for position in range(start, start + SLAB_BYTES, mmap.PAGESIZE):
            self.region[position] = 0
        self._warm_slabs += 1

    def take(self, nbytes: int) -> Chunk | None:
        """The smallest chunk that holds `nbytes`, or None when there is no room for it now."""
        for size in CHUNK_CLASSES[:-1]:
            if nbytes <= size:
                return self._take_cut(size)
        return self._take_run(-(-nbytes // SLAB_BYTES))

    def _take_cut(self, size: int) -> Chunk | None:
        free = self._cut_free[size]
        if not free:
            slab = self._find_run(1)
            if slab is None:
                return None
            self._slab_free[slab] = self.is_warm = False
            self._slabs_free -= 1
            self._cut_taken[slab] = 0
            free.extend(range(slab * SLAB_BYTES, (slab + 1) * SLAB_BYTES, size))
        position = free.pop()
        self._cut_taken[position // SLAB_BYTES] += 1
        self.free_bytes -= size
        return Chunk(self, position, size)

    def _take_run(self, slabs: int) -> Chunk | None:
        first = self._find_run(slabs)
        if first is None:
            return None
        for slab in range(first, first + slabs):
            self._slab_free[slab] = False
        self.is_warm = False
        self._slabs_free -= slabs
        self.free_bytes -= slabs * SLAB_BYTES
        return Chunk(self, first * SLAB_BYTES, slabs * SLAB_BYTES)

    def _find_run(self, slabs: int) -> int | None:
        if self._slabs_free < slabs:
            return None
        free = self._slab_free
        if slabs == 1:
            return free.index(True)
        run = 0
        for slab, is_free in enumerate(free):
            run = run + 1 if is_free else 0
            if run == slabs:
                return slab - slabs + 1
        return None

    def _give_back(self, chunk: Chunk) -> None:
        self.free_bytes += chunk.nbytes
        slab = chunk.position // SLAB_BYTES
        if chunk.nbytes >= SLAB_BYTES:
            for whole in range(slab, slab + chunk.nbytes // SLAB_BYTES):
                self._slab_free[whole] = True
            self._slabs_free += chunk.nbytes // SLAB_BYTES
            return
        free = self._cut_free[chunk.nbytes]
        free.append(chunk.position)
        self._cut_taken[slab] -= 1
        if self._cut_taken[slab] == 0:
            del self._cut_taken[slab]
            self._cut_free[chunk.nbytes] = [p for p in free if p // SLAB_BYTES != slab]
            self._slab_free[slab] = True
            self._slabs_free += 1
