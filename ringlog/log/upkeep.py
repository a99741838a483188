"""Compaction of a shard's logs, one at a time, in slices and within a budget of bytes per second.

A slice is begun between two cycles of the shard and takes a fraction of a millisecond of its time, so appends hardly
notice; the disk works on it while the shard does other things.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from ringlog.errors import RinglogError
from ringlog.limits import COMPACTION_BYTES_PER_S, COMPACTION_MAP_BYTES, MIB
from ringlog.log.compaction import PACED_WINDOW_BYTES, WINDOW_BYTES, Compaction
from ringlog.log.compaction_plan import CompactionPlan, plan_compaction
from ringlog.log.housekeeping import Housekeeper
from ringlog.log.jobs import Dispatcher
from ringlog.log.partition import LogStatus, PartitionLog
from ringlog.log.scanner import Scratch
from ringlog.records.compaction import OffsetMap

_CHECK_MS = 5_000
_PAUSE_MS_MIN = 2 * _CHECK_MS
"""Longer than until the next look: another log has its turn before one that failed is tried again."""
_PAUSE_MS_MAX = 300_000
_BURST_BYTES = 1 * MIB
"""What may be moved at once after a pause."""

_logger = logging.getLogger(__name__)


class Budget:
    """Bytes that may be moved by now. Pure.

    >>> budget = Budget(bytes_per_s=1_000_000)
    >>> budget.refill(0); budget.spend(_BURST_BYTES + 500_000); budget.left, budget.wait_ms
    (-500000, 500)
    >>> budget.refill(600); budget.left
    100000
    """

    def __init__(self, bytes_per_s: int | None) -> None:
        self.bytes_per_s = bytes_per_s
        """None: as fast as it goes."""
        self.left = _BURST_BYTES
        self._refilled_ms: int | None = None

    def refill(self, now_ms: int) -> None:
        """Time has passed."""
        if self.bytes_per_s is None:
            self.left = _BURST_BYTES
        elif self._refilled_ms is not None:
            passed_ms = min(max(now_ms - self._refilled_ms, 0), 60_000)
            self.left = min(self.left + passed_ms * self.bytes_per_s // 1000, _BURST_BYTES)
        self._refilled_ms = now_ms

    def spend(self, nbytes: int) -> None:
        """So much was moved."""
        self.left -= nbytes

    @property
    def wait_ms(self) -> int:
        """Until something is left again."""
        if self.left > 0 or self.bytes_per_s is None:
            return 0
        return max(1, -self.left * 1000 // self.bytes_per_s)


class Pause:
    """Keeps a log that fails from being tried all the time: twice as long after each time. Pure.

    >>> pause = Pause()
    >>> pause.begin(now_ms=0); pause.is_over(9_999), pause.is_over(10_000)
    (False, True)
    >>> pause.begin(now_ms=10_000); pause.is_over(29_999), pause.is_over(30_000)
    (False, True)
    """

    def __init__(self) -> None:
        self._begun_ms = 0
        self._ms = 0

    def begin(self, now_ms: int) -> None:
        """A pass came to nothing."""
        self._begun_ms = now_ms
        self._ms = min(max(2 * self._ms, _PAUSE_MS_MIN), _PAUSE_MS_MAX)

    def is_over(self, now_ms: int) -> bool:
        return abs(now_ms - self._begun_ms) >= self._ms


class Upkeep:
    """The compactions of one shard."""

    def __init__(self, dispatcher: Dispatcher, bytes_per_s: int | None = COMPACTION_BYTES_PER_S) -> None:
        self._dispatcher = dispatcher
        self.budget = Budget(bytes_per_s)
        self._current: Compaction | None = None
        self._scratch: Scratch | None = None
        self._is_running = False
        """A slice is under way."""
        self._is_cancelled = False
        self._checked_ms: int | None = None
        self._pauses: WeakKeyDictionary[PartitionLog, Pause] = WeakKeyDictionary()
        """Of the logs whose last pass failed, or ended early."""
        self._now_ms = 0
        self.passes = 0
        """Compactions that came to their end."""

    @property
    def is_idle(self) -> bool:
        return self._current is None

    def is_busy_with(self, log: PartitionLog) -> bool:
        """A disk call for this log is under way."""
        return self._is_running and self._current is not None and self._current.log is log

    @property
    def due_ms(self) -> int | None:
        """When tick() has something to do, though nothing happens; None: nothing waits."""
        if self._current is None or self._is_running or self._current.is_done:
            return None
        return self._now_ms + self.budget.wait_ms

    def tick(self, now_ms: int, housekeepers: Iterable[Housekeeper]) -> None:
        """Begin a slice, or a compaction, if it is time."""
        self._now_ms = now_ms
        self.budget.refill(now_ms)
        current = self._current
        if current is None:
            if self._checked_ms is None or abs(now_ms - self._checked_ms) >= _CHECK_MS:
                self._checked_ms = now_ms
                self._begin(now_ms, housekeepers)
        elif self._is_running:
            return
        elif current.log.status is not LogStatus.OPEN:
            self._end(current)
        elif current.is_settled:
            self.passes += 1
            self._end(current)
        elif not current.is_done and self.budget.left > 0:
            self._run_slice(current)

    def check_now(self) -> None:
        """Look for work at the next tick()."""
        self._checked_ms = None

    def cancel(self, log: PartitionLog) -> None:
        """Stop what is under way on a log: at once, or when the slice that is running ends."""
        if self._current is not None and self._current.log is log:
            if self._is_running:
                self._is_cancelled = True
            else:
                self._end(self._current)

    def _begin(self, now_ms: int, housekeepers: Iterable[Housekeeper]) -> None:
        """Begin with the log that has the largest share of bytes to look at."""
        best: tuple[CompactionPlan, Housekeeper] | None = None
        for housekeeper in housekeepers:
            log = housekeeper.log
            if not log.settings.compact or log.status is not LogStatus.OPEN:
                continue
            if log in self._pauses and not self._pauses[log].is_over(now_ms):
                continue
            if housekeeper.is_swapping:
                continue  # a pass that failed or was cancelled has made segments that are still to get their names
            plan = plan_compaction(
                [segment for segment in log.segments if segment.next_offset <= log.readable_offset],
                log.log_start_offset,
                housekeeper.compacted_offset,
                log.settings,
                now_ms,
            )
            if plan is not None and (best is None or plan.dirty_ratio > best[0].dirty_ratio):
                best = plan, housekeeper
        if best is None:
            self._scratch = None
            return
        self._scratch = self._scratch or Scratch()
        keys = OffsetMap(COMPACTION_MAP_BYTES, secrets.token_bytes(16))
        window_bytes = WINDOW_BYTES if self.budget.bytes_per_s is None else PACED_WINDOW_BYTES
        self._current = Compaction(best[1], best[0], keys, self._scratch, now_ms, window_bytes)
        self._run_slice(self._current)

    def _run_slice(self, current: Compaction) -> None:
        before = current.bytes_moved
        self._is_running = True

        def done(_: None) -> None:
            self._is_running = False
            self.budget.spend(current.bytes_moved - before)
            if self._is_cancelled:
                self._end(current)

        def failed(error: RinglogError | OSError) -> None:
            _logger.warning("%s: it was not compacted: %s", current.log.name, error)
            self._is_running = False
            self._end(current)

        self._dispatcher.spawn(current.step(), done, failed)

    def _end(self, current: Compaction) -> None:
        current.cancel()
        self._current = None
        self._is_cancelled = False
        if current.came_through:
            self._pauses.pop(current.log, None)
        else:
            self._pauses.setdefault(current.log, Pause()).begin(self._now_ms)
        # There may be more to do, but not at once: appends come first.
        self._checked_ms = self._now_ms
