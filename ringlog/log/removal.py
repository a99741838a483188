"""Removes a partition's directory: after a crash it is whole under its own name, or gone; never half a log.

It is renamed aside first. Once that rename is flushed the partition is gone, and its files are deleted slice by slice:
nobody reads them any more. What a crash leaves of them is swept at the next start.
"""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ringlog.disk.api import Disk
from ringlog.errors import RinglogError, check
from ringlog.limits import MIB
from ringlog.log.jobs import Dispatcher, Job, must, run_now
from ringlog.model import TopicPartition

if TYPE_CHECKING:
    from ringlog.log.housekeeping import Housekeeper
    from ringlog.log.partition import PartitionLog
    from ringlog.log.reading import Reader
    from ringlog.log.upkeep import Upkeep

_logger = logging.getLogger(__name__)

_ASIDE = re.compile(r".+\.[0-9a-f]+-delete")
_STEM_CHARS_MAX = 230
"""Of a directory's name: with what is added it must stay a name that a file system takes."""
_SLICE_BYTES = 64 * MIB
DELETED_AT_ONCE_MAX = 32
"""Given back to the file system in one go: a large file, or many small ones, would hold up the writes of everybody."""
SET_ASIDE_TOGETHER = 64
"""Partitions that are set aside in one go."""


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


class Slice:
    """What was given back to the file system since others had their turn."""

    def __init__(self) -> None:
        self._bytes = self._files = 0

    def freed(self, size: int) -> bool:
        """A file or a directory is gone; whether it is others' turn."""
        self._bytes += min(size, _SLICE_BYTES)
        self._files += 1
        is_full = self._bytes >= _SLICE_BYTES or self._files >= DELETED_AT_ONCE_MAX
        if is_full:
            self._bytes = self._files = 0
        return is_full


def delete_dir(disk: Disk, path: str, slice_: Slice | None = None) -> Job[None]:
    """Delete a directory that was set aside, with its files. Others get their turn between two slices; one that is
    given is shared with further directories."""
    check(is_deleted_dir(os.path.basename(path)), "only what was set aside is deleted")
    slice_ = slice_ or Slice()
    for name, size in disk.list_dir(path):
        yield from delete_file(disk, f"{path}/{name}", size)
        if slice_.freed(size):
            must((yield disk.flush_dir(path)), f"flush directory {path}")
    disk.remove_dir(path)
    if slice_.freed(0):
        must((yield disk.flush_dir(os.path.dirname(path))), f"flush directory of {path}")


def delete_some(disk: Disk, path: str, files: Sequence[tuple[str, int]]) -> Job[Sequence[tuple[str, int]]]:
    """Delete the first of some files in a directory, by their names and sizes, as many as make a slice. Returns those
    that are left; then those that are gone are so after a crash, too."""
    slice_ = Slice()
    for at, (name, size) in enumerate(files, 1):
        yield from delete_file(disk, f"{path}/{name}", size)
        if slice_.freed(size) and at < len(files):
            must((yield disk.flush_dir(path)), f"flush directory {path}")
            return files[at:]
    return []


def delete_file(disk: Disk, path: str, size: int) -> Job[None]:
    """Delete a file, a large one slice by slice: others get their turn in between."""
    yield from _shorten(disk, path, size)
    disk.remove(path)


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


class Leaving(NamedTuple):
    """A log that was stopped, and may be forgotten when no disk call of its is under way."""

    log: PartitionLog
    housekeeper: Housekeeper
    reader: Reader
    upkeep: Upkeep

    @property
    def quiet(self) -> bool:
        return (
            self.log.quiet
            and self.housekeeper.quiet
            and self.reader.quiet
            and not self.upkeep.is_busy_with(self.log)
        )


class Removals:
    """The removals of one shard that are under way.

    stopped → quiet, forgotten → set aside, durably: gone → deleted
    """

    def __init__(self, disk: Disk, dispatcher: Dispatcher, forget: Callable[[PartitionLog], None]) -> None:
        self._disk = disk
        self._dispatcher = dispatcher
        self._forget = forget
        self.waiting: list[tuple[Leaving, Callable[[], None]]] = []
        """Logs that are not quiet yet: let_go() is to be called after completions."""
        self._doomed: set[TopicPartition] = set()
        """Partitions that are not gone yet, also those where that failed."""
        self._aside: deque[str] = deque()
        """Directories that are to be deleted, one after another."""
        self._is_deleting = False
        self._slice = Slice()

    def begin(
        self,
        name: TopicPartition,
        path: str,
        leaving: Leaving | None,
        done: Callable[[], None],
        failed: Callable[[RinglogError | OSError], None],
    ) -> None:
        """Remove a partition; `leaving` is its log, if that was open."""
        self._doomed.add(name)

        def gone(aside: str | None) -> None:
            self._doomed.discard(name)
            done()
            self.delete(aside)

        def not_gone(error: RinglogError | OSError) -> None:
            _logger.warning("%s was not removed: %s. It is when it is opened or removed again", name, error)
            failed(error)

        def set_aside() -> None:
            self._dispatcher.spawn(set_dir_aside(self._disk, path), gone, not_gone)

        if leaving is None:
            set_aside()
        else:
            self.waiting.append((leaving, set_aside))

    def delete(self, aside: str | None) -> None:
        """Delete a directory that was set aside, if there is one, in the background."""
        if aside is None:
            return
        self._aside.append(aside)
        if not self._is_deleting:
            self._is_deleting = True
            self._dispatcher.spawn(self._delete_all(), lambda _: None, lambda _: None)

    def _delete_all(self) -> Job[None]:
        while self._aside:
            path = self._aside.popleft()
            try:
                yield from delete_dir(self._disk, path, self._slice)
            except (RinglogError, OSError) as error:
                _logger.warning(
                    "%s: files are left of it: %s. They are deleted at the next start", path, error
                )
        self._is_deleting = False

    def let_go(self, at_most: int | None = None) -> None:
        """Go on with the logs that have become quiet. `at_most`: the others' turn comes when these are set aside."""
        before, self.waiting = self.waiting, []
        for at, (leaving, then) in enumerate(before):
            if at_most == 0:
                self.waiting += before[at:]
                return
            if not leaving.quiet:
                self.waiting.append((leaving, then))
                continue
            self._forget(leaving.log)
            then()
            if at_most is not None:
                at_most -= 1

    def finish(self, name: TopicPartition, path: str) -> None:
        """Wait until nothing is left of a partition under its name: it is going to be opened anew."""
        if name not in self._doomed and all(leaving.log.name != name for leaving, _ in self.waiting):
            return
        self.let_go()  # one that is quiet already would be waited for in vain: nothing is under way for it
        while any(leaving.log.name == name for leaving, _ in self.waiting):
            self._dispatcher.deliver(None)
            self.let_go()
        while name in self._doomed and self._disk.in_flight:
            self._dispatcher.deliver(None)
        if name in self._doomed:  # it failed before
            run_now(self._disk, set_dir_aside(self._disk, path))
            self._doomed.discard(name)
