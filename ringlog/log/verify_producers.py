"""Checks snapshots of producers against a replay of the log, at each offset where one was taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ringlog.disk.api import Disk
from ringlog.errors import CorruptFile
from ringlog.log.findings import Finding, Rule, note
from ringlog.log.names import SNAPSHOT, offset_name
from ringlog.log.producers import KeptBatch, ProducerEntry, ProducerTable
from ringlog.log.replay import replay_producers
from ringlog.log.small_files import entries_of, read_small, read_snapshot


class SnapshotCheck:
    """Fed with the log's batches in order; compares where a snapshot was taken."""

    def __init__(
        self, disk: Disk, directory: str, offsets: Sequence[int], first_offset: int, compacted: bool
    ) -> None:
        """`offsets`: where snapshots were taken, ascending. `first_offset`: of the first segment."""
        self._disk = disk
        self._directory = directory
        self._due = list(offsets)
        self._first_offset = first_offset
        self._compacted = compacted
        self._replayed = ProducerTable()
        self._findings: list[Finding] = []
        self._can_compare = True

    def stop_comparing(self) -> None:
        """The log cannot be read any further in order: snapshots from here on are only parsed."""
        self._can_compare = False

    def see(self, table: np.ndarray) -> None:
        """Replay a run of batches, stopping where a snapshot was taken."""
        start = 0
        while self._due and self._due[0] <= int(table["last_offset"][-1]) + 1:
            stop = int(np.searchsorted(table["last_offset"], self._due[0]))
            if stop < start:
                break
            self._replay(table[start:stop])
            is_boundary = stop == len(table) or int(table["base_offset"][stop]) >= self._due[0]
            self._compare(self._due.pop(0), is_boundary or self._compacted)
            start = stop
        self._replay(table[start:])

    def _replay(self, table: np.ndarray) -> None:
        if len(table):
            replay_producers(self._replayed, table, 0)

    def _compare(self, offset: int, is_boundary: bool) -> None:
        path = f"{self._directory}/{offset_name(offset, SNAPSHOT)}"
        producers = self._read(path, offset)
        if producers is None or not self._can_compare:
            return
        if not is_boundary:
            found = f"offset {offset}, which is inside a batch"
            self._findings.append(Finding(Rule.SNAPSHOT, path, None, found))
            return
        replayed = entries_of(self._replayed)
        for entry in producers:
            self._compare_one(path, entry, replayed.get(entry.producer_id))
        absent = len(replayed.keys() - {entry.producer_id for entry in producers})
        if absent:
            found = f"{absent} producers of the log not in it: they expired, or were too many"
            self._findings.append(note(Rule.PRODUCERS, path, None, found))

    def _compare_one(self, path: str, saved: ProducerEntry, replayed: ProducerEntry | None) -> None:
        kept = [batch for batch in saved.batches if batch.base_offset >= self._first_offset]
        if not kept:
            return  # all of its batches were deleted with old segments
        what = f"producer {saved.producer_id}: "
        if replayed is None:
            if not self._compacted:
                self._add(path, what + f"a batch at offset {kept[-1].base_offset}; the log has none of its")
        elif replayed.epoch != saved.epoch:
            self._add(path, what + f"epoch {saved.epoch}; the log has {replayed.epoch}")
        elif not self._compacted and not _same(kept, replayed.batches[-len(kept) :]):
            self._add(path, what + f"{_spans(kept)}; the log has {_spans(replayed.batches[-len(kept) :])}")

    def _add(self, path: str, found: str) -> None:
        self._findings.append(Finding(Rule.PRODUCERS, path, None, found))

    def _read(self, path: str, offset: int) -> list[ProducerEntry] | None:
        try:
            next_offset, producers = read_snapshot(read_small(self._disk, path))
        except CorruptFile as error:
            self._findings.append(
                Finding(Rule.SNAPSHOT, path, error.position, f"{error.field}: {error.reason}")
            )
            return None
        except OSError as error:
            self._findings.append(Finding(Rule.READABLE, path, None, str(error)))
            return None
        if next_offset != offset:
            self._findings.append(Finding(Rule.SNAPSHOT, path, 0, f"one that was taken at {next_offset}"))
            return None
        return producers

    def finish(self, next_offset: int | None) -> Iterator[Finding]:
        """All batches were seen. `next_offset`: where the log ends, None when that is not known."""
        for offset in self._due:
            if self._can_compare and next_offset is not None and offset > next_offset:
                path = f"{self._directory}/{offset_name(offset, SNAPSHOT)}"
                found = f"one from offset {offset}, above the end of the log at {next_offset}"
                self._findings.append(Finding(Rule.SNAPSHOT, path, None, found))
                self._read(path, offset)
            else:
                self._compare(offset, is_boundary=True)
        yield from self._findings


def _same(saved: Sequence[KeptBatch], replayed: Sequence[KeptBatch]) -> bool:
    """Whether these are the same batches. Snapshots of older versions do not say when they were appended."""
    if len(saved) != len(replayed):
        return False
    return all(
        _place(a) == _place(b) and a.append_time_ms in (-1, b.append_time_ms)
        for a, b in zip(saved, replayed, strict=True)
    )


def _place(batch: KeptBatch) -> tuple[int, int, int, int]:
    return batch.base_sequence, batch.last_sequence, batch.base_offset, batch.last_offset


def _spans(batches: Sequence[KeptBatch]) -> str:
    return ", ".join(f"{b.base_sequence}..{b.last_sequence} at {b.base_offset}" for b in batches)
