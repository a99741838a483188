"""A partition's log as a replica sees it."""

from __future__ import annotations

from ringlog.log.partition import PartitionLog
from ringlog.replication.view import EpochEnd


class HostedLog:
    """The real log behind the words of `replication.view.ReplicaLog`."""

    __slots__ = ("_log",)

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    @property
    def start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def durable_start_offset(self) -> int:
        return self._log.durable_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.next_offset

    @property
    def readable_offset(self) -> int:
        """What is being written, too, so that followers write it at the same time."""
        return self._log.submitted_offset

    @property
    def held_offset(self) -> int:
        return self._log.held_offset

    @property
    def hole_offset(self) -> int | None:
        return self._log.hole_offset

    @property
    def last_epoch(self) -> int:
        return self._log.epochs.latest

    def epoch_below(self, offset: int) -> int:
        return self._log.epochs.latest_below(offset)

    def end_of(self, epoch: int) -> EpochEnd | None:
        found = self._log.epochs.end_of(epoch, self._log.next_offset)
        return EpochEnd(found.epoch, found.offset) if found is not None else None
