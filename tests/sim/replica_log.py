"""The log of a simulated replica: batches as values on a simulated disk, with the real epochs and producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ringlog.errors import CorruptSegment, check
from ringlog.log.batch import BatchInfo
from ringlog.log.epochs import EpochHistory
from ringlog.log.producers import ProducerTable, Repeat
from ringlog.replication.follower import BatchSpan
from ringlog.replication.view import EpochEnd
from tests.sim.disk import Journal, Rotten
from tests.support.checkers.recording import RecordId

BATCH_BYTES = 100
"""What a batch counts for in budgets and reports."""


class SimBatch(NamedTuple):
    """A batch: where it stands, and what it holds."""

    base_offset: int
    leader_epoch: int
    producer_id: int
    base_sequence: int
    records: tuple[RecordId, ...]

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.records) - 1

    @property
    def span(self) -> BatchSpan:
        return BatchSpan(self.base_offset, self.last_offset, self.leader_epoch)

    @property
    def info(self) -> BatchInfo:
        return BatchInfo(BATCH_BYTES, len(self.records), 0, self.producer_id, 0, self.base_sequence)


class LostBatch(NamedTuple):
    """What a log knows of a batch whose bytes are gone: its segment is in quarantine, or missing."""

    was: SimBatch

    @property
    def base_offset(self) -> int:
        return self.was.base_offset

    @property
    def last_offset(self) -> int:
        return self.was.last_offset

    @property
    def leader_epoch(self) -> int:
        return self.was.leader_epoch

    @property
    def info(self) -> BatchInfo:
        return self.was.info


class SimLog:
    """One replica's log. Everything in it is read from the journal when it is opened."""

    acks_before_flush = False
    """The mutant: believe the page cache."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.damaged = False
        """Something that was flushed cannot be read any more: the log ends before it now."""
        for at, item in enumerate(journal.items):
            if isinstance(item, Rotten):
                self.damaged = True
                journal.truncate(at)
                break
        self.flushed_offset = 0
        """Until the first flush nobody knows whether what was read would survive."""
        self.cuts = 0
        """How often it was cut: a flush that began before says nothing of what was appended since."""
        self._rebuild()

    def look_for_hole(self) -> None:
        """Find out where something lacks first."""
        lost = (batch.base_offset for batch in self.batches if isinstance(batch, LostBatch))
        self.hole_offset = next(lost, None)

    def _rebuild(self) -> None:
        self.look_for_hole()
        self.epochs = EpochHistory()
        self.producers = ProducerTable()
        self._end = 0
        for batch in self.batches:
            self._note(batch)

    def _note(self, batch: SimBatch | LostBatch) -> None:
        check(batch.base_offset >= self._end, "offsets grow")
        self.epochs.note(batch.leader_epoch, batch.base_offset)
        self.producers.note(batch.info, batch.base_offset, 0)
        self._end = batch.last_offset + 1

    @property
    def batches(self) -> list[SimBatch]:
        return self._journal.items

    # -- what a replica must know --------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return 0

    @property
    def durable_start_offset(self) -> int:
        return 0

    @property
    def end_offset(self) -> int:
        return self._end

    @property
    def readable_offset(self) -> int:
        return self._end  # also what is not written yet: whoever may have lost it leads in another epoch

    @property
    def held_offset(self) -> int:
        return self._end if self.acks_before_flush else self.flushed_offset

    @property
    def last_epoch(self) -> int:
        return self.epochs.latest

    def epoch_below(self, offset: int) -> int:
        return self.epochs.latest_below(offset)

    def end_of(self, epoch: int) -> EpochEnd | None:
        found = self.epochs.end_of(epoch, self._end)
        return EpochEnd(*found) if found is not None else None

    # -- what a shell does ---------------------------------------------------------------------------------------

    def append(
        self, leader_epoch: int, producer_id: int, sequence: int, records: tuple[RecordId, ...]
    ) -> Repeat:
        """As a leader: stamp and append, or find what was appended before."""
        batch = SimBatch(self._end, leader_epoch, producer_id, sequence, records)
        repeat = self.producers.judge(batch.info)
        if repeat is not None:
            return repeat
        self._journal.append(batch)
        self._note(batch)
        return Repeat(batch.base_offset, batch.last_offset)

    def append_as_they_are(self, batches: Sequence[SimBatch]) -> None:
        """As a follower."""
        for batch in batches:
            self._journal.append(batch)
            self._note(batch)

    def truncate(self, offset: int) -> None:
        """Remove the batches from an offset on."""
        kept = [batch for batch in self.batches if batch.last_offset < offset]
        self._journal.truncate(len(kept))
        self._rebuild()
        self.cuts += 1
        self.flushed_offset = min(self.flushed_offset, self._end)

    def flushed_to(self, offset: int) -> None:
        """A flush that was asked for when the log ended here is done. The log may have been cut since."""
        self.flushed_offset = max(self.flushed_offset, min(offset, self._end))

    def read(self, offset: int, limit: int, batches_max: int) -> list[SimBatch]:
        """Batches from the one that holds the offset on, all of them below the limit. Raises CorruptSegment for one
        that is lost."""
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].last_offset < offset:
                low = middle + 1
            else:
                high = middle
        found = [batch for batch in self.batches[low : low + batches_max] if batch.last_offset < limit]
        lost = next((at for at, batch in enumerate(found) if isinstance(batch, LostBatch)), len(found))
        if found and lost == 0:
            raise CorruptSegment(f"what stood at {offset} is lost")
        return found[:lost]
