"""One compaction of one log, in slices: notes keys, writes new segments beside the old ones, and has them swapped.

    0…42.log, 0…97.log ──► 0…42.log.clean ──► the state names it ──► no read uses the old ones ──► 0…42.log
                           written, flushed    (a crash before       renamed, the others deleted
                                                leaves the old log)   (a crash in between: the next open does it)

Readers use the new segment from the moment that it stands in the log's list. Offsets never change, so whatever a reader
has read, it goes on behind that.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Generator
from functools import partial

import msgspec
import numpy as np

from ringlog.disk.api import File
from ringlog.errors import CorruptBatch, CorruptSegment
from ringlog.limits import KIB, MIB
from ringlog.log.compaction_plan import CompactionPlan, Group, group_segments, may_drop_tombstones
from ringlog.log.extent import block_ceil, block_floor
from ringlog.log.housekeeping import Housekeeper
from ringlog.log.index import SegmentIndex
from ringlog.log.jobs import Job, must, write_file
from ringlog.log.names import CLEAN, INDEX, LOG, TIME_INDEX, offset_name
from ringlog.log.partition import LogStatus
from ringlog.log.replay import replay_index
from ringlog.log.retiring import SEGMENT_SUFFIXES
from ringlog.log.scanner import CARRY_BYTES, Scratch
from ringlog.log.segment import SealedSegment
from ringlog.log.state import SealedEntry
from ringlog.records.checksum import crc32c
from ringlog.records.compaction import OffsetMap, Rules, filter_batches, note
from ringlog.records.scan import scan

PAUSE = 0
"""What is yielded between two slices; no disk call has this token."""
WINDOW_BYTES = 1 * MIB
"""Read, looked at and written in one slice, by a pass that has no budget: large, to be fast."""
PACED_WINDOW_BYTES = 256 * KIB
"""With a budget: small, so that appends hardly wait for the device."""
_FLUSH_BYTES = 16 * MIB
"""Flushed in parts: a device that has to flush hundreds of MiB at once lets the appends of others wait."""

_logger = logging.getLogger(__name__)

_Work = Generator[int, int, None]
_Visit = Callable[[memoryview, np.ndarray], bool]


class Compaction:
    """A pass over one log. `step()` is to be run, and `bytes_moved` looked at, until `is_settled`."""

    def __init__(
        self,
        housekeeper: Housekeeper,
        plan: CompactionPlan,
        keys: OffsetMap,
        scratch: Scratch,
        now_ms: int,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self.log = housekeeper.log
        self.bytes_moved = 0
        """Read and written so far."""
        self.is_done = False
        self.came_through = False
        """Nothing was left out: all that was due when it began is compacted."""
        self._housekeeper = housekeeper
        self._plan = plan
        self._keys = keys
        self._scratch = scratch
        self._now_ms = now_ms
        self._window_bytes = window_bytes
        self._end_offset = plan.segments[-1].next_offset
        """Records below it are known to the map, once that is made."""
        self._unsettled = 0
        """Swaps that the state on disk does not know to be over."""
        self._writing: int | None = None
        """The base offset of a segment that is being written, and that no list has yet."""
        self._work = self._run()

    @property
    def is_settled(self) -> bool:
        """All is done, and the state on disk says so: another pass may begin."""
        return self.is_done and not self._unsettled

    def step(self) -> Job[None]:
        """Do one slice of the work."""
        result: int | None = None
        while True:
            try:
                token = next(self._work) if result is None else self._work.send(result)
            except StopIteration:
                self.is_done = True
                return
            if token == PAUSE:
                return
            result = yield token

    def cancel(self) -> None:
        """Stop between two slices. What was written and is not part of the log yet is removed."""
        self._work.close()
        self._discard()
        self.is_done = True

    # -- the work ------------------------------------------------------------------------------------------

    def _run(self) -> _Work:
        yield from self._note_keys()
        last_batches = [
            entry.batches[-1].base_offset for entry in self.log.producers.entries if entry.batches
        ]
        live = np.array(sorted(last_batches), np.int64)
        for group in group_segments(self._plan, self.log.settings, self._now_ms):
            if not self._is_there(group) or not self.log.context.space.has_room_for(group.nbytes):
                return
            yield from self._rewrite(group, live)
        # Only now: what is below it is not looked at for superseded records again.
        self._housekeeper.compacted_offset = self._end_offset
        self._settle()
        self.came_through = True

    def _note_keys(self) -> _Work:
        """Fill the map from the dirty part, as far as there is room in it."""
        start, full_at = self._plan.start_offset, None

        def visit(data: memoryview, table: np.ndarray) -> bool:
            nonlocal full_at
            full_at = note(self._keys, data, table, start)
            return full_at is None

        for segment in self._plan.segments:
            if segment.next_offset > start:
                yield from self._walk(segment, visit)
            if full_at is not None:
                self._end_offset = full_at
                return

    def _rewrite(self, group: Group, live: np.ndarray) -> _Work:
        """Write what stays of some neighbours into one new segment, and let it take their place."""
        disk, first = self.log.context.disk, group.segments[0]
        base = f"{self.log.path}/{offset_name(first.base_offset, '')}"
        self._writing = first.base_offset
        file = disk.open(base + LOG + CLEAN, write=True, create=True, direct=True)
        try:
            disk.truncate(file, 0)
            out = _Output(file, first.base_offset, self._scratch.windows[1], self._window_bytes)
            for segment in group.segments:
                drops = may_drop_tombstones(segment, self._plan.start_offset, self.log.settings, self._now_ms)
                rules = Rules(self._end_offset, drops, live)
                yield from self._walk(segment, partial(self._filter, rules, out), out)
            yield from self._finish(out)
        finally:
            disk.close(file)
        if len(group.segments) == 1 and not out.changed:
            self._discard()
            first.entry = msgspec.structs.replace(first.entry, tombstones_since_ms=group.tombstones_since_ms)
            return
        out.index.finish()
        offsets, times = out.index.offsets.encode(), out.index.times.encode()
        yield from write_file(disk, base + INDEX + CLEAN, offsets)
        yield from write_file(disk, base + TIME_INDEX + CLEAN, times)
        must((yield disk.flush_dir(self.log.path)), f"flush directory {self.log.path}")
        entry = SealedEntry(
            first.base_offset,
            group.segments[-1].next_offset,
            out.nbytes,
            out.index.max_timestamp,
            crc32c(offsets),
            crc32c(times),
            tombstones_since_ms=group.tombstones_since_ms,
            created_ms=first.created_ms,
        )
        self._take_place(group, entry, out.index)
        yield PAUSE

    def _filter(self, rules: Rules, out: _Output, data: memoryview, table: np.ndarray) -> bool:
        """Put what stays of a window's batches to what is to be written."""
        kept = filter_batches(self._keys, data, table, rules, out.room)
        out.add(kept.nbytes, kept.changed)
        return True

    def _wrote(self, out: _Output, blocks: memoryview, result: int) -> None:
        if must(result, f"write {out.file.path}") != blocks.nbytes:
            raise OSError(f"write {out.file.path}: it was cut short")
        out.wrote(blocks.nbytes)
        self.bytes_moved += blocks.nbytes

    def _finish(self, out: _Output) -> _Work:
        """Write the last, partial block, and let the file end where its batches end, flushed."""
        disk = self.log.context.disk
        if out.pending:
            blocks = out.last_block()
            self._wrote(out, blocks, (yield disk.write(out.file, [blocks], out.written, durable=False)))
        disk.truncate(out.file, out.nbytes)
        must((yield disk.flush(out.file)), f"flush {out.file.path}")

    def _take_place(self, group: Group, entry: SealedEntry, index: SegmentIndex) -> None:
        if not self._is_there(group):
            self._discard()  # retention was faster
            return
        new = SealedSegment(entry)
        new.offsets, new.times = index.offsets, index.times
        new.is_clean_named = True
        self._unsettled += 1
        self._writing = None  # from now on it is read
        self._housekeeper.replace(group.segments, new, self._settled)

    def _discard(self) -> None:
        """Remove what was written in vain: it may be as large as a segment. What cannot be removed is when the log is
        opened."""
        base_offset, self._writing = self._writing, None
        if base_offset is None:
            return
        disk = self.log.context.disk
        for suffix in SEGMENT_SUFFIXES:
            path = f"{self.log.path}/{offset_name(base_offset, suffix)}{CLEAN}"
            try:
                if disk.exists(path):
                    disk.remove(path)
            except OSError as error:
                _logger.warning("%s: %s was not removed: %s", self.log.name, path, error)

    def _settled(self) -> None:
        self._unsettled -= 1

    def _settle(self) -> None:
        """Wait until the state on disk has all that changed."""
        self._unsettled += 1
        self._housekeeper.after_save(self._settled)

    def _is_there(self, group: Group) -> bool:
        """The segments are still those of the log, side by side."""
        segments = self.log.segments
        if self.log.status is not LogStatus.OPEN or group.segments[0] not in segments:
            return False
        at = segments.index(group.segments[0])
        return segments[at : at + len(group.segments)] == list(group.segments)

    # -- reading -------------------------------------------------------------------------------------------

    def _walk(self, segment: SealedSegment, visit: _Visit, out: _Output | None = None) -> _Work:
        """Show the whole, checked batches of a segment to `visit`, a window at a time, until it says False. What it
        puts into `out` is written while the next window is read."""
        try:
            file = self.log.context.disk.open(self.log.files.path_of(segment.base_offset), direct=True)
        except FileNotFoundError:
            if segment in self.log.segments:  # else retention was faster
                name = offset_name(segment.base_offset, LOG)
                missing = CorruptSegment(
                    f"{self.log.name}: segment {name} is not served: its file is missing"
                )
                self._housekeeper.quarantine(segment, missing)
            raise
        try:
            yield from self._walk_file(segment, file, visit, out)
        finally:
            self.log.context.disk.close(file)

    def _walk_file(self, segment: SealedSegment, file: File, visit: _Visit, out: _Output | None) -> _Work:
        memory, carry, begin = self._scratch.windows[0], 0, 0
        got = must((yield self._read(segment, file, begin)), f"read {file.path}") if segment.position else 0
        while begin < segment.position:
            self.bytes_moved += got
            end = min(begin + self._window_bytes, segment.position)
            if begin + got < end:
                # Cut while it was read, by a truncation, or damaged: a reader of it will tell.
                raise OSError(errno.EIO, f"read {file.path}: it ends at byte {begin + got}, before {end}")
            data = memory[CARRY_BYTES - carry : CARRY_BYTES + end - begin]
            found = scan(data, level="crc")
            if found.fault is not None and (end == segment.position or not found.incomplete):
                raise self._corrupt(segment, begin - carry, found.fault)
            if len(found.table) and not visit(data[: found.end], found.table):
                return
            rest = data[found.end :]
            carry = rest.nbytes
            memory[CARRY_BYTES - carry : CARRY_BYTES] = rest
            begin = end
            got = yield from self._exchange(segment, file, begin, out)
            yield PAUSE

    def _exchange(
        self, segment: SealedSegment, file: File, begin: int, out: _Output | None
    ) -> Generator[int, int, int]:
        """Read the next window, and write and flush what is ready, all at once; returns how much was read."""
        disk = self.log.context.disk
        read = self._read(segment, file, begin) if begin < segment.position else None
        write = flush = blocks = None
        if out is not None:
            if out.written - out.flushed >= _FLUSH_BYTES:
                out.flushed, flush = out.written, disk.flush(out.file)
            blocks = out.blocks()
            if blocks is not None:
                write = disk.write(out.file, [blocks], out.written, durable=False)
        # None of them is judged before all are over: memory and files are the disk's until then.
        got = (yield read) if read is not None else 0
        wrote = (yield write) if write is not None else 0
        flushed = (yield flush) if flush is not None else 0
        if out is not None and blocks is not None:
            self._wrote(out, blocks, wrote)
        must(flushed, "flush")
        return must(got, f"read {file.path}")

    def _read(self, segment: SealedSegment, file: File, begin: int) -> int:
        length = block_ceil(min(self._window_bytes, segment.position - begin))
        window = self._scratch.windows[0][CARRY_BYTES : CARRY_BYTES + length]
        return self.log.context.disk.read(file, window, begin)

    def _corrupt(self, segment: SealedSegment, position: int, fault: CorruptBatch) -> CorruptSegment:
        name = offset_name(segment.base_offset, LOG)
        why = f"byte {position + fault.position}: {fault.field}: {fault.reason}"
        error = CorruptSegment(f"{self.log.name}: segment {name} is not served: {why}")
        self._housekeeper.quarantine(segment, error)
        return error


class _Output:
    """The segment that is being written: whole blocks go to the file, the rest waits in memory for more."""

    def __init__(self, file: File, base_offset: int, memory: memoryview, write_bytes: int) -> None:
        self.file = file
        self._write_bytes = write_bytes
        """What is worth a write."""
        self.index = SegmentIndex(base_offset)
        self.nbytes = 0
        """Of batches so far."""
        self.written = 0
        """In the file, whole blocks."""
        self.flushed = 0
        self.pending = 0
        """That wait at the beginning of the memory."""
        self.changed = False
        """Something was left out."""
        self._memory = memory

    @property
    def room(self) -> memoryview:
        """Where the next batches are to be put."""
        return self._memory[self.pending :]

    def add(self, nbytes: int, changed: bool) -> None:
        """Batches were put there."""
        rows = scan(self.room[:nbytes], level="headers").table.copy()
        rows["position"] += self.nbytes
        replay_index(self.index, rows)
        self.nbytes += nbytes
        self.pending += nbytes
        self.changed |= changed

    def blocks(self) -> memoryview | None:
        """Whole blocks to write, when they are enough."""
        return self._memory[: block_floor(self.pending)] if self.pending >= self._write_bytes else None

    def last_block(self) -> memoryview:
        """All that waits, and zeros up to the end of its last block."""
        end = block_ceil(self.pending)
        self._memory[self.pending : end] = bytes(end - self.pending)
        return self._memory[:end]

    def wrote(self, nbytes: int) -> None:
        """Blocks are in the file: what waits behind them moves to the front."""
        rest = max(self.pending - nbytes, 0)
        self._memory[:rest] = self._memory[nbytes : nbytes + rest]
        self.pending = rest
        self.written += nbytes
