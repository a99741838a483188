"""Whose directory it is: a small file that says for which partition of which cluster a directory was made.

A name can be given again: a topic is deleted and created anew while the process that served it is dead, and the
directory still has the old one's records. Ids are never given again, so they tell the two apart.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import msgspec

from ringlog.disk.api import Disk
from ringlog.errors import CorruptFile
from ringlog.log import envelope
from ringlog.log.jobs import Job, must, read_file, write_file
from ringlog.log.names import OWNER_NAME
from ringlog.log.removal import set_dir_aside

OWNER_MAGIC = b"RLO1"

_logger = logging.getLogger(__name__)


class Owner(msgspec.Struct, frozen=True, array_like=True):
    """A partition, for all times."""

    cluster_id: str
    partition: int
    """Its node-wide id."""


def read_owner(data: bytes) -> Owner:
    """The content of a `partition.owner` file; raises CorruptFile."""
    return envelope.unseal(OWNER_MAGIC, data, Owner)


def claim_dir(disk: Disk, path: str, owner: Owner) -> Job[str | None]:
    """Make a directory that of a partition, before its log is opened.

    What a deleted partition left there is set aside, and its new path returned, to be deleted. What another cluster
    left is set aside to be kept: that metadata was lost is no reason to lose data. A directory without a readable
    owner is taken over as it is.
    """
    doomed = None
    if disk.exists(path):
        found = yield from _owner_of(disk, path)
        if found == owner:
            return None
        if found is not None and found.cluster_id == owner.cluster_id:
            _logger.warning("%s holds what is left of a topic that was deleted; it is removed", path)
            doomed = yield from set_dir_aside(disk, path)
        elif found is not None:
            yield from _keep_aside(disk, path)
    if not disk.exists(path):
        disk.make_dir(path)
    # The directory's flush before the first segment makes the name durable too; without it there are no records either.
    yield from write_file(disk, f"{path}/{OWNER_NAME}", envelope.seal(OWNER_MAGIC, owner))
    return doomed


def set_deleted_aside(disk: Disk, path: str, is_deleted: Callable[[Owner], bool]) -> Job[str | None]:
    """Set a directory aside that a deleted partition has left, and return its new path; None when it is another's, or
    nobody knows whose: that metadata is missing is no reason to delete data."""
    found = yield from _owner_of(disk, path)
    if found is None or not is_deleted(found):
        return None
    _logger.warning(
        "%s is what is left of a deleted topic, or of a replica that is kept elsewhere now; it is removed",
        path,
    )
    return (yield from set_dir_aside(disk, path))


def _owner_of(disk: Disk, path: str) -> Job[Owner | None]:
    if not disk.exists(f"{path}/{OWNER_NAME}"):
        return None
    data = yield from read_file(disk, f"{path}/{OWNER_NAME}")
    try:
        return read_owner(data)
    except CorruptFile as error:
        _logger.warning("%s/%s cannot be read: %s. The directory is taken over", path, OWNER_NAME, error)
        return None


def _keep_aside(disk: Disk, path: str) -> Job[None]:
    number = 0
    while disk.exists(aside := f"{path}.{number:x}-other-cluster"):
        number += 1
    _logger.error("%s is of another cluster: it is kept as %s, and a new one is begun", path, aside)
    disk.rename(path, aside)
    must((yield disk.flush_dir(os.path.dirname(path))), f"flush directory of {path}")
