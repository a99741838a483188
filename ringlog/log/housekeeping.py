"""Seals, checkpoints and the clean stop of one partition: what moves its durable recovery point.

A checkpoint is one small durable write into `partition.point`. A seal and a stop write the indexes, the producers'
snapshot and then `partition.state`, in this order: the state vouches for the others by checksum, so a crash in
between leaves an older state that is still true.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ringlog.errors import CorruptSegment, OffsetOutOfRange, check
from ringlog.log.events import Quarantined, StartMoved, disk_error
from ringlog.log.index import OFFSET_ENTRY, TIME_ENTRY
from ringlog.log.index_rebuild import complete_index
from ringlog.log.jobs import Job, file_size, must, replace_file, write_file
from ringlog.log.mark import Mark, active_point, take_mark
from ringlog.log.names import INDEX, LOG, SNAPSHOT, STATE_NAME, TIME_INDEX, offset_name
from ringlog.log.partition import LogStatus, PartitionLog
from ringlog.log.point import MovedPoint, save_point
from ringlog.log.producer_replay import snapshot_offsets
from ringlog.log.retiring import delete_segment, delete_spares, spares, swap_segment
from ringlog.log.segment import ActiveSegment, Leases, SealedSegment, Segment
from ringlog.log.state import PartitionState, SavedIndexes, SealedEntry
from ringlog.records.checksum import crc32c

_SNAPSHOTS_KEPT = 2


class _Retired(NamedTuple):
    """Files that are not needed any more, but may still be read from."""

    base_offset: int
    leases: Sequence[Leases]
    chore: Callable[[], Job[None]]

    @property
    def is_free(self) -> bool:
        return not any(lease.count for lease in self.leases)


class Housekeeper:
    """Runs the chores of one log, one at a time and in order."""

    def __init__(
        self,
        log: PartitionLog,
        generation: int,
        on_wanted: Callable[[Housekeeper], None],
        on_retired: Callable[[Housekeeper], None],
    ) -> None:
        self.log = log
        self.compacted_offset = 0
        """Below it each key has one record, as far as compaction has come."""
        self.has_gaps = False
        """Offsets may skip in what the log has."""
        self._retired: list[_Retired] = []
        """What is to be done with files once no read uses them, the oldest first."""
        self._on_retired = on_retired
        """Told when there is something of that kind: from then on sweep() is to be called until it returns True."""
        self._swaps = 0
        self._after_save: list[Callable[[], None]] = []
        self._on_wanted = on_wanted
        """Told when a checkpoint is wanted: from then on tick() is to be called until it returns True."""
        self._generation = generation
        """Of the state that was saved last."""
        self._points = 0
        """How often the recovery point was moved since."""
        self.bytes_checkpointed = log.bytes_appended
        self._ends: dict[int, Mark] = {}
        """Marks at the ends of segments that were rolled and are not sealed yet, by base offset."""
        self._checkpoint: Mark | None = None
        self._wanted = False
        self._snapshots: set[int] | None = None
        """The offsets of the snapshots in the directory, once it was looked at."""
        self._state_is_old = False
        """The catalogue or the start of the log changed since the state was saved: moving the point would not tell."""
        self._chores: deque[Callable[[], Job[None]]] = deque()
        self._running = False
        log.on_roll = self._rolled
        log.on_segment_written = self._segment_written
        log.drop_spares = self._drop_spares if spares(log.context.disk, log.path) else None

    @property
    def quiet(self) -> bool:
        return not (self._running or self._chores)

    @property
    def resting(self) -> bool:
        """Quiet, and nothing is wanted that could begin now."""
        free = bool(self._retired) and self._retired[0].is_free
        return self.quiet and not self._wanted and not free

    @property
    def is_swapping(self) -> bool:
        """A segment that compaction made has not got its name yet, or the state on disk does not say so. Until then it
        is in use under the name that the next pass would write to."""
        return self._swaps > 0

    @property
    def unscanned_bytes(self) -> int:
        """What a crash now would make recovery scan."""
        return self.log.bytes_appended - self.bytes_checkpointed

    # -- when ----------------------------------------------------------------------------------------------

    def want_checkpoint(self) -> None:
        """Move the recovery point to the end of the group that is filling, as soon as that is flushed."""
        log = self.log
        if self._wanted or log.status is not LogStatus.OPEN:
            return
        self._wanted = True
        # Also when the log is idle now: it may be so at no tick that is to come.
        log.waiting.on_boundary = self._at_boundary
        self._on_wanted(self)

    def _at_boundary(self) -> None:
        self._checkpoint = take_mark(self.log)

    def tick(self) -> bool:
        """Start the checkpoint that was wanted if its mark is flushed now. True when none is wanted any more."""
        log, mark = self.log, self._checkpoint
        if not self._wanted or log.status is not LogStatus.OPEN:
            return True
        if mark is None:
            if not log.idle:
                return False
            mark = take_mark(log)
            log.waiting.on_boundary = None
        if mark.next_offset > log.flushed_offset:
            self._checkpoint = mark
            if mark.next_offset <= log.written_offset:
                log.flush()
            return False
        self._checkpoint, self._wanted = None, False
        self._enqueue(lambda: self._move_point(mark))
        return True

    def _rolled(self, old: ActiveSegment) -> None:
        old.index.finish()
        self._ends[old.base_offset] = take_mark(self.log)
        # A seal is a checkpoint too, at a later place than one that is still waited for.
        self._checkpoint, self._wanted = None, False
        self.log.waiting.on_boundary = None

    def _segment_written(self, old: ActiveSegment) -> None:
        mark = self._ends.pop(old.base_offset)
        self._enqueue(lambda: self._seal(old, mark))

    def _enqueue(self, chore: Callable[[], Job[None]]) -> None:
        self._chores.append(chore)
        self._next()

    def _next(self) -> None:
        if self._running or not self._chores:
            return
        self._running = True
        self.log.context.dispatcher.spawn(self._chores.popleft()(), self._done, self._failed)

    def _done(self, _: None) -> None:
        self._running = False
        self._next()

    def _failed(self, error: Exception) -> None:
        self._running = False
        self._chores.clear()
        if self.log.status is LogStatus.OPEN:
            self.log.fence(disk_error(self.log.name, "checkpoint", error))

    # -- what ----------------------------------------------------------------------------------------------

    def _move_point(self, mark: Mark) -> Job[None]:
        """Make the mark the recovery point by one small write; by a save of the state where that cannot be."""
        if self._state_is_old:
            yield from self.save_mark(mark)
            return
        self._points += 1
        point = MovedPoint(
            self._generation, self._points, active_point(mark), list(mark.epochs), producers=mark.snapshot
        )
        saved = yield from save_point(self.log.context.disk, self.log.path, point)
        if saved:
            self.bytes_checkpointed = mark.bytes_appended
        else:
            yield from self.save_mark(mark)

    def save_mark(self, mark: Mark, *, clean: bool = False, with_indexes: bool = True) -> Job[None]:
        """Make the mark the recovery point. Without indexes, the state vouches for those that were saved before."""
        if with_indexes and not mark.has_index_gap:
            yield from self._save_indexes(mark)
        elif clean:
            yield from self._cut_indexes(mark.segment)
        if mark.snapshot is not None:
            path = f"{self.log.path}/{offset_name(mark.next_offset, SNAPSHOT)}"
            yield from replace_file(self.log.context.disk, path, mark.snapshot)
            self.note_snapshot(mark.next_offset)
        yield from self._save_state(mark, clean)
        self._prune_snapshots(mark.next_offset)
        self.bytes_checkpointed = mark.bytes_appended

    def _seal(self, old: ActiveSegment, mark: Mark) -> Job[None]:
        """Turn a segment that was rolled and written into a sealed one, truncated to its content."""
        log = self.log
        if old.held is not None:
            log.context.disk.truncate(old.held.file, old.position)
            must((yield log.context.disk.flush(old.held.file)), "flush")
        yield from self._finish_indexes(old, mark)
        sealed = SealedSegment(
            SealedEntry(
                old.base_offset,
                mark.next_offset,
                old.position,
                mark.max_timestamp,
                old.saved.index_crc,
                old.saved.time_index_crc,
                old.quarantined,
                created_ms=old.created_ms,
            )
        )
        sealed.offsets, sealed.times = old.index.offsets, old.index.times
        self.log.context.indexes.used(sealed)
        sealed.leases = old.leases
        at = log.segments.index(old)
        log.segments[at] = sealed
        old.is_growing = False
        if old.held is not None:
            log.files.release(old.held)
            old.held = None
        following = log.segments[at + 1]
        assert isinstance(following, ActiveSegment)
        start = mark._replace(
            segment=following,
            position=0,
            max_timestamp=-1,
            max_timestamp_offset=following.base_offset,
            index_entries=0,
            time_index_entries=0,
            has_index_gap=False,
        )
        yield from self.save_mark(start)

    def _finish_indexes(self, old: ActiveSegment, mark: Mark) -> Job[None]:
        """Fill and save the indexes of a segment that was rolled. One that nobody may read needs none: it is corrupt,
        or below the start of the log."""
        log = self.log
        if mark.next_offset <= log.log_start_offset:
            return
        if not old.quarantined:
            try:
                yield from complete_index(log.context.disk, log.files, old)
            except CorruptSegment as error:
                old.quarantined = True
                log.look_for_hole()
                log.context.events.append(Quarantined(log, error))
        if not old.quarantined:
            entries, time_entries = len(old.index.offsets), len(old.index.times)
            yield from self._save_indexes(
                mark._replace(index_entries=entries, time_index_entries=time_entries)
            )

    def _save_indexes(self, mark: Mark) -> Job[None]:
        """Bring the index files of a segment up to the mark: only what is new is written."""
        segment, saved = mark.segment, mark.segment.saved
        base = f"{self.log.path}/{offset_name(segment.base_offset, '')}"
        offsets = segment.index.offsets.encode(saved.index_entries, mark.index_entries)
        times = segment.index.times.encode(saved.time_index_entries, mark.time_index_entries)
        yield from self._extend(base + INDEX, saved.index_entries * OFFSET_ENTRY.itemsize, offsets)
        yield from self._extend(base + TIME_INDEX, saved.time_index_entries * TIME_ENTRY.itemsize, times)
        segment.saved = SavedIndexes(
            mark.index_entries,
            crc32c(offsets, saved.index_crc),
            mark.time_index_entries,
            crc32c(times, saved.time_index_crc),
            mark.position,
        )

    def _cut_indexes(self, segment: ActiveSegment) -> Job[None]:
        """Truncate the index files to what the state vouches for; the rest is filled in when somebody needs it."""
        saved = segment.saved
        base = f"{self.log.path}/{offset_name(segment.base_offset, '')}"
        yield from self._extend(base + INDEX, saved.index_entries * OFFSET_ENTRY.itemsize, b"")
        yield from self._extend(base + TIME_INDEX, saved.time_index_entries * TIME_ENTRY.itemsize, b"")

    def _extend(self, path: str, position: int, data: bytes) -> Job[None]:
        """Make a file hold what it has below `position`, then the data, and nothing else."""
        disk = self.log.context.disk
        if data or not disk.exists(path) or file_size(disk, path) != position:
            yield from write_file(disk, path, data, position)

    def note_snapshot(self, offset: int) -> None:
        """One was taken there: it is pruned with the others."""
        if self._snapshots is not None:
            self._snapshots.add(offset)

    def _prune_snapshots(self, taken: int) -> None:
        """Keep the newest snapshot and the one before it, now that the state names the newest; and, of a log that has
        lost its beginning, the first one since which all batches are there. Should it be cut below the two, that one
        alone knows the producers of what was deleted. Not an earlier one: it would not know how they went on."""
        disk, path = self.log.context.disk, self.log.path
        if self._snapshots is None:
            # Once: a directory has some files for each segment, and this is done at each seal.
            self._snapshots = snapshot_offsets(disk, path)
        begin = self.log.segments[0].base_offset
        first = min((one for one in self._snapshots if one >= begin), default=-1) if begin else -1
        for offset in sorted(offset for offset in self._snapshots if offset <= taken)[:-_SNAPSHOTS_KEPT]:
            if offset == first:
                continue
            name = f"{path}/{offset_name(offset, SNAPSHOT)}"
            if disk.exists(name):
                disk.remove(name)
            self._snapshots.remove(offset)

    def _save_state(self, mark: Mark, clean: bool) -> Job[None]:
        log, segment = self.log, mark.segment
        check(log.flushed_offset >= mark.next_offset, "the recovery point is flushed")
        self._generation += 1
        self._state_is_old = False
        self._points = 0
        start = log.log_start_offset
        sealed = [
            s for s in log.segments if isinstance(s, SealedSegment) and s.base_offset < segment.base_offset
        ]
        kept = [s for s in sealed if s.next_offset > start]
        after, self._after_save = self._after_save, []
        # Also when the settings are changed later to some that leave none.
        self.has_gaps = self.has_gaps or log.settings.gaps_at_append
        state = PartitionState(
            generation=self._generation,
            clean=clean,
            log_start_offset=start,
            reach_bytes=log.settings.reach_bytes,
            sealed=[s.entry for s in kept],
            active=active_point(mark),
            epochs=list(mark.epochs),
            has_producers=mark.snapshot is not None,
            compacted_offset=self.compacted_offset,
            swapping=[s.base_offset for s in kept if s.is_clean_named],
            gaps_at_append=log.settings.gaps_at_append,
            has_gaps=self.has_gaps,
        )
        yield from replace_file(log.context.disk, f"{log.path}/{STATE_NAME}", state.encode())
        for then in after:  # before the drop: the swap of what is dropped comes before its deletion
            then()
        self._drop([s for s in sealed if s.next_offset <= start])
        if start > log.durable_start_offset:
            log.durable_start_offset = start
            log.context.events.append(StartMoved(log, start))

    def after_save(self, then: Callable[[], None]) -> None:
        """Have the state saved, as all is now, and then call `then`. Never, if the log is closed or fenced before."""
        self._after_save.append(then)
        self._want_state()

    def save_point(self) -> Job[None]:
        """Make the end of a log that was just recovered its recovery point. A new one has no indexes to save yet."""
        mark = take_mark(self.log)
        yield from self.save_mark(mark, with_indexes=mark.position > 0)

    def close(self) -> Job[None]:
        """The clean stop of an idle log: every file is truncated to its content, and opening needs no scan."""
        log = self.log
        check(log.idle and self.quiet, "a log is closed when nothing is in flight")
        active = log.active
        if active.held is not None:
            log.context.disk.truncate(active.held.file, active.position)
            must((yield log.context.disk.flush(active.held.file)), "flush")
            log.note_flushed()
        yield from self.save_mark(take_mark(log), clean=True)

    def quarantine(self, segment: Segment, error: CorruptSegment) -> None:
        """Refuse a segment to readers from now on, also after a restart. Appends go on behind it."""
        log = self.log
        if segment.quarantined or log.status is not LogStatus.OPEN:
            return
        segment.quarantined = self._state_is_old = True
        log.look_for_hole()
        log.context.events.append(Quarantined(log, error))
        if segment is log.active:
            log.roll(segment.created_ms)
        else:
            self._want_state()

    def found_rotten(self, segment: Segment, why: str) -> CorruptSegment:
        """As `quarantine`; the error to be raised."""
        name = offset_name(segment.base_offset, LOG)
        error = CorruptSegment(f"{self.log.name}: segment {name} is not served: {why}")
        self.quarantine(segment, error)
        return error

    def move_start(self, offset: int) -> None:
        """Let the log begin at an offset; readers below it are refused. Durable with the next checkpoint, or seal: an
        active segment of which nothing is left is rolled, because only sealed ones are deleted."""
        log = self.log
        if not log.log_start_offset <= offset <= log.readable_offset:
            raise OffsetOutOfRange(
                f"{log.name}: cannot start at {offset}, outside of [{log.log_start_offset}, {log.readable_offset}]"
            )
        log.log_start_offset = offset
        log.epochs.cut_start(offset)
        if log.hole_offset is not None:
            log.look_for_hole()
        if log.is_spent and log.status is LogStatus.OPEN:
            log.roll(log.active.created_ms)  # the seal saves the state, and then deletes it
        else:
            self._want_state()

    def _want_state(self) -> None:
        self._state_is_old = True
        self.want_checkpoint()

    # -- files that are no longer needed -------------------------------------------------------------------

    def _drop(self, gone: list[SealedSegment]) -> None:
        """Segments below the start of the log: no state names them any more, so their files may go."""
        segments = self.log.segments
        while gone and segments[0] in gone:
            # Up to what compaction has replaced meanwhile: that goes after the next save, and what lies behind it, too.
            segment = segments.pop(0)
            assert isinstance(segment, SealedSegment)
            deletion = partial(delete_segment, self.log, segment.base_offset)
            self._retire(segment.base_offset, [segment.leases], deletion)

    def _drop_spares(self) -> None:
        log = self.log
        log.drop_spares = None
        self._enqueue(lambda: self._delete_spares(spares(log.context.disk, log.path)))

    def _delete_spares(self, files: Sequence[tuple[str, int]]) -> Job[None]:
        """Some of them; the others when the chores that came meanwhile are done."""
        log = self.log
        left = yield from delete_spares(log.context.disk, log.path, files)
        if left and log.status is LogStatus.OPEN:
            self._enqueue(lambda: self._delete_spares(left))

    def delete_leftovers(self, base_offsets: Sequence[int]) -> None:
        """Delete the files of segments that a crash left, and that no state names."""
        for base_offset in base_offsets:
            self._retire(base_offset, [], partial(delete_segment, self.log, base_offset))

    def replace(self, old: Sequence[SealedSegment], new: SealedSegment, done: Callable[[], None]) -> None:
        """Let a segment that compaction made stand where others stood. Its files get their names when the state tells
        of it and no read uses the old ones; `done` is called when the state says that, too."""
        at = self.log.segments.index(old[0])
        check(self.log.segments[at : at + len(old)] == list(old), "segments are replaced as they stand")
        self.log.segments[at : at + len(old)] = [new]
        self.has_gaps = True
        self.log.tail.floor = max(self.log.tail.floor, new.next_offset)
        self._swaps += 1
        leases = [segment.leases for segment in old]
        self.after_save(lambda: self._retire(new.base_offset, leases, lambda: self._swap(old, new, done)))

    def _swap(self, old: Sequence[SealedSegment], new: SealedSegment, done: Callable[[], None]) -> Job[None]:
        yield from swap_segment(self.log, new, [segment.base_offset for segment in old[1:]])

        def settled() -> None:
            self._swaps -= 1
            done()

        self.after_save(settled)

    def _retire(self, base_offset: int, leases: Sequence[Leases], chore: Callable[[], Job[None]]) -> None:
        """Run a chore once no read is under way on some segments, the first of which begins there; behind those that
        begin there, too, and were retired before."""
        if not self._retired:
            self._on_retired(self)
        insort(self._retired, _Retired(base_offset, leases, chore), key=lambda one: one.base_offset)

    def sweep(self) -> bool:
        """Begin with what no read uses any more. True when nothing is left to wait for.

        The oldest goes first, and nothing before it: whatever a crash leaves, and should the state be lost with it, it
        is the end of a log and has no hole.
        """
        if self.log.status is not LogStatus.OPEN:
            self._retired.clear()
            return True
        while self._retired and self._retired[0].is_free:
            self._enqueue(self._retired.pop(0).chore)
        return not self._retired
