"""When the recovery points of a shard's logs move up, so that a crash never leaves more to scan than it may. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringlog.errors import PartitionBusy
from ringlog.limits import CHECKPOINT_BYTES, UNCHECKPOINTED_BYTES_PER_SHARD

if TYPE_CHECKING:
    from ringlog.log.housekeeping import Housekeeper
    from ringlog.model import TopicPartition


class Checkpoints:
    """Counts what was appended since points were moved last, and has the largest parts moved first."""

    def __init__(self, housekeepers: Mapping[TopicPartition, Housekeeper]) -> None:
        self._housekeepers = housekeepers
        self._appended_bytes = 0
        """Since points were last looked at."""
        self._unscanned_bytes = 0
        """What a crash would make recovery scan, when it was last added up."""
        self._room_is_known = False
        """It was added up in this cycle: only appends can have changed it since, and they are counted."""

    def begin_cycle(self) -> None:
        """Points may have moved since the last one."""
        self._room_is_known = False

    def appended(self, nbytes: int) -> None:
        """A log has taken bytes."""
        self._appended_bytes += nbytes

    def unscanned_bytes(self) -> int:
        """What a crash would make recovery scan now."""
        return sum(housekeeper.unscanned_bytes for housekeeper in self._housekeepers.values())

    @property
    def due(self) -> bool:
        return self._appended_bytes >= CHECKPOINT_BYTES

    def move(self) -> None:
        """Move recovery points until little is left to scan, the largest parts first: few hold most of it."""
        self._appended_bytes = 0
        unscanned = self._unscanned_bytes = self.unscanned_bytes()
        for housekeeper in sorted(self._housekeepers.values(), key=lambda one: -one.unscanned_bytes):
            if unscanned <= CHECKPOINT_BYTES // 4:
                break
            unscanned -= housekeeper.unscanned_bytes
            housekeeper.want_checkpoint()

    def require_room(self, nbytes: int) -> None:
        """Refuse what would make the scan after a crash longer than it may be: checkpoints must catch up first."""
        if self._unscanned_bytes + self._appended_bytes + nbytes <= UNCHECKPOINTED_BYTES_PER_SHARD:
            return
        if not self._room_is_known:
            self.move()
            self._room_is_known = True
        if self._unscanned_bytes + self._appended_bytes + nbytes > UNCHECKPOINTED_BYTES_PER_SHARD:
            raise PartitionBusy("checkpoints are behind: the disk is slow. Retry after a pause")
