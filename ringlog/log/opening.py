"""Opening logs: what is on disk becomes a log that can be appended to; many new ones are made side by side.

To make a partition takes a handful of small files, each flushed. One after another that is what a topic with a thousand
partitions waits for; together, a disk flushes a hundred of them in the time of a few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ringlog.disk.api import Disk
from ringlog.errors import RinglogError
from ringlog.log.claims import Claims
from ringlog.log.context import ShardContext
from ringlog.log.housekeeping import Housekeeper
from ringlog.log.jobs import Job, run_together
from ringlog.log.owner import Owner
from ringlog.log.partition import PartitionLog
from ringlog.log.recovery import Recovery, RecoveryReport
from ringlog.log.scanner import Scratch
from ringlog.log.settings import LogSettings
from ringlog.model import TopicPartition


class Wanted(NamedTuple):
    """A log that is to be opened, or made."""

    name: TopicPartition
    path: str
    settings: LogSettings
    owner: Owner | None
    """What another partition of that name has left is not taken for its own. None: nobody looks whose it is."""
    was_open: bool
    """Here, before: what was written may not be what is read."""


class Opened(NamedTuple):
    """A log, who looks after it, and what was found when it was opened."""

    log: PartitionLog
    housekeeper: Housekeeper
    report: RecoveryReport


class Opener:
    """Opens the logs of one shard."""

    def __init__(
        self,
        claims: Claims,
        context: ShardContext,
        wants: Callable[[Housekeeper], None],
        sweeps: Callable[[Housekeeper], None],
    ) -> None:
        """`wants`, `sweeps`: told of housekeepers that have something to save, or to delete."""
        self._disk: Disk = context.disk
        self._claims = claims
        self._context = context
        self._wants = wants
        self._sweeps = sweeps
        self._scratch: Scratch | None = None

    @property
    def scratch(self) -> Scratch:
        """Memory for one walk at a time."""
        self._scratch = self._scratch or Scratch()
        return self._scratch

    def open(self, wanted: Sequence[Wanted], now_ms: int) -> list[Opened | OSError | RinglogError]:
        """Open logs; each, or why it could not be opened. Those whose directories are there may have to be scanned, and
        share the memory for that: one by one."""
        is_new = [not self._disk.exists(one.path) for one in wanted]
        failures = self._claims.claim({one.path: one.owner for one in wanted if one.owner is not None})
        found: dict[str, Opened | OSError | RinglogError] = dict(failures)
        rest = [(one, new) for one, new in zip(wanted, is_new, strict=True) if one.path not in failures]
        groups = [[one for one, new in rest if new], *([one] for one, new in rest if not new)]
        for group in groups:
            outcomes = run_together(self._disk, [self._opening(one, now_ms) for one in group])
            found |= {one.path: outcome for one, outcome in zip(group, outcomes, strict=True)}
        return [found[one.path] for one in wanted]

    def _opening(self, wanted: Wanted, now_ms: int) -> Job[Opened]:
        name, path, settings, _, was_open = wanted
        if not self._disk.exists(path):
            self._disk.make_dir(path)
        recovery = Recovery(
            self._disk,
            path,
            settings.reach_bytes,
            now_ms,
            self.scratch,
            after_disk_error=was_open,
            may_have_gaps=settings.compact,
            gaps_at_append=settings.gaps_at_append,
        )
        found = yield from recovery.run()
        log = PartitionLog(
            name,
            path,
            settings,
            self._context,
            found.segments,
            found.log_start_offset,
            found.epochs,
            found.producers,
        )
        housekeeper = Housekeeper(log, found.generation, self._wants, self._sweeps)
        state, gaps_at_append, has_swapped = found.state, False, False
        if state is None:
            housekeeper.has_gaps = settings.compact and log.next_offset > 0  # nobody knows any more
        else:
            housekeeper.has_gaps = state.may_skip
            housekeeper.compacted_offset = min(state.compacted_offset, log.next_offset)
            gaps_at_append, has_swapped = state.gaps_at_append, bool(state.swapping)
        is_changed = (found.reach_bytes, gaps_at_append) != (settings.reach_bytes, settings.gaps_at_append)
        if not found.report.clean or is_changed or has_swapped:
            # The next crash must not scan again what was scanned now, nor judge by another policy than appends have.
            yield from housekeeper.save_point()
        for base_offset, why in found.rotten.items():
            rotten = housekeeper.found_rotten(log.segment_of(base_offset), why)
            found.report.problems.append(str(rotten))
        housekeeper.delete_leftovers(found.leftovers)
        return Opened(log, housekeeper, found.report)
