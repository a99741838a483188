"""Checks `partition.state` against the files beside it and, fed with runs of batches, against the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ringlog.disk.api import Disk
from ringlog.errors import CorruptFile, InvariantBroken
from ringlog.log.epochs import EpochHistory, EpochStart
from ringlog.log.findings import Finding, Rule, note
from ringlog.log.names import LOG, POINT_NAME, STATE_NAME, offset_name
from ringlog.log.point import newest_point, with_point
from ringlog.log.small_files import read_small
from ringlog.log.state import PartitionState, SealedEntry


class StateFile:
    """The state of a partition, if it can be read."""

    def __init__(self, directory: str) -> None:
        self.path = f"{directory}/{STATE_NAME}"
        self.state: PartitionState | None = None

    def load(self, disk: Disk, *, has_segments: bool, was_set_aside: bool) -> Iterator[Finding]:
        """Read the file. Its absence is right only where nothing was ever appended, or after it was set aside."""
        if not disk.exists(self.path):
            if was_set_aside:
                yield note(
                    Rule.STATE, self.path, None, "only one that was set aside; the next open scans the log"
                )
            elif has_segments:
                yield Finding(
                    Rule.STATE, self.path, None, "none; the next open scans the log from its first byte"
                )
            return
        try:
            self.state = PartitionState.decode(read_small(disk, self.path))
        except CorruptFile as error:
            yield Finding(Rule.STATE, self.path, error.position, f"{error.field}: {error.reason}")
        except OSError as error:
            yield Finding(Rule.READABLE, self.path, None, str(error))

    def move(self, disk: Disk) -> None:
        """Put the recovery point where checkpoints have moved it since the state was saved, as an opening does."""
        path = f"{self.path.rpartition('/')[0]}/{POINT_NAME}"
        if self.state is not None and disk.exists(path):
            point = newest_point(read_small(disk, path), self.state)
            if point is not None:
                self.state = with_point(self.state, point)


def is_clean(state: PartitionState | None, sizes: Mapping[int, int]) -> bool:
    """Whether the log was closed and not appended to since: an append makes the last file longer first."""
    if state is None or not state.clean:
        return False
    last = max(sizes, default=state.active.base_offset)
    return last == state.active.base_offset and sizes.get(last, 0) == state.active.position


def check_state(
    directory: str, path: str, state: PartitionState, sizes: Mapping[int, int], *, compacted: bool
) -> Iterator[Finding]:
    """What the state says against itself and against the names and sizes of the segment files."""
    yield from _check_catalogue(path, state, compacted)
    for entry in state.sealed:
        yield from _check_sealed_file(directory, entry, sizes.get(entry.base_offset))
    yield from _check_active_file(directory, state, sizes)
    known = {entry.base_offset for entry in state.sealed} | {state.active.base_offset}
    for base in sizes:
        if base not in known and base < state.active.base_offset:
            found = "a segment that is not listed: it is not served"
            yield Finding(Rule.CATALOGUE, f"{directory}/{offset_name(base, LOG)}", None, found)
    first = min(known)
    if not first <= state.log_start_offset <= max(state.active.next_offset, first):
        found = f"{state.log_start_offset}, outside of [{first}, {state.active.next_offset}]"
        yield Finding(Rule.LOG_START, path, None, found)


def _check_catalogue(path: str, state: PartitionState, compacted: bool) -> Iterator[Finding]:
    bases = [entry.base_offset for entry in state.sealed] + [state.active.base_offset]
    for entry, following in zip(state.sealed, bases[1:], strict=True):
        follows = entry.next_offset <= following if compacted else entry.next_offset == following
        if not (entry.base_offset < following and entry.base_offset <= entry.next_offset and follows):
            found = f"a segment of the offsets [{entry.base_offset}, {entry.next_offset}) before {following}"
            yield Finding(Rule.CATALOGUE, path, None, found)
    point = state.active
    if (
        point.base_offset < 0
        or point.position < 0
        or (point.next_offset > point.base_offset) != (point.position > 0)
    ):
        found = (
            f"offset {point.next_offset} at byte {point.position} of the segment from {point.base_offset} on"
        )
        yield Finding(Rule.RECOVERY_POINT, path, None, found)


def _check_sealed_file(directory: str, entry: SealedEntry, size: int | None) -> Iterator[Finding]:
    path = f"{directory}/{offset_name(entry.base_offset, LOG)}"
    if entry.quarantined:
        found = (
            f"the offsets [{entry.base_offset}, {entry.next_offset}) in quarantine since corruption was seen"
        )
        yield Finding(Rule.QUARANTINE, path, None, found)
    elif size is None:
        yield Finding(
            Rule.CATALOGUE, path, None, f"no file for the offsets [{entry.base_offset}, {entry.next_offset})"
        )
    elif size != entry.bytes:
        yield Finding(Rule.SIZE, path, min(size, entry.bytes), f"{size} bytes, not {entry.bytes}")


def _check_active_file(directory: str, state: PartitionState, sizes: Mapping[int, int]) -> Iterator[Finding]:
    size, point = sizes.get(state.active.base_offset, 0), state.active
    if size < point.position:
        path = f"{directory}/{offset_name(point.base_offset, LOG)}"
        yield Finding(Rule.SIZE, path, size, f"{size} bytes where {point.position} were flushed")


class PointCheck:
    """Compares what the state says of one segment with the segment's batches up to a byte."""

    def __init__(
        self,
        path: str,
        base_offset: int,
        position: int,
        next_offset: int,
        max_timestamp: int,
        max_timestamp_offset: int | None,
    ) -> None:
        """`path`: of the segment. `max_timestamp_offset`: None where the state does not say it."""
        self._path = path
        self._position = position
        self._next_offset = next_offset
        self._max_timestamp = max_timestamp
        self._max_timestamp_offset = max_timestamp_offset
        self._found_next: int | None = base_offset if position == 0 else None
        self._highest, self._highest_offset = -1, base_offset

    def see(self, table: np.ndarray) -> None:
        """Take note of a run of batches."""
        ends = table["position"] + table["length"]
        below = int(np.searchsorted(ends, self._position, side="right"))
        if not below:
            return
        if int(ends[below - 1]) == self._position:
            self._found_next = int(table["last_offset"][below - 1]) + 1
        peak = int(table["max_timestamp"][:below].argmax())
        if int(table["max_timestamp"][peak]) > self._highest:
            self._highest = int(table["max_timestamp"][peak])
            self._highest_offset = int(table["last_offset"][peak])

    def finish(self, *, compacted: bool) -> Iterator[Finding]:
        """All batches below the point were seen, and none was broken."""
        if self._found_next is None:
            yield Finding(
                Rule.RECOVERY_POINT, self._path, self._position, "a byte inside a batch or behind the last"
            )
        elif self._found_next != self._next_offset and not (
            compacted and self._found_next < self._next_offset
        ):
            found = f"offset {self._found_next}, not {self._next_offset}"
            yield Finding(Rule.NEXT_OFFSET, self._path, self._position, found)
        if self._highest != self._max_timestamp:
            yield Finding(Rule.MAX_TIMESTAMP, self._path, None, f"{self._highest}, not {self._max_timestamp}")
        elif self._max_timestamp_offset not in (None, self._highest_offset):
            found = f"it at offset {self._highest_offset}, not {self._max_timestamp_offset}"
            yield Finding(Rule.MAX_TIMESTAMP, self._path, None, found)


class EpochCheck:
    """Compares the state's history of leader epochs with the batches below the recovery point."""

    def __init__(self, path: str, state: PartitionState) -> None:
        self._path = path
        self._state = state
        self._starts: list[EpochStart] = []

    def see(self, table: np.ndarray) -> None:
        """Take note of a run of batches."""
        below = table[table["last_offset"] < self._state.active.next_offset]
        latest = self._starts[-1].epoch if self._starts else -1
        risen = np.maximum.accumulate(np.concatenate(([latest], below["leader_epoch"])))
        for row in np.flatnonzero(np.diff(risen)).tolist():
            self._starts.append(EpochStart(int(risen[row + 1]), int(below["base_offset"][row])))

    def finish(self, first_offset: int, *, compacted: bool) -> Iterator[Finding]:
        """All batches below the point were seen, and none was broken. `first_offset`: of the first segment."""
        try:
            saved, seen = EpochHistory(self._state.epochs), EpochHistory(self._starts)
        except InvariantBroken as error:
            yield Finding(Rule.EPOCH_HISTORY, self._path, None, f"{self._state.epochs}: not so that {error}")
            return
        start = max(first_offset, self._state.log_start_offset)
        if start >= self._state.active.next_offset:
            return  # no batch is left that could tell
        saved.cut_start(start)
        seen.cut_start(start)
        if compacted:
            agree = {s.epoch for s in seen.starts} <= {s.epoch for s in saved.starts}
        else:
            agree = saved.starts == seen.starts
        if not agree:
            found = f"{_text(saved)}; the batches have {_text(seen)}"
            yield Finding(Rule.EPOCH_HISTORY, self._path, None, found)


def _text(history: EpochHistory) -> str:
    return ", ".join(f"epoch {s.epoch} from {s.offset}" for s in history.starts) or "none"
