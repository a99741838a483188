"""Which directory belongs to which partition: claimed before a log is opened, swept when its partition was deleted.

Names are given again, and any shard may get one: so all this happens under a lock that the shards of a node share.
Otherwise one could sweep away what another has just claimed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager

from ringlog.disk.api import Disk
from ringlog.errors import RinglogError
from ringlog.log.jobs import run_now, run_together
from ringlog.log.owner import Owner, claim_dir, set_deleted_aside
from ringlog.log.removal import Removals, is_deleted_dir

Lock = Callable[[], AbstractContextManager[object]]

_logger = logging.getLogger(__name__)


class Claims:
    """The directories below one root, for one shard."""

    def __init__(self, disk: Disk, root: str, removals: Removals, lock: Lock) -> None:
        self._disk = disk
        self._root = root
        self._removals = removals
        self._lock = lock

    def claim(self, owners: Mapping[str, Owner]) -> dict[str, OSError | RinglogError]:
        """Make directories those of partitions, see `claim_dir`; what kept it from some, by their paths."""
        with self._lock():
            outcomes = run_together(
                self._disk, [claim_dir(self._disk, path, owner) for path, owner in owners.items()]
            )
        failures = {}
        for path, outcome in zip(owners, outcomes, strict=True):
            if isinstance(outcome, Exception):
                failures[path] = outcome
            else:
                self._removals.delete(outcome)
        return failures

    def sweep(self, known: Collection[str], is_deleted: Callable[[Owner], bool]) -> list[str]:
        """Remove the directories of deleted partitions, and return their names: of those whose names are not `known`,
        whose owner can be read and `is_deleted`. One that cannot be removed now is left for the next sweep."""
        swept = []
        for name in self._disk.list_dirs(self._root):
            if name in known or is_deleted_dir(name):
                continue
            path = f"{self._root}/{name}"
            try:
                with self._lock():
                    doomed = run_now(self._disk, set_deleted_aside(self._disk, path, is_deleted))
            except OSError as error:
                _logger.warning("%s is of a deleted topic, and was not removed: %s", path, error)
                continue
            if doomed is not None:
                swept.append(name)
                self._removals.delete(doomed)
        return swept
