"""Checks every invariant of a partition's files and reports every breach. Only reads.

It trusts nothing that it can look up: all batches are read, all records are decoded, and what is derived from
the log (indexes, state, snapshots) is compared with the log itself. It shares the parsers with the log, but not
the code that opens it: so it can judge what recovery made of a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

import numpy as np

from ringlog.disk.api import Disk
from ringlog.limits import WRITE_BYTES_MAX
from ringlog.log.findings import Finding, Rule, Severity, note
from ringlog.log.jobs import file_size
from ringlog.log.known_files import FileKind, known_file
from ringlog.log.names import CLEAN, INDEX, LOG, SNAPSHOT, TIME_INDEX, offset_name
from ringlog.log.retiring import SEGMENT_SUFFIXES, superseded
from ringlog.log.state import PartitionState, SealedEntry
from ringlog.log.verify_index import OffsetIndexCheck, TimeIndexCheck, Vouched
from ringlog.log.verify_producers import SnapshotCheck
from ringlog.log.verify_segment import Chain, SegmentCheck, SegmentPlan
from ringlog.log.verify_state import EpochCheck, PointCheck, StateFile, check_state, is_clean

__all__ = ["Finding", "Rule", "Severity", "iter_findings", "verify_partition"]


def verify_partition(disk: Disk, path: str, *, compacted: bool = False) -> list[Finding]:
    """Everything that is wrong or worth a note in one partition's directory. Empty for a log as a stop leaves it.

    `compacted`: offsets may skip where compaction removed records; needed only where no state tells. The log must
    not be open meanwhile.

    >>> import tempfile
    >>> from ringlog.disk.plain import PlainDisk
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     verify_partition(PlainDisk(), directory)
    []
    """
    return list(iter_findings(disk, path, compacted=compacted))


def iter_findings(
    disk: Disk,
    path: str,
    *,
    compacted: bool = False,
    on_progress: Callable[[int], None] = lambda nbytes: None,
) -> Generator[Finding, None, None]:
    """As `verify_partition`, each finding as soon as it is made; `on_progress` is told of bytes of segments read."""
    return _PartitionCheck(disk, path.rstrip("/") or "/", compacted, on_progress).run()


class _Files(NamedTuple):
    """The names in the directory, sorted out."""

    sizes: dict[int, int]
    """Of segment files by base offset, ascending."""
    indexes: dict[tuple[FileKind, int], int]
    """Sizes of the two kinds of index by base offset."""
    snapshots: list[int]
    was_state_set_aside: bool


class _PartitionCheck:
    """One check of one directory."""

    def __init__(
        self, disk: Disk, directory: str, compacted: bool, on_progress: Callable[[int], None]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._compacted = compacted
        self._on_progress = on_progress
        self._files = _Files({}, {}, [], False)
        self._state: PartitionState | None = None
        self._is_clean = False
        self._clean: set[tuple[int, str]] = set()
        """Files that the state speaks of, and that still have the names that compaction gives first."""
        self._chain = Chain(None)
        self._is_whole = True
        """No batch that was flushed is missing or broken so far."""

    def run(self) -> Generator[Finding, None, None]:
        yield from self._sort_out_names()
        sizes = self._files.sizes
        state_file = StateFile(self._directory)
        yield from state_file.load(
            self._disk, has_segments=bool(sizes), was_set_aside=self._files.was_state_set_aside
        )
        self._is_clean = is_clean(state_file.state, sizes)
        if not self._is_clean:
            state_file.move(self._disk)
        state = self._state = state_file.state
        epochs = None
        if state is not None:
            self._swap(state)
            self._compacted |= state.may_skip
            for base in superseded(state, sizes):
                found = (
                    f"{sizes.pop(base)} bytes of a deleted or compacted segment; the next open removes them"
                )
                yield note(Rule.UNFINISHED, self._path(base, LOG), None, found)
            yield from check_state(self._directory, state_file.path, state, sizes, compacted=self._compacted)
            epochs = EpochCheck(state_file.path, state)
            if state.has_producers and state.active.next_offset not in self._files.snapshots:
                path = f"{self._directory}/{offset_name(state.active.next_offset, SNAPSHOT)}"
                yield Finding(Rule.SNAPSHOT, path, None, "no file, though there are producers")
            self._is_whole = all(entry.base_offset in sizes for entry in state.sealed)
        first_offset = min(sizes, default=state.active.base_offset if state else 0)
        snapshots = SnapshotCheck(
            self._disk, self._directory, self._files.snapshots, first_offset, self._compacted
        )
        for base in sizes:
            yield from self._check_segment(base, snapshots, epochs)
        if epochs is not None and self._is_whole:
            yield from epochs.finish(first_offset, compacted=self._compacted)
        yield from snapshots.finish(self._chain.next_offset)

    # -- names ---------------------------------------------------------------------------------------------

    def _swap(self, state: PartitionState) -> None:
        """Look at segments that compaction made and that have not got their names yet, as an opening would."""
        for base in state.swapping:
            for suffix in SEGMENT_SUFFIXES:
                path = f"{self._directory}/{offset_name(base, suffix)}{CLEAN}"
                if not self._disk.exists(path):
                    continue
                self._clean.add((base, suffix))
                if suffix == LOG:
                    self._files.sizes[base] = file_size(self._disk, path)
                else:
                    kind = FileKind.OFFSET_INDEX if suffix == INDEX else FileKind.TIME_INDEX
                    self._files.indexes[kind, base] = file_size(self._disk, path)

    def _path(self, base: int, suffix: str) -> str:
        """The file of a segment that an opening would use."""
        clean = CLEAN if (base, suffix) in self._clean else ""
        return f"{self._directory}/{offset_name(base, suffix)}{clean}"

    def _sort_out_names(self) -> Iterator[Finding]:
        sizes: dict[int, int] = {}
        indexes: dict[tuple[FileKind, int], int] = {}
        snapshots: list[int] = []
        was_state_set_aside = False
        for name, size in self._disk.list_dir(self._directory):
            path, known = f"{self._directory}/{name}", known_file(name)
            if known is None:
                yield Finding(Rule.KNOWN_NAME, path, None, f"a file of {size} bytes")
            elif known.is_unfinished:
                yield note(Rule.UNFINISHED, path, None, f"{size} bytes; the next open removes or swaps it")
            elif known.is_aside:
                was_state_set_aside |= known.kind is FileKind.STATE
                yield note(Rule.SET_ASIDE, path, None, f"{size} bytes of a {known.kind}")
            elif known.kind is FileKind.SEGMENT:
                sizes[known.offset] = size
            elif known.kind is FileKind.SNAPSHOT:
                snapshots.append(known.offset)
            elif known.kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
                indexes[known.kind, known.offset] = size
        self._files = _Files(dict(sorted(sizes.items())), indexes, sorted(snapshots), was_state_set_aside)
        for (kind, base), size in indexes.items():
            if base not in sizes and size:
                suffix = INDEX if kind is FileKind.OFFSET_INDEX else TIME_INDEX
                found = f"{size} bytes of an index without a segment; nothing reads them"
                yield note(Rule.ORPHAN, f"{self._directory}/{offset_name(base, suffix)}", None, found)

    # -- segments ------------------------------------------------------------------------------------------

    def _check_segment(
        self, base: int, snapshots: SnapshotCheck, epochs: EpochCheck | None
    ) -> Iterator[Finding]:
        plan, entry = self._plan(base), self._entry(base)
        yield from self._check_indexes_exist(base, entry)
        offsets, times = self._index_checks(base, entry)
        for index in (offsets, times):
            if index is not None:
                yield from self._load_index(index)
        point = self._point_check(plan, entry)

        def see(table: np.ndarray) -> None:
            for index in (offsets, times):
                if index is not None:
                    index.see(table)
            if point is not None:
                point.see(table)
            if epochs is not None:
                epochs.see(table)
            if not (self._is_whole and check.is_whole):
                snapshots.stop_comparing()
            snapshots.see(table)

        chain = Chain(base, self._chain.epoch)
        check = SegmentCheck(self._disk, plan, chain, see, compacted=self._compacted)
        try:
            yield from check.run(self._on_progress)
        except OSError as error:
            yield Finding(Rule.READABLE, plan.path, None, str(error))
            check.is_whole = False
        for index in (offsets, times):
            if index is not None:
                yield from index.finish()
        if check.is_whole:
            if point is not None:
                yield from point.finish(compacted=self._compacted)
            if times is not None and entry is not None:
                yield from times.finish_sealed()
        self._is_whole &= check.is_whole
        self._chain = check.chain
        if not check.is_whole:
            snapshots.stop_comparing()

    def _entry(self, base: int) -> SealedEntry | None:
        sealed = self._state.sealed if self._state else []
        return next((entry for entry in sealed if entry.base_offset == base), None)

    def _plan(self, base: int) -> SegmentPlan:
        sizes, state = self._files.sizes, self._state
        path = self._path(base, LOG)
        following = min((other for other in sizes if other > base), default=None)
        if state is None:
            # Nobody knows what was flushed: recovery would judge every byte by its own rule.
            return SegmentPlan(path, base, 0, WRITE_BYTES_MAX, following)
        flushed_end = sizes[base]
        if base == state.active.base_offset and not self._is_clean:
            flushed_end = min(state.active.position, sizes[base])
        elif base > state.active.base_offset:
            flushed_end = 0
        return SegmentPlan(path, base, flushed_end, state.reach_bytes, following)

    def _index_checks(
        self, base: int, entry: SealedEntry | None
    ) -> tuple[OffsetIndexCheck | None, TimeIndexCheck | None]:
        """The checks of the index files that are there and that a reader would use."""
        if entry is not None and entry.quarantined:
            return None, None
        offset_vouched, time_vouched = self._vouched(base, entry)
        offsets = times = None
        if (FileKind.OFFSET_INDEX, base) in self._files.indexes:
            path = self._path(base, INDEX)
            offsets = OffsetIndexCheck(path, base, offset_vouched)
        if (FileKind.TIME_INDEX, base) in self._files.indexes:
            path = self._path(base, TIME_INDEX)
            times = TimeIndexCheck(path, base, time_vouched)
        return offsets, times

    def _vouched(self, base: int, entry: SealedEntry | None) -> tuple[Vouched, Vouched]:
        """How much of a segment's index files must be right. The next open replaces what nothing vouches for."""
        state = self._state
        if entry is not None:
            return Vouched(crc=entry.index_crc), Vouched(crc=entry.time_index_crc)
        if state is not None and base == state.active.base_offset:
            saved = state.active.indexes
            if self._is_clean:
                return Vouched(crc=saved.index_crc), Vouched(crc=saved.time_index_crc)
            return (
                Vouched(saved.index_entries, saved.index_crc),
                Vouched(saved.time_index_entries, saved.time_index_crc),
            )
        if state is not None and base > state.active.base_offset:
            return Vouched(0), Vouched(0)
        return Vouched(), Vouched()

    def _check_indexes_exist(self, base: int, entry: SealedEntry | None) -> Iterator[Finding]:
        needs_offsets = needs_times = entry is not None and not entry.quarantined
        if self._state is not None and base == self._state.active.base_offset:
            needs_offsets = self._state.active.indexes.index_entries > 0
            needs_times = self._state.active.indexes.time_index_entries > 0
        if needs_offsets and (FileKind.OFFSET_INDEX, base) not in self._files.indexes:
            yield Finding(Rule.INDEXED, f"{self._directory}/{offset_name(base, INDEX)}", None, "no file")
        if needs_times and (FileKind.TIME_INDEX, base) not in self._files.indexes:
            yield Finding(Rule.INDEXED, f"{self._directory}/{offset_name(base, TIME_INDEX)}", None, "no file")

    def _load_index(self, index: OffsetIndexCheck | TimeIndexCheck) -> Iterator[Finding]:
        try:
            yield from index.load(self._disk)
        except OSError as error:
            yield Finding(Rule.READABLE, index.path, None, str(error))

    def _point_check(self, plan: SegmentPlan, entry: SealedEntry | None) -> PointCheck | None:
        """What the state says of a segment: of all of a sealed one, of the active one below the recovery point."""
        size, state = self._files.sizes[plan.base_offset], self._state
        if entry is not None and not entry.quarantined:
            return PointCheck(plan.path, plan.base_offset, size, entry.next_offset, entry.max_timestamp, None)
        if state is None or plan.base_offset != state.active.base_offset or size < state.active.position:
            return None
        point = state.active
        return PointCheck(
            plan.path,
            point.base_offset,
            point.position,
            point.next_offset,
            point.max_timestamp,
            point.max_timestamp_offset,
        )
