"""A file that keeps room on the disk for the node itself: given up when others have filled the disk, taken again later.

Records are refused long before the disk is full, but nobody can refuse what other programs write. When they have left
less than the floor, the file is emptied, and there is room for metadata, committed offsets and recovery; records are
still refused. Not while free space still shrinks: who fills the disk would take this room, too, and meet the end of it
only then. It is made again when there is room for it and for records, too. The supervisor looks after it: it is there
before any process of the node needs the room, and it is one.
"""

from __future__ import annotations

import logging
import os

from ringlog.limits import BLOCK_BYTES, RESERVE_FILE_BYTES_MAX
from ringlog.log.disk_space import floor_of, reserve_of, resume_of

RESERVE_NAME = "reserve"
CALM_LOOKS = 4
"""So many looks must find as much free space as the one before: a writer that waits for its disk has not stopped."""

_log = logging.getLogger(__name__)


def wanted_bytes(free_bytes: int, total_bytes: int, have_bytes: int) -> int:
    """How large the file should be now. Pure.

    >>> MiB, GiB = 1 << 20, 1 << 30
    >>> [wanted_bytes(free, 100 * GiB, 0) // MiB for free in (100 * GiB, 340 * MiB, 100 * MiB)]
    [32, 0, 0]
    >>> [wanted_bytes(free, 100 * GiB, 32 * MiB) // MiB for free in (100 * MiB, 8 * MiB, 7 * MiB)]
    [32, 32, 0]
    """
    reserve = reserve_of(total_bytes)
    if free_bytes < floor_of(reserve):
        return 0
    full = min(reserve // 2, RESERVE_FILE_BYTES_MAX) // BLOCK_BYTES * BLOCK_BYTES
    has_room = free_bytes - max(full - have_bytes, 0) >= resume_of(reserve)
    return full if has_room else have_bytes


class ReserveFile:
    """The reserve of one data directory."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir
        self._path = os.path.join(data_dir, RESERVE_NAME)
        self._told = ""
        self._made = False
        self._free_bytes = 0
        """At the last look."""
        self._calm_looks = CALM_LOOKS
        """Those in a row at which free space had not shrunk. At a start nobody waits."""

    def tick(self) -> None:
        """Look at the disk, and give or take room."""
        try:
            have = os.stat(self._path).st_size
        except FileNotFoundError:
            have = 0
        try:
            found = os.statvfs(self._data_dir)
            free = found.f_bavail * found.f_frsize
            self._calm_looks = self._calm_looks + 1 if free >= self._free_bytes else 0
            self._free_bytes = free
            wanted = wanted_bytes(free, found.f_blocks * found.f_frsize, have)
            if wanted < have:
                if self._calm_looks < CALM_LOOKS:
                    return
                os.truncate(self._path, wanted)
                _log.warning(
                    "the disk is full: %d bytes kept in reserve are free for the node's own work", have
                )
            elif wanted > have:
                self._take(wanted)
        except OSError as error:
            if str(error) != self._told:  # once, not four times a second
                _log.warning("%s: %s. There is no reserve for a full disk", self._path, error)
            self._told = str(error)

    def give_back(self) -> None:
        """The node did not come to run: take away a file that was not there before."""
        if self._made:
            os.unlink(self._path)

    def _take(self, nbytes: int) -> None:
        self._made |= not os.path.exists(self._path)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(file, 0, nbytes)
        except OSError:
            os.ftruncate(file, 0)  # half a reserve would be taken for a whole one
            raise
        finally:
            os.close(file)
