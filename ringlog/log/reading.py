"""Reading a partition: the recent tail from memory at once, older data from disk without blocking anyone.

A read returns whole batches from the one that holds the offset on, up to a byte budget, and at least one.
What comes from disk is checked (CRC32C) before it is served; a bad batch quarantines its segment.
"""

from __future__ import annotations

import errno
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from ringlog.errors import CorruptSegment, InvalidRequest, OffsetOutOfRange, PartitionBusy
from ringlog.limits import (
    BATCH_HEADER_BYTES,
    BLOCK_BYTES,
    COLD_PLACES_PER_LOG_MAX,
    INDEX_INTERVAL_BYTES,
    MIB,
)
from ringlog.log.arena import Chunk
from ringlog.log.events import ReadRefused
from ringlog.log.extent import Extent, block_ceil, block_floor
from ringlog.log.index import OffsetIndex, TimeIndex
from ringlog.log.index_rebuild import complete_index, load_indexes
from ringlog.log.jobs import Job, must
from ringlog.log.names import LOG, offset_name
from ringlog.log.partition import PartitionLog
from ringlog.log.segment import ActiveSegment, SealedSegment, Segment, is_growing
from ringlog.records.decode import decode_columns
from ringlog.records.scan import Scan, scan

_READ_BYTES = 1 * MIB
MEDIUM_ERRORS = frozenset({errno.EIO, errno.ENODATA, errno.EBADMSG, errno.EUCLEAN, errno.EILSEQ})
"""What devices and file systems say of blocks that they cannot give, or whose checksums are wrong."""
T = TypeVar("T")


class Slices:
    """Batches in a shard's memory, pinned there until released.

    Also a context manager: `with log.read(...) as slices: send(slices.views)`.
    """

    __slots__ = ("_chunks", "nbytes", "next_offset", "views")

    def __init__(self, views: list[memoryview], chunks: list[Chunk], next_offset: int) -> None:
        self.views = views
        self.nbytes = sum([view.nbytes for view in views])
        self.next_offset = next_offset
        """The offset to read from next."""
        self._chunks = chunks

    def __enter__(self) -> Slices:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let the memory be used again. The views must not be touched afterwards."""
        self.views = []
        for chunk in self._chunks:
            chunk.release()
        self._chunks = []

    def tobytes(self) -> bytes:
        """A copy of the batches."""
        return b"".join(self.views)


class TimedOffset(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp: int


class SplitPoints(NamedTuple):
    """Offsets inside of a range at which batches begin, at least so many bytes of the log apart."""

    offsets: list[int]
    step_bytes: int


class Reader:
    """Reads one log."""

    def __init__(self, log: PartitionLog, quarantine: Callable[[Segment, CorruptSegment], None]) -> None:
        self._log = log
        self._quarantine = quarantine
        self._under_way = 0
        self._places: OrderedDict[int, tuple[Segment, int]] = OrderedDict()
        """Where reads from disk have ended: the segment and the byte of an offset, the latest last. Who reads on begins
        there; an index does not know each batch, and would have him begin with one that he has."""

    @property
    def quiet(self) -> bool:
        """No read is under way: the log's files may be closed or replaced."""
        return self._under_way == 0

    def during(self, job: Job[T]) -> Job[T]:
        """A job that reads the log's files for another purpose: they are not closed under it."""
        self._under_way += 1
        try:
            return (yield from job)
        finally:
            self._under_way -= 1

    def read_tail(self, offset: int, bytes_max: int, *, ahead: bool = False) -> Slices | None:
        """Batches from memory, pinned; None when the offset is older than the tail in memory. `ahead`: for a follower,
        also what is not committed, and what is still being written."""
        log = self._log
        limit = log.submitted_offset if ahead else log.readable_offset
        self._must_be_in_range(offset, bytes_max, limit if ahead else log.held_offset)
        if offset >= limit:
            return Slices([], [], offset)
        in_flight = log.in_flight if ahead else None
        if in_flight is not None and offset >= in_flight.base_offset:
            extents: Iterable[Extent] = (in_flight,)
        else:
            in_memory_from = log.tail.start_offset
            if in_memory_from is None or offset < in_memory_from:
                return None
            extents = log.tail.since(offset)
            if in_flight is not None:
                extents = chain(extents, (in_flight,))
        views: list[memoryview] = []
        chunks: list[Chunk] = []
        budget = bytes_max
        for extent in extents:
            first = bisect_left(extent.batch_last_offsets, offset)
            positions, end = extent.batch_positions, extent.end
            if extent.next_offset > limit:
                # The others have some of its batches, not all.
                count = bisect_left(extent.batch_last_offsets, limit)
                if count <= first:
                    break
                positions, end = positions[:count], positions[count]
            start = positions[first]
            stop = _last_that_fits(positions, end, first, budget, at_least_one=not views)
            if stop == start:
                break
            for chunk, view in extent.slices(start, stop):
                chunk.retain()
                chunks.append(chunk)
                views.append(view)
            budget -= stop - start
            if stop < extent.end:
                offset = extent.batch_last_offsets[bisect_left(extent.batch_positions, stop) - 1] + 1
                break
            offset = extent.next_offset
        return Slices(views, chunks, offset)

    def read(self, offset: int, bytes_max: int, *, ahead: bool = False) -> Job[Slices]:
        """Batches from memory or from disk; `ahead` as of `read_tail`."""
        self._under_way += 1
        try:
            return (yield from self._read(offset, bytes_max, ahead))
        finally:
            self._under_way -= 1

    def _read(self, offset: int, bytes_max: int, ahead: bool) -> Job[Slices]:
        log = self._log
        while True:
            hot = self.read_tail(offset, bytes_max, ahead=ahead)
            if hot is not None:
                return hot
            segment = log.segment_of(offset)
            with segment.leases:
                cold = yield from self._read_disk(segment, offset, bytes_max, ahead)
            if cold is not None:
                return cold
            # Compaction left nothing from here to the end of the segment, or to what may be read from disk.
            limit = log.held_offset if ahead else log.readable_offset
            offset = max(offset, min(segment.next_offset, limit))

    def find_time(self, timestamp: int) -> Job[TimedOffset | None]:
        """The first record whose timestamp is at least this one; None when there is none."""
        self._under_way += 1
        try:
            return (yield from self._find_time(timestamp))
        finally:
            self._under_way -= 1

    def _find_time(self, timestamp: int) -> Job[TimedOffset | None]:
        log = self._log
        at = log.log_start_offset
        while True:
            # Not a list of the segments: those further on may be replaced or deleted meanwhile.
            segment = log.segment_of(at)
            with segment.leases:
                found = yield from self._find_in(segment, timestamp)
            if found is not None:
                return found if found.offset < log.readable_offset else None
            if segment is log.segments[-1]:
                return None
            at = segment.next_offset

    def _find_in(self, segment: Segment, timestamp: int) -> Job[TimedOffset | None]:
        log = self._log
        if segment.max_timestamp < timestamp or segment.next_offset <= log.log_start_offset:
            return None
        _, times = yield from self._indexes(segment)
        offset = max(times.offset_before(timestamp), log.log_start_offset)
        while offset < min(segment.next_offset, log.readable_offset):
            slices = yield from self._read_disk(segment, offset, _READ_BYTES)
            if slices is None:
                return None
            with slices:
                found = _first_at(slices.views, timestamp, log.log_start_offset)
                if found is not None:
                    return found
                offset = slices.next_offset
        return None

    def split_points(self, start: int, end: int, step_bytes: int, points_max: int) -> Job[SplitPoints]:
        """Where a range may be split, by the indexes alone; in larger steps where there would be too many points."""
        self._under_way += 1
        try:
            return (yield from self._split_points(start, end, step_bytes, points_max))
        finally:
            self._under_way -= 1

    def _split_points(self, start: int, end: int, step_bytes: int, points_max: int) -> Job[SplitPoints]:
        log = self._log
        at, end = max(start, log.log_start_offset), min(end, log.readable_offset)
        held = sum(one.position for one in log.segments if one.next_offset > at and one.base_offset < end)
        step_bytes = max(step_bytes, -(-held // points_max))
        points: list[int] = []
        passed = 0  # bytes since the last point, in earlier segments
        while at < end:
            segment = log.segment_of(at)
            with segment.leases:
                index, _ = yield from self._indexes(segment)
                target = index.position_before(at) + step_bytes - passed
                while (entry := index.first_at(target)) is not None and entry[0] + 1 < end:
                    last_offset, position = entry
                    if last_offset >= at:
                        points.append(last_offset + 1)  # behind an indexed batch the next one begins
                    target = position + step_bytes
                passed = max(0, segment.position - (target - step_bytes))
            if segment is log.segments[-1]:
                break
            at = max(at + 1, segment.next_offset)
        return SplitPoints(points, step_bytes)

    # -- from disk -----------------------------------------------------------------------------------------

    def _read_disk(
        self, segment: Segment, offset: int, bytes_max: int, ahead: bool = False
    ) -> Job[Slices | None]:
        """Batches of one segment; None when it has none at or after the offset."""
        if segment.quarantined:
            raise self._corrupt(segment, "it was found corrupt before")
        offsets, _ = yield from self._indexes(segment)
        position = self._place_of(offset, segment, offsets)
        end = segment.written_position if isinstance(segment, ActiveSegment) else segment.position
        limit = self._log.held_offset if ahead else self._log.readable_offset
        wanted = min(max(bytes_max, BLOCK_BYTES) + INDEX_INTERVAL_BYTES, _READ_BYTES)
        needed = 1
        while position < end:
            stop = _whole_batches(offsets, position, needed, wanted, end)
            chunk, data = yield from self._read_range(segment, position, stop)
            found = scan(data, level="crc")
            if found.fault is not None and not found.incomplete:
                chunk.release()
                raise self._bad_batch(segment, position, found)
            served = _choose(found.table, offset, limit, bytes_max)
            if served is not None:
                start, stop, next_offset = served
                self._keep_place(next_offset, segment, position + stop)
                return Slices([data[start:stop]], [chunk], next_offset)
            if found.end == 0:
                needed = wanted = _needed_bytes(data)
                if position + needed > end:
                    chunk.release()
                    raise self._bad_batch(segment, position, found)
            chunk.release()
            if found.end and int(found.table["last_offset"][-1]) >= limit:
                return None
            position += found.end
        return None

    def _place_of(self, offset: int, segment: Segment, offsets: OffsetIndex) -> int:
        """The byte where the batch begins that holds an offset, or a batch before it."""
        found, position = self._places.get(offset, (None, 0))
        return position if found is segment else offsets.position_before(offset)

    def _keep_place(self, offset: int, segment: Segment, position: int) -> None:
        self._places[offset] = segment, position
        self._places.move_to_end(offset)
        if len(self._places) > COLD_PLACES_PER_LOG_MAX:
            self._places.popitem(last=False)

    def _read_range(self, segment: Segment, start: int, stop: int) -> Job[tuple[Chunk, memoryview]]:
        """Bytes of a segment's file, read in whole blocks into a pinned chunk."""
        first, last = block_floor(start), block_ceil(stop)
        chunk = self._take(last - first)
        try:
            clean = isinstance(segment, SealedSegment) and segment.is_clean_named
            held = self._log.files.hold(segment.base_offset, write=is_growing(segment), clean=clean)
            try:
                token = self._log.context.disk.read(held.file, chunk.view[: last - first], first)
                got = must((yield token), f"read {held.file.path}")
                if got < stop - first and self._log.context.disk.size(held.file) >= stop:
                    raise OSError(errno.EIO, f"read {held.file.path}: {got} of {stop - first} bytes")
            finally:
                self._log.files.release(held)
        except FileNotFoundError as error:
            chunk.release()
            raise self._found_corrupt(segment, "its file is missing") from error
        except OSError as error:
            chunk.release()
            self._tell_refused(segment, error)
            raise
        if got < stop - first:
            chunk.release()
            raise self._found_corrupt(segment, f"its file ends at byte {first + got}, before {stop}")
        return chunk, chunk.view[start - first : stop - first]

    def _take(self, nbytes: int) -> Chunk:
        context = self._log.context
        while (chunk := context.arena.take(nbytes)) is None:
            if not context.make_room():
                raise PartitionBusy(f"{self._log.name}: no memory is free for a read. Retry after a pause")
        return chunk

    def _indexes(self, segment: Segment) -> Job[tuple[OffsetIndex, TimeIndex]]:
        """A segment's indexes: from memory, from their files, or (when those are missing or wrong) rebuilt."""
        log = self._log
        try:
            if isinstance(segment, ActiveSegment):
                yield from complete_index(log.context.disk, log.files, segment)
                return segment.index.offsets, segment.index.times
            if segment.offsets is None or segment.times is None:
                loaded = yield from load_indexes(log.context.disk, log.files, log.path, segment.entry)
                segment.offsets, segment.times = loaded
            log.context.indexes.used(segment)
            return segment.offsets, segment.times
        except CorruptSegment as error:
            self._quarantine(segment, error)
            raise self._corrupt(segment, str(error)) from error
        except FileNotFoundError as error:
            raise self._found_corrupt(segment, "its file is missing") from error
        except OSError as error:
            self._tell_refused(segment, error)
            raise

    def _tell_refused(self, segment: Segment, error: OSError) -> None:
        """Not refused from now on, as what is corrupt: perhaps nobody else has it, and a device may recover."""
        if error.errno in MEDIUM_ERRORS and isinstance(segment, SealedSegment):
            refuse = partial(self._found_corrupt, segment, f"it cannot be read any more ({error})")
            self._log.context.events.append(ReadRefused(self._log, segment.base_offset, refuse))

    def _must_be_in_range(self, offset: int, bytes_max: int, end_offset: int) -> None:
        log = self._log
        if bytes_max < 1:
            raise InvalidRequest(f"a read of {bytes_max} bytes; ask for at least 1")
        if not log.log_start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(
                f"{log.name}: offset {offset} is outside of [{log.log_start_offset}, {log.readable_offset}]"
            )

    def _bad_batch(self, segment: Segment, position: int, found: Scan) -> CorruptSegment:
        fault = found.fault
        assert fault is not None
        at = position + fault.position
        return self._found_corrupt(segment, f"byte {at}: {fault.field}: {fault.reason}")

    def _found_corrupt(self, segment: Segment, why: str) -> CorruptSegment:
        """Refuse the segment from now on; the error for who asked."""
        error = self._corrupt(segment, why)
        self._quarantine(segment, error)
        return error

    def _corrupt(self, segment: Segment, why: str) -> CorruptSegment:
        name = offset_name(segment.base_offset, LOG)
        return CorruptSegment(
            f"{self._log.name}: segment {name} is not served: {why}. Its file is kept: "
            f"`ringlog log dump {self._log.path}/{name}` shows what can be read"
        )


def _last_that_fits(positions: list[int], end: int, first: int, budget: int, *, at_least_one: bool) -> int:
    """The byte where the run of whole batches from `first` on ends that fits the budget."""
    start = positions[first]
    if end - start <= budget:
        return end
    # A first batch that is larger than was asked for leaves less than nothing to the extents behind its own.
    last = max(bisect_right(positions, start + budget, lo=first) - 1, first)
    if last == first and at_least_one:
        return positions[first + 1] if first + 1 < len(positions) else end
    return positions[last]


def _choose(table: np.ndarray, offset: int, limit: int, bytes_max: int) -> tuple[int, int, int] | None:
    """(first byte, byte after the last, next offset) of the batches to serve, or None when there are none."""
    first = int(np.searchsorted(table["last_offset"], offset))
    stop = int(np.searchsorted(table["last_offset"], limit))  # a batch is readable as a whole or not at all
    if first >= stop:
        return None
    ends = table["position"] + table["length"]
    start = int(table["position"][first])
    fitting = int(np.searchsorted(ends, start + bytes_max, side="right"))
    last = max(min(fitting, stop) - 1, first)
    return start, int(ends[last]), int(table["last_offset"][last]) + 1


def _whole_batches(offsets: OffsetIndex, position: int, needed: int, wanted: int, end: int) -> int:
    """Where to stop reading from a byte on, to have so many bytes at least and about as many as are wanted: where a
    batch begins or the segment ends, as far as the index knows. What lies behind it would be read again."""
    if position + wanted >= end:
        return end
    last = offsets.last_between(position + needed, position + wanted)
    if last is not None:
        return last
    # The first batch is larger than what is wanted, and served all the same.
    following = offsets.first_at(position + needed)
    stop = following[1] if following is not None else end
    return stop if stop <= position + _READ_BYTES else position + wanted


def _needed_bytes(data: memoryview) -> int:
    """How long the batch is that the data begins with, as far as its first bytes tell."""
    if data.nbytes < 12:
        return BATCH_HEADER_BYTES
    return 12 + int.from_bytes(data[8:12], "big", signed=True)


def _first_at(views: list[memoryview], timestamp: int, start_offset: int) -> TimedOffset | None:
    for view in views:
        table = scan(view, level="headers").table
        for row in table[table["max_timestamp"] >= timestamp]:
            batch = view[int(row["position"]) : int(row["position"]) + int(row["length"])]
            columns = decode_columns(batch, columns=("offset", "timestamp"), include_control=True)
            assert columns.offset is not None and columns.timestamp is not None
            hits = np.flatnonzero((columns.timestamp >= timestamp) & (columns.offset >= start_offset))
            if hits.size:
                return TimedOffset(int(columns.offset[hits[0]]), int(columns.timestamp[hits[0]]))
    return None
