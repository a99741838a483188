"""Watches the free space of the disk, so that records are refused before there is none left.

    free ──────┬───────────────┬──────────────┬─────────────┬─ 0
               │ resume        │ reserve      │ floor       │
      all is   │ once full,    │ records are  │ the node's  │
      taken    │ still full    │ refused      │ own, too    │

What is kept in reserve is for the node itself: checkpoints, deletions, compaction, committed offsets and metadata.
Should others fill the disk to the floor, a preallocated file is given up for it (`node/reserve.py`).
"""

from __future__ import annotations

from ringlog.disk.api import Disk
from ringlog.errors import DiskFull
from ringlog.limits import (
    DISK_FLOOR_BYTES_MAX,
    DISK_RESERVE_BYTES_MAX,
    DISK_RESERVE_SHARE,
    MIB,
    PREALLOCATE_BYTES_MAX,
    PREALLOCATE_BYTES_MIN,
)
from ringlog.model import TopicPartition

SAMPLE_MS = 250
_INTERNAL_PREFIX = "__"
_LOOKS_PER_RESERVE = 8
"""So often it is looked at while as much is written as is kept in reserve."""
_STEPS = 512
"""Partitions that may all reserve space before the next look."""


def reserve_of(total_bytes: int) -> int:
    """How much of a disk records may not use."""
    return min(DISK_RESERVE_BYTES_MAX, total_bytes // DISK_RESERVE_SHARE)


def resume_of(reserve_bytes: int) -> int:
    """So much must be free before records are taken again."""
    return reserve_bytes + reserve_bytes // 4


def floor_of(reserve_bytes: int) -> int:
    """How much of a disk not even the node itself may use for appends: its small files are written with it."""
    return min(reserve_bytes // 4, DISK_FLOOR_BYTES_MAX)


class DiskSpace:
    """The free space below one directory, as it was last looked at, and who may use it."""

    def __init__(self, disk: Disk, root: str, step_bytes_max: int = PREALLOCATE_BYTES_MAX) -> None:
        """`step_bytes_max`: what a partition may reserve ahead while there is enough."""
        self._disk = disk
        self._root = root
        self._step_bytes_max = step_bytes_max
        self.free_bytes: int | None = None
        """None: not known yet."""
        self.reserve_bytes = 0
        self.is_full = False
        """Records are refused. Ends a good deal above where it began, so that it does not flutter."""
        self._sampled_ms = 0
        self._bytes_since = 0
        self._bytes_until_look = 0

    def tick(self, now_ms: int) -> None:
        """Look again, if it is time."""
        if abs(now_ms - self._sampled_ms) >= SAMPLE_MS:
            self._sampled_ms = now_ms
            self.look()

    def look(self) -> None:
        """Ask the file system."""
        try:
            free, total = self._disk.space(self._root)
        except FileNotFoundError:
            return  # nothing was opened there yet
        self.judge(free, total)

    def judge(self, free_bytes: int, total_bytes: int) -> None:
        """Decide by what the file system says."""
        self.free_bytes = free_bytes
        self.reserve_bytes = reserve_of(total_bytes)
        resume_bytes = resume_of(self.reserve_bytes)
        self.is_full = free_bytes < (resume_bytes if self.is_full else self.reserve_bytes)
        self._bytes_since = 0
        # However much is free: others may take all of it between two looks, and what is left then is not for records.
        self._bytes_until_look = self.reserve_bytes // _LOOKS_PER_RESERVE

    def admit(self, name: TopicPartition, nbytes: int) -> None:
        """Raise DiskFull unless a partition may grow by so much."""
        self._bytes_since += nbytes
        if self._bytes_since >= self._bytes_until_look and self.free_bytes is not None:
            self.look()  # a fast disk fills faster than the clock ticks
        if self.is_full:
            self._refuse_unless_internal(name)

    def _refuse_unless_internal(self, name: TopicPartition) -> None:
        free = self.free_bytes or 0
        if name.topic.startswith(_INTERNAL_PREFIX) and free >= floor_of(self.reserve_bytes):
            return
        raise DiskFull(
            f"{name}: the disk has {free // MIB} MiB free, and {self.reserve_bytes // MIB} are kept for the node's "
            "own work. Free space or shorten retention; retry"
        )

    def has_room_for(self, nbytes: int) -> bool:
        """Whether background work may take so much and leave the reserve alone."""
        return self.free_bytes is None or self.free_bytes - nbytes >= self.reserve_bytes

    def step_bytes_max(self) -> int:
        """How much a partition may reserve ahead of need: less as space ends, or a few would take it all."""
        if self.free_bytes is None:
            return self._step_bytes_max
        wanted = (self.free_bytes - self.reserve_bytes) // _STEPS
        return max(PREALLOCATE_BYTES_MIN, min(wanted, self._step_bytes_max))
