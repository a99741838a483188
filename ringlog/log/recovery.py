"""Opens a partition: at no cost after a clean stop, by a bounded scan after a crash.

Below the recovery point everything was flushed and is left alone; its CRCs are checked when it is read.
Above it the log ends at the first batch that is bad, not at the expected offset, or of a lower epoch:

    │ sealed segments │ active: below the point │ scanned: good batches │ torn │ zeros │
                                               ▲                       ▲
                                        recovery point             the log ends here

A whole batch behind the end by more than one write could reach proves that the bad batch was once flushed:
that is corruption, not a torn write. Its segment is quarantined and nothing is cut. Bytes that are cut are saved
as `*.cut` and the file is truncated and flushed before the next append, because the CRC covers neither
base offset nor epoch: what lay behind the cut could come back as valid at the next crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ringlog.disk.api import Disk, File
from ringlog.errors import CorruptFile
from ringlog.log.copying import rewrite_range, save_range
from ringlog.log.epochs import EpochHistory
from ringlog.log.files import SegmentFiles
from ringlog.log.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, SegmentIndex, TimeIndex
from ringlog.log.jobs import Job, must, read_file, write_file
from ringlog.log.names import (
    CLEAN,
    INDEX,
    LOG,
    POINT_NAME,
    STATE_NAME,
    TIME_INDEX,
    free_name,
    offset_name,
    parse_offset_name,
)
from ringlog.log.point import MovedPoint, last_generation, newest_point, with_point
from ringlog.log.producer_replay import SegmentPart, producers_at
from ringlog.log.producers import ProducerTable
from ringlog.log.replay import replay_epochs, replay_index, replay_producers
from ringlog.log.retiring import superseded
from ringlog.log.scanner import ScanEnd, Scratch, scan_file
from ringlog.log.segment import ActiveSegment, SealedSegment, Segment
from ringlog.log.state import ActivePoint, PartitionState, SavedIndexes, SealedEntry
from ringlog.log.verdict import Verdict, judge_end
from ringlog.records.checksum import crc32c

_logger = logging.getLogger(__name__)


@dataclass
class RecoveryReport:
    """What opening a partition found and did."""

    clean: bool = True
    scanned_bytes: int = 0
    cut_bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """Sentences for people: all that was not as a clean stop leaves it."""


class Recovered(NamedTuple):
    """A partition as its files tell it."""

    segments: list[Segment]
    log_start_offset: int
    epochs: EpochHistory
    producers: ProducerTable
    generation: int
    """Of the state that was found; 0 when there was none."""
    reach_bytes: int
    """How far one write could reach, by the policy that the log was last written under."""
    report: RecoveryReport
    state: PartitionState | None
    """As it was when the log was last written; None: there was none that could be used."""
    rotten: Mapping[int, str]
    """Base offsets of segments that were found to be corrupt below the recovery point, and why: to be refused."""
    leftovers: Sequence[int] = ()
    """Base offsets of segment files that retention or compaction had done with: they may be deleted."""


class Recovery:
    """One opening of one partition's directory."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        reach_bytes: int,
        now_ms: int,
        scratch: Scratch,
        *,
        after_disk_error: bool = False,
        may_have_gaps: bool = False,
        gaps_at_append: bool = False,
    ) -> None:
        """`may_have_gaps`: compaction may have removed records; only asked when there is no state to tell.
        `gaps_at_append`: also among what was appended last, as a leader's compaction left them."""
        self._may_have_gaps = may_have_gaps
        self._disk = disk
        self._path = path
        self._reach_bytes = reach_bytes
        """By the settings of this opening; what a state says of the writes before it takes precedence."""
        self._now_ms = now_ms
        self._after_disk_error = after_disk_error
        """What lies above the recovery point is written once more, because a failed flush may have lost it."""
        self._scratch = scratch
        self._files = SegmentFiles(disk, path)
        self._report = RecoveryReport()
        self._epochs = EpochHistory()
        self._producers = ProducerTable()
        self._rotten: dict[int, str] = {}
        self._dense = not gaps_at_append
        """Offsets follow one another without a gap in what is scanned."""
        self._point: MovedPoint | None = None
        """What moved the recovery point since the state was saved."""

    def run(self) -> Job[Recovered]:
        try:
            return (yield from self._run())
        finally:
            self._files.close()

    def _run(self) -> Job[Recovered]:
        state = yield from self._load_state()
        if state is not None:
            self._reach_bytes = state.reach_bytes
            # Also where the settings have been changed meanwhile to some that leave none.
            self._dense = self._dense and not state.gaps_at_append
        yield from self._finish_swaps(self._interrupted_swaps() if state is None else state.swapping)
        sizes = self._list_segments()
        leftovers = superseded(state, sizes) if state is not None else []
        for base in leftovers:
            del sizes[base]
        if state is not None and self._is_clean(state, sizes):
            segments = yield from self._open_clean(state, sizes)
            start = state.log_start_offset
        else:
            self._report.clean = False
            if state is not None:
                state = yield from self._move_state(state)
            segments = yield from self._open_unclean(state, sizes)
            start = max(state.log_start_offset if state else 0, segments[0].base_offset)
            # A start among records that were not flushed yet is lost with them.
            start = min(start, segments[-1].next_offset)
        generation = (
            state.generation if state is not None else last_generation((yield from self._read_points()))
        )
        return Recovered(
            segments,
            start,
            self._epochs,
            self._producers,
            generation,
            self._reach_bytes,
            self._report,
            state,
            self._rotten,
            leftovers,
        )

    # -- what is there -------------------------------------------------------------------------------------

    def _list_segments(self) -> dict[int, int]:
        """Sizes of the segment files by base offset, ascending. Removes what an unfinished replacement left, and
        indexes without a segment."""
        names = self._disk.list_dir(self._path)
        found = [(name, size, parse_offset_name(name)) for name, size in names]
        sizes = {parsed.offset: size for _, size, parsed in found if parsed and parsed.suffix == LOG}
        for name, _, parsed in found:
            orphan = parsed and parsed.suffix in (INDEX, TIME_INDEX) and parsed.offset not in sizes
            if orphan or name.endswith((".tmp", CLEAN)):
                self._disk.remove(f"{self._path}/{name}")
        return dict(sorted(sizes.items()))

    def _interrupted_swaps(self) -> list[int]:
        """Without a state: segments whose old file has left its name, and whose new one has not got it yet."""
        names = [name for name, _ in self._disk.list_dir(self._path)]
        made = [parse_offset_name(name[: -len(CLEAN)]) for name in names if name.endswith(LOG + CLEAN)]
        return [found.offset for found in made if found and offset_name(found.offset, LOG) not in names]

    def _finish_swaps(self, bases: Sequence[int]) -> Job[None]:
        """Give segments that compaction made their names: the state speaks of them already."""
        for base in bases:
            for suffix in (LOG, INDEX, TIME_INDEX):
                path = f"{self._path}/{offset_name(base, suffix)}"
                if self._disk.exists(path + CLEAN):
                    self._disk.rename(path + CLEAN, path)
        if bases:
            must((yield self._disk.flush_dir(self._path)), f"flush directory {self._path}")

    def _load_state(self) -> Job[PartitionState | None]:
        path = f"{self._path}/{STATE_NAME}"
        if not self._disk.exists(path):
            return None
        try:
            return PartitionState.decode((yield from read_file(self._disk, path)))
        except CorruptFile as error:
            self._set_aside(STATE_NAME, str(error))
            return None

    def _move_state(self, state: PartitionState) -> Job[PartitionState]:
        """The state with its recovery point where checkpoints have moved it since."""
        self._point = newest_point((yield from self._read_points()), state)
        return state if self._point is None else with_point(state, self._point)

    def _read_points(self) -> Job[bytes]:
        path = f"{self._path}/{POINT_NAME}"
        return (yield from read_file(self._disk, path)) if self._disk.exists(path) else b""

    def _set_aside(self, name: str, why: str) -> None:
        """A file that cannot be used is renamed, never deleted."""
        aside = free_name(self._disk, self._path, name, "bad")
        self._disk.rename(f"{self._path}/{name}", f"{self._path}/{aside}")
        self._tell(f"{name} could not be used ({why}); it was renamed to {aside}")

    def _tell(self, problem: str) -> None:
        self._report.problems.append(problem)
        _logger.warning("%s: %s", self._path, problem)

    # -- after a clean stop --------------------------------------------------------------------------------

    @staticmethod
    def _is_clean(state: PartitionState, sizes: dict[int, int]) -> bool:
        """The last file is as long as the clean stop left it: an append would have made it longer first. One that
        nothing was appended to may not be there yet."""
        base_offset = state.active.base_offset
        is_last = max(sizes, default=base_offset) <= base_offset
        return state.clean and is_last and sizes.get(base_offset, 0) == state.active.position

    def _open_clean(self, state: PartitionState, sizes: dict[int, int]) -> Job[list[Segment]]:
        self._epochs = EpochHistory(state.epochs)
        sealed = list(self._sealed(state, sizes))
        active = yield from self._active_at(state.active)
        yield from self._load_producers(state, [*sealed, active])
        return [*sealed, active]

    def _sealed(self, state: PartitionState, sizes: dict[int, int]) -> Iterator[SealedSegment]:
        """The segments of the catalogue. One whose file is not as it was sealed is refused to readers."""
        for entry in state.sealed:
            segment = SealedSegment(entry)
            size = sizes.get(entry.base_offset)
            if size != entry.bytes and not entry.quarantined:
                name = offset_name(entry.base_offset, LOG)
                found = "is missing" if size is None else f"has {size} bytes"
                self._tell(f"{name} {found}, but was sealed with {entry.bytes}: it is not served")
                segment.quarantined = True
            yield segment

    def _active_at(self, point: ActivePoint) -> Job[ActiveSegment]:
        """The active segment as it was at the recovery point."""
        index = yield from self._saved_index(point)
        saved = point.indexes
        if index is None:
            self._tell(f"the indexes of {offset_name(point.base_offset, LOG)} were missing or wrong")
            index = SegmentIndex.resume(
                OffsetIndex(point.base_offset),
                TimeIndex(point.base_offset),
                point.max_timestamp,
                point.max_timestamp_offset,
            )
            saved = SavedIndexes()
        active = ActiveSegment(point.base_offset, point.created_ms, index, point.position)
        active.next_offset = point.next_offset
        active.saved = saved
        if saved.position < point.position:
            # The scan must stay short: what lacks is filled in when somebody needs it.
            active.index_gap_end = point.position
        return active

    def _saved_index(self, point: ActivePoint) -> Job[SegmentIndex | None]:
        base = f"{self._path}/{offset_name(point.base_offset, '')}"
        saved = point.indexes
        offsets = yield from self._prefix(
            base + INDEX, saved.index_entries * OFFSET_ENTRY.itemsize, saved.index_crc
        )
        times = yield from self._prefix(
            base + TIME_INDEX, saved.time_index_entries * TIME_ENTRY.itemsize, saved.time_index_crc
        )
        if offsets is None or times is None:
            return None
        return SegmentIndex.resume(
            OffsetIndex.decode(point.base_offset, offsets, point.position),
            TimeIndex.decode(point.base_offset, times),
            point.max_timestamp,
            point.max_timestamp_offset,
        )

    def _prefix(self, path: str, length: int, crc: int) -> Job[bytes | None]:
        """The first bytes of a file if they are what they were; it may have grown since."""
        if length == 0:
            return b""
        if not self._disk.exists(path):
            return None
        data = (yield from read_file(self._disk, path))[:length]
        return data if len(data) == length and crc32c(data) == crc else None

    def _load_producers(self, state: PartitionState, segments: Sequence[Segment]) -> Job[None]:
        """The producers' state at the recovery point: from its snapshot, or from all batches below the point, as far as
        segments are there."""
        if self._point is not None and self._point.producers is not None:
            self._producers = ProducerTable.decode(self._point.producers, self._point.active.next_offset)
        if not state.has_producers:
            return
        parts = [
            SegmentPart(one.base_offset, one.next_offset, one.position)
            for one in segments
            if not one.quarantined
        ]
        point = state.active
        self._producers = yield from producers_at(
            self._disk,
            self._path,
            self._files,
            parts,
            point.next_offset,
            self._now_ms,
            self._scratch,
            self._tell,
            self._rotten.__setitem__,
        )

    def _replay_producers(self, table: np.ndarray) -> None:
        replay_producers(self._producers, table, self._now_ms)

    # -- after a crash -------------------------------------------------------------------------------------

    def _open_unclean(self, state: PartitionState | None, sizes: dict[int, int]) -> Job[list[Segment]]:
        """Scan from the recovery point on; without a state, from the first byte of the first segment on."""
        segments: list[Segment] = []
        active: ActiveSegment | None = None
        if state is not None:
            self._epochs = EpochHistory(state.epochs)
            segments += self._sealed(state, sizes)
            active = yield from self._active_or_quarantined(state.active, sizes, segments)
            yield from self._load_producers(state, segments if active is None else [*segments, active])
        elif sizes:
            self._dense = not self._may_have_gaps
            self._tell("there is no usable state: scanning the log from its first byte")
        known = {segment.base_offset for segment in segments}
        start = active.base_offset if active else (segments[-1].next_offset if segments else 0)
        for base in sizes:
            if base < start and base not in known:
                self._tell(
                    f"{offset_name(base, LOG)} is in no catalogue: it was left alone and is not served"
                )
        pending = [base for base in sizes if base >= start]
        if active is not None and active.base_offset not in pending:
            pending.insert(0, active.base_offset)
        while pending:
            base = pending.pop(0)
            segment = (
                active
                if active is not None and active.base_offset == base
                else ActiveSegment(base, self._now_ms)
            )
            segments += yield from self._recover_segment(segment, sizes.get(base, 0), pending)
        if not segments or isinstance(segments[-1], SealedSegment):
            segments.append(ActiveSegment(segments[-1].next_offset if segments else 0, self._now_ms))
        return segments

    def _active_or_quarantined(
        self, point: ActivePoint, sizes: dict[int, int], segments: list[Segment]
    ) -> Job[ActiveSegment | None]:
        """The segment of the recovery point; None when it lost what was flushed, and is refused to readers."""
        size = sizes.get(point.base_offset, 0)
        if size >= point.position:
            return (yield from self._active_at(point))
        name = offset_name(point.base_offset, LOG)
        self._tell(f"{name} has {size} bytes, but {point.position} were flushed: it is not served")
        entry = SealedEntry(
            point.base_offset, point.next_offset, size, point.max_timestamp, 0, 0, quarantined=True
        )
        segments.append(SealedSegment(entry))
        return None

    def _recover_segment(self, segment: ActiveSegment, size: int, pending: list[int]) -> Job[list[Segment]]:
        """Scan a segment from where it is known to be good, and decide where it ends. `pending`: those behind it."""
        if size == 0 and not pending:
            return [segment]
        start = segment.position

        def visit(table: np.ndarray) -> None:
            replay_index(segment.index, table)
            replay_epochs(self._epochs, table)
            self._replay_producers(table)

        end = yield from self._scan(
            segment.base_offset,
            start,
            size,
            segment.next_offset,
            visit=visit,
            dense=self._dense,
            min_epoch=self._epochs.latest,
        )
        if not self._dense:
            end = self._over_the_gap(end, pending)
        next_base = pending[0] if pending else None
        self._report.scanned_bytes += end.position - start
        segment.position = segment.written_position = end.position
        segment.next_offset = end.next_offset
        held = self._files.hold(segment.base_offset, write=True)
        try:
            verdict = yield from judge_end(
                self._disk, held.file, end, size, self._reach_bytes, next_base, self._scratch
            )
            if verdict.corrupt is not None:
                return self._quarantined(segment, size, verdict)
            if verdict.torn_end > end.position:
                yield from self._save_torn(segment, held.file, verdict.torn_end)
            if self._after_disk_error or self._reach_bytes == 0:
                # Where writes are flushed later, a flush may have failed in the process before this one.
                yield from rewrite_range(self._disk, held.file, start, end.position, self._scratch)
            self._disk.truncate(held.file, end.position)
            must((yield self._disk.flush(held.file)), "flush")
        finally:
            self._files.release(held)
        if next_base is None:
            return [segment]
        segment.index.finish()
        return [(yield from self._seal(segment))]

    def _over_the_gap(self, end: ScanEnd, pending: list[int]) -> ScanEnd:
        """Where a compacted segment ends: where the next one begins. Those that it was made of are not looked at."""
        while pending and pending[0] < end.next_offset:
            self._tell(f"{offset_name(pending.pop(0), LOG)} is part of a compacted segment: it is not served")
        return end if end.fault is not None or not pending else end._replace(next_offset=pending[0])

    def _scan(
        self,
        base_offset: int,
        start: int,
        stop: int,
        expected_offset: int,
        *,
        visit: Callable[[np.ndarray], None],
        dense: bool = True,
        min_epoch: int = -1,
    ) -> Job[ScanEnd]:
        if start >= stop:
            return ScanEnd(start, expected_offset, min_epoch, None)
        held = self._files.hold(base_offset)
        try:
            return (
                yield from scan_file(
                    self._disk,
                    held.file,
                    start,
                    stop,
                    visit,
                    expected_offset=expected_offset,
                    min_epoch=min_epoch,
                    dense=dense,
                    scratch=self._scratch,
                )
            )
        finally:
            self._files.release(held)

    def _save_torn(self, segment: ActiveSegment, file: File, torn_end: int) -> Job[None]:
        """Save the bytes behind the end of the log, before they are cut."""
        stem = f"{offset_name(segment.base_offset, LOG)}.{segment.position}"
        name = free_name(self._disk, self._path, stem, "cut")
        yield from save_range(
            self._disk, file, segment.position, torn_end, f"{self._path}/{name}", self._scratch
        )
        self._disk.truncate(file, segment.position)
        self._report.cut_bytes += torn_end - segment.position
        self._tell(f"{torn_end - segment.position} bytes of an unfinished write were cut and saved as {name}")

    def _quarantined(self, segment: ActiveSegment, size: int, verdict: Verdict) -> list[Segment]:
        self._tell(f"{offset_name(segment.base_offset, LOG)}: {verdict.corrupt}: corrupt, it is not served")
        entry = SealedEntry(
            segment.base_offset, verdict.next_offset, size, segment.max_timestamp, 0, 0, quarantined=True
        )
        return [SealedSegment(entry)]

    def _seal(self, segment: ActiveSegment) -> Job[SealedSegment]:
        """A segment that was rolled before the crash and not sealed."""
        base = f"{self._path}/{offset_name(segment.base_offset, '')}"
        offsets, times = segment.index.offsets.encode(), segment.index.times.encode()
        yield from write_file(self._disk, base + INDEX, offsets)
        yield from write_file(self._disk, base + TIME_INDEX, times)
        return SealedSegment(
            SealedEntry(
                segment.base_offset,
                segment.next_offset,
                segment.position,
                segment.max_timestamp,
                crc32c(offsets),
                crc32c(times),
            )
        )
