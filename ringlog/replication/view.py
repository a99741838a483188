"""What the controller has decided about a partition, as its replicas are told. Pure."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class PartitionView(NamedTuple):
    """One partition at one time. Views are ordered by (leader_epoch, partition_epoch): only a later one counts."""

    partition: int
    leader: int
    """A node, or NO_LEADER."""
    leader_epoch: int
    """Grows with every election, also when the same node is elected again: one node at most writes under each."""
    partition_epoch: int
    """Grows with every change of the partition; changes are proposed against it."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    """In-sync replicas: each holds every committed record. One of them is elected, and nobody else."""
    min_insync: int = 1
    compacted: bool = False
    """Old records may go while newer ones of the same keys stay: epochs may vanish from a log's history."""
    adding: tuple[int, ...] = ()
    """Replicas that a move has begun to make."""
    unclean_epoch: int = -1
    """The last leader epoch whose leader was not in sync when it was elected: it may lack what was committed before."""

    @property
    def order(self) -> tuple[int, int]:
        return self.leader_epoch, self.partition_epoch


class EpochEnd(NamedTuple):
    """In some log, batches of `epoch` end before `offset`."""

    epoch: int
    offset: int


class ReplicaLog(Protocol):
    """What a replica must know of its log. The log itself belongs to the caller."""

    @property
    def start_offset(self) -> int: ...

    @property
    def durable_start_offset(self) -> int:
        """Where it begins even after a power loss. Never above start_offset, or cut away with the log."""

    @property
    def end_offset(self) -> int:
        """Behind the last batch received."""

    @property
    def readable_offset(self) -> int:
        """Followers may be sent what is below, also what this log may still lose: where it may have, its owner writes
        nothing before it has a new leader epoch (`Replica.renewal`)."""

    @property
    def held_offset(self) -> int:
        """All below has the durability that the topic acknowledges: flushed, unless it says otherwise."""

    @property
    def hole_offset(self) -> int | None:
        """Where the first records begin that the log should have and has not (they rotted, or a file is missing); None:
        it has all. What was deleted or compacted away is no hole."""

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch; −1 of an empty log."""

    def epoch_below(self, offset: int) -> int:
        """The leader epoch of the last batch before an offset; −1 if there is none."""

    def end_of(self, epoch: int) -> EpochEnd | None:
        """The largest epoch in the log that is not above this one, and where it ends; None below all history."""


class WholePart:
    """A log with a hole as one that ends where the hole begins: what a replica has of it for sure."""

    def __init__(self, log: ReplicaLog, hole_offset: int) -> None:
        self._log = log
        self.hole_offset = None
        self.start_offset = log.start_offset
        self.durable_start_offset = log.durable_start_offset
        self.end_offset = hole_offset
        self.readable_offset = min(log.readable_offset, hole_offset)
        self.held_offset = min(log.held_offset, hole_offset)
        self.last_epoch = log.epoch_below(hole_offset)

    def epoch_below(self, offset: int) -> int:
        return self._log.epoch_below(min(offset, self.end_offset))

    def end_of(self, epoch: int) -> EpochEnd | None:
        found = self._log.end_of(min(epoch, self.last_epoch))
        return EpochEnd(found.epoch, min(found.offset, self.end_offset)) if found is not None else None


class IsrProposal(NamedTuple):
    """A leader's wish for other in-sync replicas: taken if the partition is still at these epochs, else refused."""

    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """(node, broker epoch of the registration under which it fetched): a node that restarted since is refused."""
    renews: bool = False
    """Of any replica: its log was opened anew, or has a hole, and may lack what it held. Others are to be in sync, and
    to lead; where there is no other, it is to lead in a new epoch."""

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(node for node, _ in self.isr)
