"""Keeps space reserved ahead of a segment's writes: a little of it is filled with zeros, much of it is only allocated.

A durable write into space that was only allocated must also make durable that the space is in use now; into space
that was written before it need not, and takes 20 to 30 % less time. Filling doubles what is written, so it is for
partitions that use up little at a time. The zeros need not be durable: what is lost of them reads as zeros too.
"""

from __future__ import annotations

import errno
import mmap
from collections.abc import Callable
from typing import NamedTuple

from ringlog.disk.api import Disk, File
from ringlog.limits import FILLED_BYTES_MAX
from ringlog.log.extent import block_ceil
from ringlog.log.jobs import Dispatcher
from ringlog.log.segment import ActiveSegment
from ringlog.log.settings import LogSettings

_FILLED_PER_NEEDED = 4
"""Space is filled if it is for so many writes like the one that needs it: one that needs most of it would only wait
for zeros that it replaces."""
_ZEROS = memoryview(mmap.mmap(-1, FILLED_BYTES_MAX, prot=mmap.PROT_READ))
"""One region for all: it is never written to, so it may be under any number of writes."""


class Growth:
    """Reserves space for one log, one step at a time."""

    def __init__(self, disk: Disk, dispatcher: Dispatcher, done: Callable[[int], None]) -> None:
        """`done`: called after each step, with 0 or an errno."""
        self._disk = disk
        self._dispatcher = dispatcher
        self._done = done
        self.is_under_way = False

    def keep_ahead(
        self,
        segment: ActiveSegment,
        file: File,
        end: int,
        settings: LogSettings,
        now_ms: int,
        step_max: int,
    ) -> None:
        """Begin a step, if one is due, ahead of a write that ends at `end`, which waits only when it outran that."""
        if self.is_under_way:
            return
        wanted = segment.preallocation.next_range(
            end, segment.allocated, settings.segment_bytes, now_ms, step_max
        )
        if wanted is None:
            return
        position, length = wanted
        self.is_under_way = True

        def done(result: int) -> None:
            self.is_under_way = False
            if result == -errno.EOPNOTSUPP:
                # Such a file system grows files at write time: slower, as durable.
                segment.allocated = max(settings.segment_bytes * 2, position + length)
            elif result != reservation.expected:  # less of the zeros, where space ends
                self._done(-result if result < 0 else errno.ENOSPC)
                return
            else:
                segment.allocated = max(segment.allocated, position + length)
            self._done(0)

        fill = settings.flush.on_ack and (end - position) * _FILLED_PER_NEEDED <= length
        reservation = reserve(
            self._disk, file, position, length, content_end=segment.written_position, fill=fill
        )
        self._dispatcher.when_done(reservation.token, done)


class Reservation(NamedTuple):
    """A queued call that reserves space, and the result that means that it did."""

    token: int
    expected: int


def reserve(
    disk: Disk, file: File, position: int, length: int, *, content_end: int, fill: bool
) -> Reservation:
    """Queue the reservation of [position, position + length). `content_end`: no byte below it is touched. `fill`: with
    zeros, unless it is much."""
    start = max(position, block_ceil(content_end))
    filled = position + length - start
    if not fill or not 0 < filled <= FILLED_BYTES_MAX:
        return Reservation(disk.preallocate(file, position, length), 0)
    return Reservation(disk.write(file, [_ZEROS[:filled]], start, durable=False), filled)
