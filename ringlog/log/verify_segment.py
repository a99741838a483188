"""Checks the batches of one segment in their order, and what stands behind the last of them.

Bytes that were flushed (`flushed_end`) must be whole batches, one following the other. Behind them, in a log that
was not closed, the rule of recovery decides: the log ends at the first batch that is bad, not at the expected
offset, or of a lower epoch, and what lies within one write's reach of that end is an unfinished write.

    │ whole batches │ whole batches │ an unfinished write │ zeros │
                    ▲               ▲
               flushed_end         end
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ringlog.disk.api import Disk
from ringlog.log.findings import Finding, Rule, note
from ringlog.log.verify_records import check_records
from ringlog.log.walk import Broken, Item, Run, walk


class SegmentPlan(NamedTuple):
    """What is known of a segment before it is read."""

    path: str
    base_offset: int
    flushed_end: int
    """Everything below this byte must be good. The size of the file where the segment grows no more."""
    reach_bytes: int
    """How far beyond the flushed end one write reaches; 0 where writes may be lost in any number."""
    next_base: int | None
    """The first offset of the segment that follows; it was begun only when all of this one was flushed."""


class Chain(NamedTuple):
    """What the batches so far demand of the next one."""

    next_offset: int | None
    """None: not known, behind bytes that could not be read."""
    epoch: int = -1


class SegmentCheck:
    """One walk over one segment. `see` is shown every run of batches that belong to the log."""

    def __init__(
        self,
        disk: Disk,
        plan: SegmentPlan,
        chain: Chain,
        see: Callable[[np.ndarray], None],
        *,
        compacted: bool,
    ) -> None:
        self._disk = disk
        self._plan = plan
        self._see = see
        self._compacted = compacted
        self.chain = chain
        self.is_whole = True
        """Nothing that was flushed is broken: what is derived from the batches seen can be trusted."""
        self.end = 0
        """The byte behind the last batch of the log."""
        self._floor = chain.next_offset if chain.next_offset is not None else plan.base_offset
        self._has_ended = False
        self._end_reason = ""
        self._content_end = 0
        self._beyond: int | None = None
        """Where a whole batch begins that an unfinished write could not have reached."""
        self._zeros = 0

    def run(self, on_progress: Callable[[int], None]) -> Iterator[Finding]:
        """All that is wrong with the segment."""
        for item in walk(self._disk, self._plan.path):
            yield from self._check(item)
            on_progress(item.end - item.position)
        yield from self._check_end()

    def _check(self, item: Item) -> Iterator[Finding]:
        if isinstance(item, Run):
            yield from self._check_run(item)
        elif item.position >= self._plan.flushed_end:
            self._end_at(item.position, str(item.fault) if isinstance(item, Broken) else "")
            if isinstance(item, Broken):
                self._content_end = item.end
            else:
                self._zeros = item.end - item.position
        else:
            what = str(item.fault) if isinstance(item, Broken) else f"zeros up to byte {item.end}"
            yield Finding(Rule.WHOLE_BATCHES, self._plan.path, item.position, what)
            self.is_whole = False
            self.chain = self.chain._replace(next_offset=None)

    def _check_run(self, run: Run) -> Iterator[Finding]:
        table = run.table
        gaps, falls = self._breaks(table)
        if not self._has_ended:
            behind = np.flatnonzero((gaps | falls) & (table["position"] >= self._plan.flushed_end))
            mine = int(behind[0]) if behind.size else len(table)
            if mine:
                yield from self._check_rows(run, mine, gaps, falls)
            if mine == len(table):
                return
            row = table[mine]
            self._end_at(
                int(row["position"]),
                f"offset {int(row['base_offset'])} of leader epoch {int(row['leader_epoch'])}"
                f" where {self._expected()} was due",
            )
            table = table[mine:]
        self._note_beyond(table)

    def _breaks(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which batches do not follow the one before them in offset, and which in leader epoch."""
        unknown = self.chain.next_offset is None
        first = self._floor if self.chain.next_offset is None else self.chain.next_offset
        expected = np.concatenate(([first], table["last_offset"][:-1] + 1))
        bases = table["base_offset"]
        gaps = bases < expected if self._compacted else bases != expected
        if unknown:
            gaps[0] = bases[0] < first
        epochs = np.concatenate(([self.chain.epoch], table["leader_epoch"]))
        falls = epochs[1:] < np.maximum.accumulate(epochs)[:-1]
        return gaps, falls

    def _check_rows(self, run: Run, count: int, gaps: np.ndarray, falls: np.ndarray) -> Iterator[Finding]:
        """Batches that belong to the log."""
        table, path = run.table[:count], self._plan.path
        for row in np.flatnonzero(gaps[:count]).tolist():
            rule = Rule.SEGMENT_NAME if int(table["position"][row]) == 0 else self._offsets_rule
            due = self._expected() if row == 0 else int(table["last_offset"][row - 1]) + 1
            found = f"offset {int(table['base_offset'][row])} where {due} was due"
            yield Finding(rule, path, int(table["position"][row]), found)
        for row in np.flatnonzero(falls[:count]).tolist():
            before = max(self.chain.epoch, int(table["leader_epoch"][:row].max(initial=-1)))
            found = f"epoch {int(table['leader_epoch'][row])} after {before}"
            yield Finding(Rule.LEADER_EPOCHS, path, int(table["position"][row]), found)
        yield from check_records(path, run, count, compacted=self._compacted)
        if gaps[:count].any() or falls[:count].any():
            self.is_whole = False
        self._see(table)
        self._floor = int(table["last_offset"].max()) + 1
        epoch = max(self.chain.epoch, int(table["leader_epoch"].max()))
        self.chain = Chain(int(table["last_offset"][-1]) + 1, epoch)
        self.end = self._content_end = int(table["position"][-1]) + int(table["length"][-1])

    def _expected(self) -> int:
        return self._floor if self.chain.next_offset is None else self.chain.next_offset

    # -- behind the last batch -----------------------------------------------------------------------------

    def _end_at(self, position: int, reason: str) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._end_reason = reason
            self.end = self._content_end = position

    def _note_beyond(self, table: np.ndarray) -> None:
        """Whole batches behind the end of the log: left by an unfinished write, or proof of corruption?"""
        self._content_end = int(table["position"][-1]) + int(table["length"][-1])
        far = (table["position"] >= self.end + self._plan.reach_bytes) & (
            table["base_offset"] >= self._expected()
        )
        if self._plan.reach_bytes and self._beyond is None and far.any():
            self._beyond = int(table["position"][far.argmax()])

    def _check_end(self) -> Iterator[Finding]:
        plan, torn = self._plan, self._content_end - self.end
        if self._misses_next_segment():
            self.is_whole = False
            found = f"the end of the segment at offset {self._expected()}, and the next one from {plan.next_base} on"
            reason = f" ({self._end_reason})" if self._end_reason else ""
            yield Finding(self._offsets_rule, plan.path, self.end, found + reason)
        elif self._beyond is not None:
            self.is_whole = False
            found = (
                f"{self._end_reason}; but byte {self._beyond}, out of one write's reach, begins a whole batch"
            )
            yield Finding(Rule.END, plan.path, self.end, found)
        elif torn:
            found = f"{torn} bytes of an unfinished write ({self._end_reason}); the next open cuts them"
            yield note(Rule.END, plan.path, self.end, found)
        if self._zeros:
            yield note(Rule.PREALLOCATED, plan.path, self._content_end, f"{self._zeros} bytes of zeros")

    def _misses_next_segment(self) -> bool:
        ends_at, next_base = self.chain.next_offset, self._plan.next_base
        if next_base is None or ends_at is None:
            return False
        return ends_at > next_base if self._compacted else ends_at != next_base

    @property
    def _offsets_rule(self) -> Rule:
        return Rule.RISING_OFFSETS if self._compacted else Rule.DENSE_OFFSETS
