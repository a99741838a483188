"""A follower of one partition: asks for what comes next, and cuts what its leader never had. Pure.

Invariants:

- the log is cut only where a leader of the present epoch has shown, by its epochs, that the two histories part;
- it is never cut below the high watermark that this replica has seen: what is committed stays. Should a leader
  ask for that, the replica halts and says so, rather than help to lose a record. Only the election of a leader that
  was not in sync makes void what was seen before;
- of a log with a hole nothing behind the hole counts as held. Once others are in sync without it, it asks its leader
  for what the hole lacks, and when that comes it is cut there and fetches the rest again. What is cut then others have;
  it is no sooner cut, so that a leader which lacks the same takes nothing away. The leader says that nobody counts on
  this replica: by metadata alone it could have come into sync without having heard of it;
- the log begins where the leader's does, as far as it is committed and held here: what was deleted stays deleted;
- an answer counts only if it is to the question that this replica would ask now: same epoch, same offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ringlog.errors import CorruptBatch, PartitionBusy, ReplicaHalted, check
from ringlog.limits import REPLICA_MEND_BYTES
from ringlog.replication.messages import Part, Want
from ringlog.replication.view import EpochEnd, PartitionView, ReplicaLog, WholePart


class BatchSpan(NamedTuple):
    """Where a batch stands, by its own header."""

    base_offset: int
    last_offset: int
    leader_epoch: int


class Append(NamedTuple):
    """Append the batches as they are, then call `appended`."""


class Truncate(NamedTuple):
    """Remove all from this offset on."""

    offset: int


class BeginAt(NamedTuple):
    """Remove all: the leader's log begins at this offset, behind the end of ours, or has nothing of it."""

    offset: int


class Ignore(NamedTuple):
    """Nothing is to be done: the answer was late, or there is nothing new."""


Action = Append | Truncate | BeginAt | Ignore


class Follower:
    """One partition's follower, for one leader epoch."""

    def __init__(self, node: int, view: PartitionView, high_watermark: int) -> None:
        self.node = node
        self.view = view
        self.high_watermark = high_watermark
        self.leader_start_offset = 0
        """Where the leader's log begins, as far as it has said."""

    def want(self, log: ReplicaLog, bytes_max: int) -> Want:
        """What to ask the leader."""
        check(log.held_offset <= log.end_offset, "nobody holds more than there is")
        if self.is_mending(log):
            bytes_max = min(bytes_max, REPLICA_MEND_BYTES)
        hole_offset, log = log.hole_offset, self._asked_for(log)
        return Want(
            self.view.partition,
            self.view.leader_epoch,
            log.end_offset,
            log.last_epoch,
            log.held_offset if hole_offset is None else min(log.held_offset, hole_offset),
            bytes_max,
            log.durable_start_offset,
        )

    def is_mending(self, log: ReplicaLog) -> bool:
        """It asks for what its hole lacks, to learn whether the log may be cut there: what comes is not kept. Not while
        this replica is counted on: then it first leaves the in-sync ones. Nor where the leader deleted what it lacks:
        then its start moves."""
        hole_offset = log.hole_offset
        if hole_offset is None:
            return False
        return self.node not in self.view.isr and hole_offset >= self.leader_start_offset

    def _asked_for(self, log: ReplicaLog) -> ReplicaLog:
        """The log as the leader is asked to continue it: with a hole that is to be mended, its whole part."""
        if not self.is_mending(log):
            return log
        assert log.hole_offset is not None
        return WholePart(log, log.hole_offset)

    def take(self, part: Part, batches: Sequence[BatchSpan], log: ReplicaLog) -> Action:
        """What to do with an answer without an error.

        Raises CorruptBatch if the batches cannot stand behind this log, ReplicaHalted if the leader lacks what
        is committed, PartitionBusy if it is to be asked again a little later."""
        all_of_it, log = log, self._asked_for(log)
        if part.leader_epoch != self.view.leader_epoch or part.fetch_offset != log.end_offset:
            return Ignore()
        if part.diverging_epoch >= 0 or part.diverging_offset >= 0:
            theirs = EpochEnd(part.diverging_epoch, part.diverging_offset)
            return self._cut(theirs, log, part.start_offset)
        if log is not all_of_it:
            return self._mend(part, batches, log)
        if part.start_offset > log.end_offset or self._begins_within(part, batches, log):
            return BeginAt(part.start_offset)
        self._learn(part.high_watermark, part.fetch_offset)
        self.leader_start_offset = max(self.leader_start_offset, part.start_offset)
        if not batches:
            return Ignore()
        self._must_continue(batches, log)
        return Append()

    def _mend(self, part: Part, batches: Sequence[BatchSpan], log: ReplicaLog) -> Truncate | Ignore:
        """An answer to who asked for what its hole lacks; `log`: the whole part."""
        self._learn(part.high_watermark, part.fetch_offset)
        self.leader_start_offset = max(self.leader_start_offset, part.start_offset)
        if part.start_offset > log.end_offset or not batches:
            return Ignore()
        self._must_continue(batches, log)
        if not part.is_free:
            # Its leader has just had it taken into sync, and this replica has not heard of it: it is to leave first. Or
            # the leader has a hole of its own, or is of a version that does not say whether it has.
            raise PartitionBusy(f"partition id {self.view.partition} is counted on: it is not cut now")
        # As of a log that is opened anew: it is learned again as far as the log has it again. Who is not in sync serves
        # no readers, so none of them sees it go back.
        self.high_watermark = min(self.high_watermark, log.end_offset)
        return Truncate(log.end_offset)

    def appended(self, part: Part, log: ReplicaLog) -> None:
        """The batches of an answer are in the log: more of it is known to be committed."""
        self._learn(part.high_watermark, log.end_offset)

    def start_due(self, log: ReplicaLog) -> int | None:
        """Where the log should begin from now on; None: where it does."""
        offset = min(self.leader_start_offset, self.high_watermark, log.held_offset)
        return offset if offset > log.start_offset else None

    def _begins_within(self, part: Part, batches: Sequence[BatchSpan], log: ReplicaLog) -> bool:
        """Whether the leader's log begins where ours ends, inside of a batch: of that one only an empty log can take
        what is left, and all that we have was deleted there."""
        if not batches or log.start_offset == log.end_offset:
            return False
        return part.start_offset == log.end_offset > batches[0].base_offset

    def _learn(self, high_watermark: int, end_offset: int) -> None:
        """Only up to the end of a log that the leader has found to be a prefix of its own."""
        self.high_watermark = max(self.high_watermark, min(high_watermark, end_offset))

    def _cut(self, theirs: EpochEnd, log: ReplicaLog, leader_start_offset: int) -> Truncate | BeginAt:
        """Cut to where the two logs part for sure: the next fetch is compared again, an epoch further down."""
        ours = log.end_of(theirs.epoch)
        # Without one, all that we have is newer than what they have there: nothing of it is theirs.
        offset = min(theirs.offset, ours.offset if ours is not None else log.start_offset)
        offset = max(offset, log.start_offset)
        if offset >= log.end_offset and log.durable_start_offset < log.start_offset:
            raise PartitionBusy(f"partition id {self.view.partition} is empty: its leader hears that soon")
        if offset >= log.end_offset and log.last_epoch < self.view.unclean_epoch:
            # All that is left here is older than a leader that may have had nothing of it.
            self.high_watermark = min(self.high_watermark, leader_start_offset)
            return BeginAt(leader_start_offset)
        if offset >= log.end_offset:
            raise ReplicaHalted(
                f"partition id {self.view.partition}: the leader of epoch {self.view.leader_epoch} has another history "
                f"below offset {log.start_offset}, where this log begins, and all below was committed. Compare the "
                "replicas before anything is deleted"
            )
        if offset < self.high_watermark and not self.view.compacted:
            raise ReplicaHalted(
                f"partition id {self.view.partition}: the leader of epoch {self.view.leader_epoch} has another "
                f"history from offset {offset} on, and {self.high_watermark} was committed. Compare the replicas "
                "before anything is deleted"
            )
        return Truncate(offset)

    def _must_continue(self, batches: Sequence[BatchSpan], log: ReplicaLog) -> None:
        """Offsets grow, with gaps where the leader compacted its log; epochs never go back."""
        offset, epoch = log.end_offset, log.last_epoch
        if log.start_offset == offset and batches[0].base_offset < offset <= batches[0].last_offset:
            offset = batches[0].base_offset  # an empty log: the leader's begins within this batch
        for batch in batches:
            if not offset <= batch.base_offset <= batch.last_offset:
                raise CorruptBatch(
                    "base_offset",
                    0,
                    f"a batch [{batch.base_offset}, {batch.last_offset}] behind offset {offset}",
                )
            if not epoch <= batch.leader_epoch <= self.view.leader_epoch:
                raise CorruptBatch(
                    "leader_epoch",
                    12,
                    f"a batch of epoch {batch.leader_epoch} behind {epoch}, under {self.view.leader_epoch}",
                )
            offset, epoch = batch.last_offset + 1, batch.leader_epoch
