"""Append buffers: where received batches wait to be written, and stay to be read.

An extent is a group of whole batches of one partition that goes to the device in one write. It begins in
memory with a copy of the partial block at the end of the file, so that the block is rewritten with the new
bytes behind the old ones, and memory under a write in flight is never modified:

    file     … ──┬─────────────┬──────────────┬─────────────┬──
                 │ old bytes │ first batch … last batch │ 0 │
                 └─────────────┴──────────────┴─────────────┘
             block start  position                      end    block end

After the write the extent stays in memory as the recent tail until the shard needs the room.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ringlog.errors import PartitionBusy, RinglogError, check
from ringlog.limits import BLOCK_BYTES, KIB
from ringlog.log.arena import CHUNK_CLASSES, SLAB_BYTES, Arena, Chunk

if TYPE_CHECKING:
    from ringlog.log.segment import ActiveSegment

_BUSY_MS = 1_000
"""A partition that fills a chunk in less time than this gets a larger one next."""


Copy = Callable[[list[memoryview], memoryview], None]
"""Fills pieces of memory with data that are as large as they all are."""


def copy_as_it_is(into: list[memoryview], data: memoryview) -> None:
    """A `Copy` that looks at nothing."""
    start = 0
    for piece in into:
        piece[:] = data[start : start + piece.nbytes]
        start += piece.nbytes


def block_floor(position: int) -> int:
    return position - position % BLOCK_BYTES


def block_ceil(position: int) -> int:
    return position + -position % BLOCK_BYTES


def _slabs(nbytes: int) -> int:
    return -(-nbytes // SLAB_BYTES)


class Extent:
    """A group of batches bound for one write. Filled by its AppendBuffer, then closed, then only read."""

    __slots__ = (
        "_pieces",
        "base_offset",
        "batch_last_offsets",
        "batch_positions",
        "block_start",
        "end",
        "head_filled",
        "next_offset",
        "position",
        "segment",
    )

    def __init__(self, segment: ActiveSegment, position: int, base_offset: int) -> None:
        self.segment = segment
        self.position = position
        """Byte of the segment where its first batch begins."""
        self.block_start = block_floor(position)
        self.end = position
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.head_filled = False
        """The bytes before `position` in its first block are in place: it may be written."""
        self.batch_positions: list[int] = []
        self.batch_last_offsets: list[int] = []
        self._pieces: list[tuple[Chunk, int, int]] = []
        """(chunk, first byte, byte after the last); all but the last end on a block and at their chunk's end."""

    @property
    def block_end(self) -> int:
        return block_ceil(self.end)

    @property
    def nbytes(self) -> int:
        return self.end - self.position

    def fill_head(self, tail_block: memoryview | bytes) -> None:
        """Put the bytes that already stand in the first block before the first batch."""
        check(
            len(tail_block) == self.position - self.block_start, "the old bytes reach up to the first new one"
        )
        chunk, first, _ = self._pieces[0]
        chunk.view[first : first + len(tail_block)] = tail_block
        self.head_filled = True

    def tail_block(self) -> bytes:
        """A copy of the bytes in its last block, if that block is not full: what the next extent begins with."""
        partial = self.end - block_floor(self.end)
        chunk, first, last = self._pieces[-1]
        check(
            last - first >= partial, "the last block lies in one piece, because every piece begins on a block"
        )
        return bytes(chunk.view[last - partial : last])

    def close(self) -> list[memoryview]:
        """End the group: zero the rest of its last block and return the whole blocks to write."""
        check(self.head_filled, "no block is rewritten without its old bytes")
        views = []
        for chunk, first, last in self._pieces:
            padded = first + block_ceil(last - first)
            if padded != last:
                chunk.view[last:padded] = bytes(padded - last)
            views.append(chunk.view[first:padded])
        return views

    def slices(self, start: int, stop: int) -> list[tuple[Chunk, memoryview]]:
        """The memory that holds the segment's bytes [start, stop)."""
        check(self.block_start <= start <= stop <= self.end, "an extent is asked for bytes that it has")
        found = []
        piece_start = self.block_start
        for chunk, first, last in self._pieces:
            piece_stop = piece_start + last - first
            low, high = max(start, piece_start), min(stop, piece_stop)
            if low < high:
                found.append((chunk, chunk.view[first + low - piece_start : first + high - piece_start]))
            piece_start = piece_stop
        return found

    def release(self) -> None:
        """Let go of the memory. The extent is empty afterwards."""
        for chunk, _, _ in self._pieces:
            chunk.release()
        self._pieces.clear()


class AppendBuffer:
    """The memory that one partition's extents are filled in, one after another."""

    def __init__(self, arena: Arena, make_room: Callable[[], bool]) -> None:
        self._arena = arena
        self._make_room = make_room
        """Evicts something old from the arena; False when there is nothing left to evict."""
        self._chunk: Chunk | None = None
        self._used = 0
        self._is_growing = False
        """An extent is being filled in the chunk: it cannot be given back now."""
        self._class = 0
        self._taken_ms = 0
        self._place: memoryview | None = None
        """Handed out to be filled, and not added yet."""
        self._place_start = 0

    def is_nearly_full_for(self, nbytes: int) -> bool:
        """So many bytes do not fit, and little is lost if what is left stays empty."""
        return self._chunk is not None and self._chunk.nbytes - self._used <= nbytes // 2

    def place(self, nbytes: int) -> memoryview | None:
        """Where so many bytes will lie if they are added next to the newest extent. None: not in one piece."""
        return self._place_at(self._used, nbytes)

    def place_anew(self, nbytes: int, head: int, now_ms: int) -> memoryview | None:
        """The same for a new extent that begins with so many old bytes.

        None also when the partition has no memory now: it gets some for what is added. And when there is no room in one
        piece: in two, there may be."""
        if self.is_nearly_full_for(head + nbytes):
            if _slabs(head + nbytes) > _slabs(nbytes):
                return None
            try:
                self._current(now_ms, head + nbytes)
            except PartitionBusy:
                return None
        return self._place_at(self._used + head, nbytes)

    def _place_at(self, start: int, nbytes: int) -> memoryview | None:
        if self._chunk is None or start + nbytes > self._chunk.nbytes:
            return None
        self._place, self._place_start = self._chunk.view[start : start + nbytes], start
        return self._place

    def leave_place(self) -> None:
        """What was to be placed was refused. Memory that was taken for it would be kept from all others until the
        partition is appended to."""
        if self._place is not None:
            self._place = None
            self.give_back()

    def begin(self, segment: ActiveSegment, position: int, base_offset: int, now_ms: int) -> Extent:
        """Start an extent; its head (the bytes before `position` in the block) is to be filled by the caller."""
        extent = Extent(segment, position, base_offset)
        head = position - extent.block_start
        chunk = self._current(now_ms, head + 1)
        chunk.retain()
        extent._pieces.append((chunk, self._used, self._used + head))
        self._used += head
        self._is_growing = True
        return extent

    def add(self, extent: Extent, data: memoryview, now_ms: int, copy: Copy = copy_as_it_is) -> None:
        """Copy bytes to its end: all, or none when there is no memory (PartitionBusy) or `copy` raises."""
        chunk, first, last = extent._pieces[-1]
        check(chunk is self._chunk and last == self._used, "only the newest extent grows")
        room = chunk.nbytes - self._used
        place, self._place = self._place, None
        if data is place and last != self._place_start:
            data = memoryview(bytes(data))  # a roll came in between: what is to move must not lie in the way
        if data.nbytes <= room:
            end = last + data.nbytes
            if data is not place:
                copy([chunk.view[last:end]], data)
            self._used = end
            extent._pieces[-1] = (chunk, first, end)
        else:
            self._add_over_chunks(extent, data, room, now_ms, copy)
        extent.end += data.nbytes

    def _add_over_chunks(self, extent: Extent, data: memoryview, room: int, now_ms: int, copy: Copy) -> None:
        rest = data.nbytes - room
        fresh = self._take(rest, now_ms)
        chunk, first, last = extent._pieces[-1]
        try:
            copy([chunk.view[last:], fresh.view[:rest]], data)
        except RinglogError:
            fresh.release()
            raise
        extent._pieces[-1] = (chunk, first, chunk.nbytes)
        chunk.release()  # the buffer's own hold; the extent keeps its
        self._chunk, self._used = fresh, rest
        fresh.retain()
        extent._pieces.append((fresh, 0, rest))

    def finish(self) -> None:
        """No more is added to the newest extent: the next one begins on a block of its own."""
        self._used = block_ceil(self._used)
        self._is_growing = False

    def give_back(self) -> None:
        """Let go of the chunk unless an extent grows in it. What is left of it would be kept from all others for as
        long as the partition is idle."""
        if not self._is_growing:
            self.release()

    def release(self) -> None:
        """Let go of the chunk; extents in it keep their own hold."""
        self._is_growing = False
        self._place = None
        if self._chunk is not None:
            self._chunk.release()
            self._chunk = None

    def _current(self, now_ms: int, wanted: int) -> Chunk:
        """The chunk to fill, with room for at least one block."""
        if self._chunk is None or self._chunk.nbytes - self._used < max(wanted, BLOCK_BYTES):
            fresh = self._take(wanted, now_ms)
            self.release()
            self._chunk, self._used = fresh, 0
        return self._chunk

    def _take(self, wanted: int, now_ms: int) -> Chunk:
        if self._chunk is not None and now_ms - self._taken_ms < _BUSY_MS:
            self._class = min(self._class + 1, len(CHUNK_CLASSES) - 1)
        else:
            self._class = 0
        size = max(wanted, CHUNK_CLASSES[self._class])
        while (chunk := self._arena.take(size)) is None:
            if self._make_room():
                continue
            if size > wanted:
                size = wanted  # a small chunk will do where all the large ones are being written
            else:
                raise PartitionBusy(
                    f"no buffer of {size // KIB} KiB is free: the disk is behind. Retry after a pause"
                )
        self._taken_ms = now_ms
        return chunk
