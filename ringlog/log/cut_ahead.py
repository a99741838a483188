"""Makes the producers' state where a log is to be cut, ahead of the cut and in the background of its shard.

    asked for ──► read up to the offset, a window at a time ──► saved as a snapshot ──► the cut finds it there

That takes a read of all batches since the last snapshot, which may be far below: a cut that did it by itself would hold
up every partition of its shard for most of a second per gigabyte. It is taken of flushed batches alone, and between two
of them, so it is true whatever becomes of the log behind it: where nobody cuts in the end, it is one more, until it is
pruned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from weakref import WeakKeyDictionary

from ringlog.errors import RinglogError
from ringlog.limits import MIB
from ringlog.log.housekeeping import Housekeeper
from ringlog.log.jobs import Dispatcher, Job, replace_file
from ringlog.log.names import SNAPSHOT, offset_name
from ringlog.log.partition import LogStatus, PartitionLog
from ringlog.log.producer_replay import SegmentPart, producers_at, snapshot_offsets
from ringlog.log.reading import Reader
from ringlog.log.scanner import Scratch
from ringlog.log.segment import ActiveSegment, SealedSegment, Segment, is_growing

AT_ONCE_BYTES = 64 * MIB
"""As much a cut may read by itself: that is done in less than a tenth of a second."""

_logger = logging.getLogger(__name__)


class ProducersAhead:
    """Those of one shard: one log at a time."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._log: PartitionLog | None = None
        """Whose batches are being read."""
        self._is_cancelled = False
        self._done_at: WeakKeyDictionary[PartitionLog, int] = WeakKeyDictionary()
        """Where the state was made last; also where it cannot be, so that the cut makes it, or says why."""

    def is_made(self, housekeeper: Housekeeper, reader: Reader, offset: int, now_ms: int) -> bool:
        """Whether a cut there has no producers to read. If it has, that is begun, or goes on: to be asked again."""
        log = housekeeper.log
        if not len(log.producers) or log.status is not LogStatus.OPEN or self._done_at.get(log) == offset:
            return True
        if log.hole_offset is not None and log.hole_offset < offset:
            return True  # below it is not all that made the state
        segments = [one for one in log.segments if one.base_offset < offset]
        taken = snapshot_offsets(log.context.disk, log.path)
        since = max((one for one in taken if one <= offset), default=0)
        if sum(one.position for one in segments if one.next_offset > since) <= AT_ONCE_BYTES:
            return True
        if log.flushed_offset < offset <= log.written_offset:
            log.flush()
        if self._log is None and log.flushed_offset >= offset:
            # Not before: after a power loss it would know of batches that the log lacks.
            self._begin(housekeeper, reader, segments, offset, now_ms)
        return False

    def cancel(self, log: PartitionLog) -> None:
        """Stop what is under way on a log, as soon as the reads end that the disk has. Then its reader is quiet."""
        if self._log is log:
            self._is_cancelled = True

    def _begin(
        self, housekeeper: Housekeeper, reader: Reader, segments: Sequence[Segment], offset: int, now_ms: int
    ) -> None:
        log = housekeeper.log
        self._log, self._is_cancelled = log, False

        def done(is_saved: bool) -> None:
            self._log = None
            if is_saved:
                self._done_at[log] = offset

        def failed(error: RinglogError | OSError) -> None:
            self._log = None
            self._done_at[log] = offset
            _logger.warning("%s: the producers were not read up to %d: %s", log.name, offset, error)

        self._dispatcher.spawn(reader.during(self._make(housekeeper, segments, offset, now_ms)), done, failed)

    def _make(
        self, housekeeper: Housekeeper, segments: Sequence[Segment], offset: int, now_ms: int
    ) -> Job[bool]:
        """Save the state at an offset, if a batch begins there; False if nobody wants it any more."""
        log = housekeeper.log
        disk = log.context.disk
        is_within = False

        def within() -> None:
            nonlocal is_within
            is_within = True

        def rotten(base_offset: int, why: str) -> None:
            # Not that of the log: compaction may have put another one in its place.
            raise housekeeper.found_rotten(next(s for s in segments if s.base_offset == base_offset), why)

        with ExitStack() as leases:
            # Or compaction and retention would take them away meanwhile.
            for segment in segments:
                leases.enter_context(segment.leases)
            producers = yield from producers_at(
                disk,
                log.path,
                log.files,
                _parts(segments),
                offset,
                now_ms,
                Scratch(),
                _logger.warning,
                rotten,
                is_over=lambda: self._is_over,
                within=within,
            )
        if self._is_over:
            return False
        if is_within:
            # Who would go on from such a snapshot, in a log that was not cut in the end, would miss that batch.
            return True
        yield from replace_file(disk, f"{log.path}/{offset_name(offset, SNAPSHOT)}", producers.encode(offset))
        housekeeper.note_snapshot(offset)
        return not self._is_over

    @property
    def _is_over(self) -> bool:
        return self._is_cancelled or self._log is None or self._log.status is not LogStatus.OPEN


def _parts(segments: Sequence[Segment]) -> Iterator[SegmentPart]:
    """One by one: what each is called, and whether it grows, may change until it has its turn."""
    for one in segments:
        if not one.quarantined:
            nbytes = one.written_position if isinstance(one, ActiveSegment) else one.position
            is_clean_named = isinstance(one, SealedSegment) and one.is_clean_named
            yield SegmentPart(one.base_offset, one.next_offset, nbytes, is_clean_named, is_growing(one))
