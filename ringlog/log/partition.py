"""The log of one partition: takes batches, writes them in order, knows how far each has come.

    append ──► queue of extents ──► one write in flight ──► recent tail, served from memory
               (received)             (written, flushed)

Offsets only grow, and flushed_offset ≤ written_offset ≤ next_offset always holds. One shard owns a log; it calls
append() for what came in, pump() once a cycle, and learns of progress through the events of its LogStore.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import Enum

from ringlog.disk.api import File
from ringlog.errors import RinglogError, check
from ringlog.limits import BLOCK_BYTES, RELATIVE_OFFSET_MAX
from ringlog.log.admission import judge_append
from ringlog.log.batch import BatchInfo
from ringlog.log.context import ShardContext
from ringlog.log.copying import read_block_head
from ringlog.log.epochs import EpochHistory
from ringlog.log.events import Appended, Fenced, Progress, Submitted, disk_error, not_taken
from ringlog.log.extent import AppendBuffer, Copy, Extent, block_floor, copy_as_it_is
from ringlog.log.files import SegmentFiles
from ringlog.log.growth import Growth
from ringlog.log.jobs import Job, must
from ringlog.log.producers import ProducerTable
from ringlog.log.recent_tail import LogTail
from ringlog.log.segment import ActiveSegment, Segment
from ringlog.log.settings import LogSettings
from ringlog.log.write_queue import WriteQueue
from ringlog.model import Durability, TopicPartition
from ringlog.records.scan import stamp


class LogStatus(Enum):
    """OPEN → FENCED (a disk error) or CLOSED; neither goes back: the log is opened anew from disk."""

    OPEN = "open"
    FENCED = "fenced"
    CLOSED = "closed"


class PartitionLog:
    """One partition. Made by `ringlog.log.store.LogStore.open`."""

    def __init__(
        self,
        name: TopicPartition,
        path: str,
        settings: LogSettings,
        context: ShardContext,
        segments: Sequence[Segment],
        log_start_offset: int,
        epochs: EpochHistory,
        producers: ProducerTable,
    ) -> None:
        check(
            bool(segments) and isinstance(segments[-1], ActiveSegment), "a log ends with its active segment"
        )
        self.name = name
        self.path = path
        self.settings = settings
        self.context = context
        self.segments: list[Segment] = list(segments)
        """Ascending by base offset. The last one is active; those before it are sealed, or about to be."""
        assert isinstance(self.segments[-1], ActiveSegment)
        self.active: ActiveSegment = self.segments[-1]
        self.log_start_offset = log_start_offset
        self.durable_start_offset = log_start_offset
        """Where the log begins even after a power loss."""
        self.hole_offset: int | None = None
        """Where the first records begin that the log should have and cannot serve; None: it has all. What compaction
        removed is no hole, nor what is below the start."""
        self.drop_spares: Callable[[], None] | None = None
        """Deletes the files that stood behind a hole, when their records are here again. None: there are none."""
        self.epochs = epochs
        self.producers = producers
        self.status = LogStatus.OPEN
        self.next_offset = self.active.next_offset
        self.written_offset = self.next_offset
        self.flushed_offset = self.next_offset
        self.committed_offset: int | None = None
        """Of a replicated partition: the high watermark. None: nobody else has to hold what is held here."""
        self.tail = LogTail()
        """Written extents that are still in memory, ascending and without gaps up to written_offset."""
        self.bytes_appended = 0
        self.fence_error: RinglogError | None = None
        tail_block = b"" if self.active.position % BLOCK_BYTES == 0 else None
        self.waiting = WriteQueue(
            AppendBuffer(context.arena, context.make_room), context.group_bytes, tail_block
        )
        self.in_flight: Extent | None = None
        """What is being written."""
        self._blocked = False
        """A job that opens the next file, or reserves space that the next write needs, is under way."""
        self._growth = Growth(context.disk, context.dispatcher, self._reserved)
        self.flushing = False
        """A flush of what is written is under way."""
        self._disk_segment = self.active
        """The segment that writes go to. Behind `active` while a roll is under way."""
        self.files = SegmentFiles(context.disk, path)
        self.on_roll: Callable[[ActiveSegment], None] = lambda segment: None
        """Called when appends have moved on from a segment: it will be sealed."""
        self.on_segment_written: Callable[[ActiveSegment], None] = lambda segment: None
        """Called when all of a segment that was rolled is flushed."""
        self.look_for_hole()

    # -- what it knows -------------------------------------------------------------------------------------

    @property
    def readable_offset(self) -> int:
        """Readers see the records below it: those that an ack could have been given for."""
        held = self.flushed_offset if self.settings.flush.on_ack else self.written_offset
        committed = self.committed_offset
        return held if committed is None or held < committed else committed

    @property
    def held_offset(self) -> int:
        """All below has the durability that the topic acknowledges, here."""
        return self.flushed_offset if self.settings.flush.on_ack else self.written_offset

    @property
    def submitted_offset(self) -> int:
        """All below is on the device or on its way there, in memory that does not change any more. What is above
        `held_offset` may be lost with this process."""
        return self.written_offset if self.in_flight is None else self.in_flight.next_offset

    @property
    def quiet(self) -> bool:
        """No disk call of an append is under way."""
        return not (self.in_flight or self._blocked or self._growth.is_under_way or self.flushing)

    @property
    def idle(self) -> bool:
        """Quiet, and nothing waits to be written."""
        return self.quiet and self.waiting.oldest is None and self._disk_segment is self.active

    @property
    def pending_bytes(self) -> int:
        """Received and not yet written."""
        return self.waiting.nbytes + (self.in_flight.nbytes if self.in_flight else 0)

    @property
    def log_bytes(self) -> int:
        """Bytes of batches received and not removed, over all segments."""
        return sum(segment.position for segment in self.segments)

    @property
    def is_spent(self) -> bool:
        """All that the active segment holds is deleted; its file can go when the log has moved on to another one."""
        return self.active.position > 0 and self.log_start_offset >= self.next_offset

    def segment_of(self, offset: int) -> Segment:
        """The segment that holds an offset, or that would if it were not compacted away."""
        at = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset)
        return self.segments[max(at - 1, 0)]

    def look_for_hole(self) -> None:
        """Find out where the log lacks something first: to be called when a segment is refused, or the start moved."""
        start = self.log_start_offset
        holes = (s.base_offset for s in self.segments if s.quarantined and s.next_offset > start)
        first = next(holes, None)
        self.hole_offset = None if first is None else max(first, start)

    # -- appending -----------------------------------------------------------------------------------------

    def append(
        self, data: memoryview, batches: Sequence[BatchInfo], *, now_ms: int, leader_epoch: int = 0
    ) -> Appended:
        """Take whole, checked batches that lie one after another in writable memory: they are stamped there
        and copied. On return they are `received`, nothing more; all of them, or none when an error is raised."""
        self.must_be_open()
        check(leader_epoch >= self.epochs.latest, "a leader epoch never goes back")
        check(bool(batches), "an append has batches")
        first, *others = batches
        nbytes = first.nbytes + sum(b.nbytes for b in others) if others else first.nbytes
        check(nbytes == data.nbytes, "the batches fill the data")
        repeat = judge_append(self, batches, nbytes)
        if repeat is not None:
            return Appended(*repeat, repeated=True)
        records = first.record_count + sum(b.record_count for b in others) if others else first.record_count
        if self.must_roll(nbytes, records, now_ms):
            self.roll(now_ms)
        base_offset = self.next_offset
        next_offset = stamp(
            data,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            append_time_ms=now_ms if self.settings.append_time else None,
        )
        check(next_offset == base_offset + records, "offsets are dense at append")
        extent = self.copy_in(data, now_ms)
        self.note(batches, extent, base_offset, now_ms, leader_epoch)
        return Appended(base_offset, next_offset - 1, now_ms if self.settings.append_time else -1)

    def must_roll(self, nbytes: int, records: int, now_ms: int) -> bool:
        """Whether so much more belongs into a new segment."""
        active = self.active
        return active.position > 0 and (
            active.position + nbytes > self.settings.segment_bytes
            or now_ms - active.created_ms >= self.settings.roll_ms
            or active.index.is_full
            or self.next_offset + records - 1 - active.base_offset > RELATIVE_OFFSET_MAX
        )

    def roll_if_due(self, now_ms: int) -> bool:
        """Move on to a new segment when the active one is old enough, without waiting for an append."""
        due = self.status is LogStatus.OPEN and self.must_roll(0, 1, now_ms)
        if due:
            self.roll(now_ms)
        return due

    def roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """Let what comes next go to a new segment. The old one is sealed when all of it is flushed.

        `base_offset`: where the next batch stands, behind a gap; the old segment reaches up to there."""
        old = self.active
        new = ActiveSegment(self.next_offset if base_offset is None else base_offset, now_ms)
        old.next_offset = new.base_offset
        new.preallocation.inherit(old.preallocation)
        self.waiting.roll()
        self.on_roll(old)
        self.segments.append(new)
        self.active = new
        self.context.mark_ready(self)

    def place(self, nbytes: int, now_ms: int) -> memoryview | None:
        """Memory in which a batch of so many bytes, if it is made there and appended next, need not be copied. None
        when there is none in one piece, or it would gain nothing. Whoever got one calls `waiting.leave_place` later."""
        if self.status is not LogStatus.OPEN or nbytes > self.settings.batch_bytes_max:
            return None
        if self.settings.codec is not None:
            return None  # what is written may be far smaller
        return self.waiting.place(nbytes, self.active, now_ms)

    def copy_in(self, data: memoryview, now_ms: int, copy: Copy = copy_as_it_is) -> Extent:
        """The queued extent that now holds the data at its end."""
        return self.waiting.add(data, self.active, self.next_offset, now_ms, copy)

    def note(
        self,
        batches: Sequence[BatchInfo],
        extent: Extent,
        base_offset: int,
        now_ms: int,
        leader_epoch: int,
        *,
        stamped: bool = True,
    ) -> None:
        """Bring all that is derived from the log up to the batches just copied. `stamped`: with the present time."""
        active = self.active
        if active.position == 0:
            active.created_ms = now_ms
        self.epochs.note(leader_epoch, base_offset)
        position, offset = active.position, base_offset
        for batch in batches:
            last_offset = offset + batch.record_count - 1
            append_time_ms = now_ms if stamped else batch.max_timestamp
            timestamp = append_time_ms if self.settings.append_time else batch.max_timestamp
            active.index.add_batch(last_offset, position, timestamp)
            extent.batch_positions.append(position)
            extent.batch_last_offsets.append(last_offset)
            if batch.producer_id >= 0:
                self.producers.note(
                    batch, offset, now_ms, append_time_ms if self.settings.append_time else -1
                )
            position += batch.nbytes
            offset = last_offset + 1
        nbytes = position - active.position
        active.position, active.next_offset = position, offset
        self.next_offset = extent.next_offset = offset
        self.bytes_appended += nbytes
        if not self.in_flight:
            self.context.mark_ready(self)

    # -- writing -------------------------------------------------------------------------------------------

    def pump(self, now_ms: int) -> None:
        """Queue the next write, if one is due and none is in flight."""
        if self.in_flight or self._blocked or self.status is not LogStatus.OPEN:
            return
        segment = self._disk_segment
        if segment is not self.active and segment.written_position == segment.position:
            # Space that is still being reserved would make the old file longer again after it was sealed.
            if not self._growth.is_under_way:
                self._block_on(self._next_file(segment))
            return
        head = self.waiting.oldest
        if head is None:
            return
        check(head.segment is segment, "a segment is written to when the one before it is whole")
        if segment.held is None:
            self._block_on(self._open_file(segment))
            return
        step_max = self.context.space.step_bytes_max()
        self._growth.keep_ahead(segment, segment.held.file, head.block_end, self.settings, now_ms, step_max)
        if head.block_end <= segment.allocated:
            self._write(head, segment.held.file)

    def _write(self, head: Extent, file: File) -> None:
        self.in_flight = self.waiting.take_oldest()
        pieces = head.close()
        durable = self.settings.flush.on_ack
        check(self.flushed_offset == self.written_offset or not durable, "a policy begins with all flushed")
        token = self.context.disk.write(file, pieces, head.block_start, durable=durable)
        self.context.dispatcher.when_done(token, self._write_done)
        if self.committed_offset is not None:
            self.context.events.append(Submitted(self))

    def _write_done(self, result: int) -> None:
        extent, self.in_flight = self.in_flight, None
        assert extent is not None
        if self.status is not LogStatus.OPEN:
            extent.release()
            return
        wanted = extent.block_end - extent.block_start
        if result != wanted:
            extent.release()
            what = f"wrote {result} of {wanted} bytes" if result >= 0 else "write"
            self.fence(disk_error(self.name, what, -result if result < 0 else errno.EIO))
            return
        check(extent.base_offset == self.written_offset, "writes of a partition complete in order")
        self.written_offset = extent.next_offset
        extent.segment.written_position = extent.end
        self.context.mark_ready(self)
        self.tail.append(extent)
        self.context.keep_tail(self, extent)
        if self.settings.flush.on_ack:
            self._flushed_up_to(self.written_offset)
        else:
            self.context.events.append(Progress(self, self.written_offset, Durability.WRITTEN))

    def _flushed_up_to(self, offset: int) -> None:
        check(
            self.flushed_offset <= offset <= self.written_offset,
            "flushed follows written and never goes back",
        )
        self.flushed_offset = offset
        self.context.events.append(Progress(self, offset, Durability.FLUSHED))

    def note_flushed(self) -> None:
        """All that is written was flushed by a chore."""
        if self.flushed_offset < self.written_offset:
            self._flushed_up_to(self.written_offset)

    def flush(self) -> None:
        """Queue a flush of what is written. For policies that do not flush on every ack."""
        segment = self._disk_segment
        if self.flushing or self.flushed_offset == self.written_offset or segment.held is None:
            return
        if self.status is not LogStatus.OPEN:
            return
        self.flushing = True
        upto = self.written_offset
        held = self.files.hold(segment.base_offset, write=True)  # the segment may be sealed meanwhile

        def done(result: int) -> None:
            self.flushing = False
            self.files.release(held)
            if self.status is not LogStatus.OPEN:
                return
            if result < 0:
                self.fence(disk_error(self.name, "flush", -result))
            elif upto > self.flushed_offset:
                self._flushed_up_to(upto)

        self.context.dispatcher.when_done(self.context.disk.flush(held.file), done)

    # -- files and space -----------------------------------------------------------------------------------

    def _reserved(self, error: int) -> None:
        """More space is reserved, or, with an errno, cannot be."""
        if self.status is not LogStatus.OPEN:
            return
        if error:
            self.fence(disk_error(self.name, "reserve space", error))
        self.context.mark_ready(self)

    def _next_file(self, old: ActiveSegment) -> Job[None]:
        """All of a segment is written: flush it if that is still to do, then open the next one's file."""
        new = self.segments[self.segments.index(old) + 1]
        assert isinstance(new, ActiveSegment)
        check(old.next_offset == new.base_offset, "segments follow one another without a gap")
        disk = self.context.disk
        if old.held is None and old.position == 0:
            yield from self._open_file(old)  # nothing was appended to it, and recovery looks for its file
        if self.flushed_offset < self.written_offset and old.held is not None:
            # Otherwise power loss could leave the new segment's batches behind a hole in the old one.
            must((yield disk.flush(old.held.file)), "flush")
            if self.status is not LogStatus.OPEN:
                return
            self._flushed_up_to(self.written_offset)
        self.on_segment_written(old)
        self._disk_segment = new
        yield from self._open_file(new)

    def _open_file(self, segment: ActiveSegment) -> Job[None]:
        """Open the file for appends. Its name survives power loss before the first batch is written to it."""
        disk = self.context.disk
        held = self.files.hold(segment.base_offset, write=True)
        segment.held = held
        if disk.size(held.file) == 0:
            # Not only when it is made now: this may have failed, or been cut off, the last time.
            must((yield disk.flush_dir(self.path)), "flush directory")
        segment.allocated = block_floor(disk.size(held.file))
        oldest = self.waiting.oldest
        if oldest is not None and not oldest.head_filled:
            yield from self._fill_first_head(held.file, oldest)

    def _fill_first_head(self, file: File, extent: Extent) -> Job[None]:
        """The first append after an open continues a block that only the file has."""
        start, length = extent.block_start, extent.position - extent.block_start
        old = yield from read_block_head(self.context.disk, file, start, length)
        if self.status is LogStatus.OPEN:  # else the extent was dropped meanwhile
            extent.fill_head(old)

    def _block_on(self, job: Job[None]) -> None:
        """No write starts until the job is done; its failure fences the partition."""
        self._blocked = True

        def done(_: None) -> None:
            self._blocked = False
            self.context.mark_ready(self)

        def failed(error: Exception) -> None:
            self._blocked = False
            if self.status is LogStatus.OPEN:
                self.fence(disk_error(self.name, "open the next file", error))

        self.context.dispatcher.spawn(job, done, failed)

    # -- the end -------------------------------------------------------------------------------------------

    def fence(self, error: RinglogError) -> None:
        """Stop for good: memory and file may differ. What was not acknowledged is dropped from memory."""
        check(self.status is LogStatus.OPEN, "only an open log can be fenced")
        self.status = LogStatus.FENCED
        self.fence_error = error
        self.waiting.clear()
        self.context.events.append(Fenced(self, error))

    def stop(self) -> None:
        """Take no more appends; what is in flight may still complete."""
        self.status = LogStatus.CLOSED
        self.waiting.clear()

    def forget(self) -> None:
        """Give all memory back and close all files. The log must be idle."""
        check(self.quiet, "a log is left when nothing is in flight")
        self.status = LogStatus.CLOSED
        self.waiting.clear()
        self.tail.release()
        self.files.close()

    def evict_oldest(self) -> None:
        """Drop the oldest extent of the tail from memory. The last one takes the append buffer with it, if that
        is idle: else each partition that was once busy would keep a chunk, until none is left for anyone."""
        self.tail.take_oldest().release()
        if not len(self.tail):
            self.waiting.give_back()

    def must_be_open(self) -> None:
        """Raise PartitionFenced, or DiskFull, unless appends are taken."""
        if self.status is not LogStatus.OPEN:
            raise not_taken(self.name, self.status.value, self.fence_error)
