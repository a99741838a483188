"""Removes a partition's directory: after a crash it is whole under its own name, or gone; never half a log.

It is renamed aside first. Once that rename is flushed the partition is gone, and its files are deleted slice by slice:
nobody reads them any more. What a crash leaves of them is swept at the next start.
"""

from __future__ import annotations

import logging
import os
import re

from ringlog.disk.api import Disk
from ringlog.errors import check
from ringlog.limits import MIB
from ringlog.log.jobs import Job, must, run_now

_logger = logging.getLogger(__name__)

_ASIDE = re.compile(r".+\.[0-9a-f]+-delete")
_STEM_CHARS_MAX = 230
"""Of a directory's name: with what is added it must stay a name that a file system takes."""
_SLICE_BYTES = 64 * MIB
_SLICE_FILES = 32
"""Given back to the file system in one go: a large file all at once would hold up the writes of everybody."""


def is_deleted_dir(name: str) -> bool:
    """Whether a directory's name says that it was set aside to be deleted.

    >>> is_deleted_dir("orders-3.0-delete"), is_deleted_dir("orders-3"), is_deleted_dir("a.0-delete-3")
    (True, False, False)
    """
    return _ASIDE.fullmatch(name) is not None


def set_dir_aside(disk: Disk, path: str) -> Job[str | None]:
    """Give a directory a name that is never opened, durably; returns that, or None when there is no directory."""
    if not disk.exists(path):
        return None
    root, name = os.path.split(path)
    number = 0
    while disk.exists(aside := f"{root}/{name[:_STEM_CHARS_MAX]}.{number:x}-delete"):
        number += 1
    disk.rename(path, aside)
    must((yield disk.flush_dir(root)), f"flush directory of {path}")
    return aside


def delete_dir(disk: Disk, path: str) -> Job[None]:
    """Delete a directory that was set aside, with its files. Others get their turn between two slices."""
    check(is_deleted_dir(os.path.basename(path)), "only what was set aside is deleted")
    freed_bytes = freed_files = 0
    for name, size in disk.list_dir(path):
        yield from _shorten(disk, f"{path}/{name}", size)
        disk.remove(f"{path}/{name}")
        freed_bytes += min(size, _SLICE_BYTES)
        freed_files += 1
        if freed_bytes >= _SLICE_BYTES or freed_files >= _SLICE_FILES:
            must((yield disk.flush_dir(path)), f"flush directory {path}")
            freed_bytes = freed_files = 0
    disk.remove_dir(path)


def _shorten(disk: Disk, path: str, size: int) -> Job[None]:
    """Truncate a large file step by step, to one slice."""
    if size <= _SLICE_BYTES:
        return
    file = disk.open(path, write=True)
    try:
        for end in range(size - _SLICE_BYTES, 0, -_SLICE_BYTES):
            disk.truncate(file, end)
            must((yield disk.flush(file)), f"flush {path}")
    finally:
        disk.close(file)


def sweep_deleted(disk: Disk, root: str) -> list[str]:
    """Delete what earlier removals left in a data directory, and return the names. To be called at start, when
    nobody waits for the disk. One that cannot be deleted is left for the next start."""
    swept = []
    for name in filter(is_deleted_dir, disk.list_dirs(root)):
        try:
            run_now(disk, delete_dir(disk, f"{root}/{name}"))
            swept.append(name)
        except OSError as error:
            _logger.warning("%s/%s could not be deleted: %s. Delete it by hand", root, name, error)
    return swept
