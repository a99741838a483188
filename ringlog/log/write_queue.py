"""What a partition received and has not begun to write: extents, the newest of which grows.

A batch that another process holds is best copied once: `place` says where it will lie, the caller puts it there, and
`add` finds it in place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ringlog.errors import RinglogError
from ringlog.limits import BLOCK_BYTES, KIB
from ringlog.log.extent import AppendBuffer, Copy, Extent, copy_as_it_is
from ringlog.log.segment import ActiveSegment

PLACED_BYTES_MIN = 32 * KIB
"""A smaller batch is copied twice in the time that it takes to find a place for it."""


class WriteQueue:
    """The extents of one partition that wait, oldest first."""

    def __init__(self, buffer: AppendBuffer, group_bytes: int, tail_block: bytes | None) -> None:
        """`group_bytes`: an extent that has so many takes no more.
        `tail_block`: the bytes in the last, partial block of the log; None when only its file has them."""
        self._buffer = buffer
        self._group_bytes = group_bytes
        self._tail_block = tail_block
        self._extents: deque[Extent] = deque()
        self._filling: Extent | None = None
        """The newest, while more batches may join it."""
        self.nbytes = 0
        self.on_boundary: Callable[[], None] | None = None
        """Called once when the next extent begins: where a checkpoint can take its mark."""

    @property
    def oldest(self) -> Extent | None:
        return self._extents[0] if self._extents else None

    def place(self, nbytes: int, segment: ActiveSegment, now_ms: int) -> memoryview | None:
        """Where so many bytes will lie if they are the next to be added to the segment. None: not in one piece, or
        it does not matter."""
        if nbytes < PLACED_BYTES_MIN:
            return None
        filling = self._filling
        if filling is not None and filling.nbytes < self._group_bytes:
            found = self._buffer.place(nbytes)
            # The end of one whose head is still to be read from the file cannot be copied to the next.
            if found is not None or not filling.head_filled or not self._buffer.is_nearly_full_for(nbytes):
                return found
        self.stop_filling()
        return self._buffer.place_anew(nbytes, segment.position % BLOCK_BYTES, now_ms)

    def leave_place(self) -> None:
        """To be called when nothing more is added for now: a place that was not used is given up."""
        self._buffer.leave_place()

    def add(
        self,
        data: memoryview,
        segment: ActiveSegment,
        base_offset: int,
        now_ms: int,
        copy: Copy = copy_as_it_is,
    ) -> Extent:
        """The extent that now holds the data, which belong to the end of the segment, at its own end. PartitionBusy
        when there is no memory, and what `copy` raises: nothing was added then."""
        filling = self._filling
        if filling is not None and filling.nbytes < self._group_bytes:
            self._buffer.add(filling, data, now_ms, copy)
            self.nbytes += data.nbytes
            return filling
        self.stop_filling()
        if self.on_boundary is not None:
            boundary, self.on_boundary = self.on_boundary, None
            boundary()
        extent = self._buffer.begin(segment, segment.position, base_offset, now_ms)
        try:
            self._buffer.add(extent, data, now_ms, copy)
        except RinglogError:
            extent.release()
            self._buffer.release()
            raise
        if self._tail_block is not None:
            extent.fill_head(self._tail_block)
        self._extents.append(extent)
        self._filling = extent
        self.nbytes += data.nbytes
        return extent

    def take_oldest(self) -> Extent:
        """The extent that is written next. It does not grow any more."""
        extent = self._extents.popleft()
        if extent is self._filling:
            self.stop_filling()
        self.nbytes -= extent.nbytes
        return extent

    def stop_filling(self) -> None:
        """What comes next starts a new extent, with a copy of what stands in the last block."""
        if self._filling is not None:
            self._tail_block = self._filling.tail_block()
            self._buffer.finish()
            self._filling = None

    def roll(self) -> None:
        """What comes next goes to another segment."""
        self.stop_filling()
        self._tail_block = b""

    def clear(self) -> None:
        """Drop all, and the memory."""
        for extent in self._extents:
            extent.release()
        self._extents.clear()
        self._filling = None
        self.nbytes = 0
        self._buffer.release()

    def give_back(self) -> None:
        """Let go of memory that is not in use."""
        self._buffer.give_back()
