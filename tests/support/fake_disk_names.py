"""The name space of the fake disk: names are volatile until their directory was flushed.

Operations that were not flushed survive a power loss as a prefix of their order, as a journal keeps them.
Directories themselves are durable at once: a simplification, as ringlog makes them long before it writes. The rename
of one is a rename of all that is in it, at once or not at all; it may leave both names, one of them empty.
"""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass, field

from ringlog.errors import check
from tests.support.fake_disk_file import FakeInode, prefix_length


@dataclass(slots=True)
class NameChange:
    """One create, rename or remove: the entries that it sets (None: no such name), all or none of them."""

    sequence: int
    entries: dict[str, FakeInode | None]
    unflushed_dirs: set[str]


@dataclass(slots=True)
class FakeNames:
    """Paths and what they name, now and after a power loss."""

    live: dict[str, FakeInode] = field(default_factory=dict)
    durable: dict[str, FakeInode] = field(default_factory=dict)
    dirs: set[str] = field(default_factory=lambda: {"/", "."})
    changes: list[NameChange] = field(default_factory=list)
    sequence: int = 0

    def require_dir(self, path: str) -> None:
        if path not in self.dirs:
            raise _error(errno.ENOTDIR if path in self.live else errno.ENOENT, path)

    def make_dir(self, path: str) -> None:
        while path not in self.dirs:
            if path in self.live:
                raise _error(errno.EEXIST, path)
            self.dirs.add(path)
            path = parent_of(path)

    def find(self, path: str) -> FakeInode:
        if path in self.dirs:
            raise _error(errno.EISDIR, path)
        if path not in self.live:
            raise _error(errno.ENOENT, path)
        return self.live[path]

    def create(self, path: str) -> FakeInode:
        self.require_dir(parent_of(path))
        inode = FakeInode()
        self._change({path: inode})
        return inode

    def dirs_in(self, path: str) -> list[str]:
        self.require_dir(path)
        return sorted(os.path.basename(name) for name in self.dirs if parent_of(name) == path != name)

    def rename_dir(self, old: str, new: str) -> None:
        if new in self.dirs or new in self.live:
            raise _error(errno.ENOTEMPTY, new)
        self.require_dir(parent_of(new))
        check(not self.dirs_in(old), "no test renames a directory with others in it")
        self.dirs.remove(old)
        self.dirs.add(new)
        entries: dict[str, FakeInode | None] = {}
        for path, inode in list(self.live.items()):
            if parent_of(path) == old:
                entries |= {path: None, f"{new}/{os.path.basename(path)}": inode}
        self._change(entries, {parent_of(old), parent_of(new)})

    def remove_dir(self, path: str) -> None:
        self.require_dir(path)
        if self.dirs_in(path) or any(parent_of(name) == path for name in self.live):
            raise _error(errno.ENOTEMPTY, path)
        self.dirs.remove(path)

    def rename(self, old: str, new: str) -> None:
        if old in self.dirs:
            self.rename_dir(old, new)
            return
        inode = self.find(old)
        if new in self.dirs:
            raise _error(errno.EISDIR, new)
        self.require_dir(parent_of(new))
        if old != new:
            self._change({old: None, new: inode})

    def remove(self, path: str) -> None:
        self.find(path)
        self._change({path: None})

    def flush_dir(self, path: str, up_to_sequence: int) -> None:
        """A flush of a directory completed that was submitted when `sequence` was `up_to_sequence`.

        A rename across directories is durable when both are flushed. An operation takes with it the earlier
        ones on the same names, wherever else they reach: operations on one name keep their order.
        """
        settled: set[str] = set()
        kept = []
        for change in reversed(self.changes):
            if change.sequence <= up_to_sequence:
                change.unflushed_dirs.discard(path)
            if not change.unflushed_dirs or settled & change.entries.keys():
                settled |= change.entries.keys()
                change.unflushed_dirs.clear()
            else:
                kept.append(change)
        for change in self.changes:
            if not change.unflushed_dirs:
                _apply(self.durable, change)
        self.changes = kept[::-1]

    def after_power_loss(self, rng: random.Random, survival: float) -> dict[str, FakeInode]:
        """The names that a restart finds, with the inodes of this disk."""
        names = dict(self.durable)
        for change in self.changes[: prefix_length(len(self.changes), rng, survival)]:
            _apply(names, change)
        return names

    def _change(self, entries: dict[str, FakeInode | None], dirs: set[str] | None = None) -> None:
        self.sequence += 1
        change = NameChange(self.sequence, entries, dirs or {parent_of(path) for path in entries})
        self.changes.append(change)
        _apply(self.live, change)


def parent_of(path: str) -> str:
    return os.path.dirname(path) or "."


def _error(number: int, path: str) -> OSError:
    """The subclass of OSError that Python has for a number."""
    return OSError(number, os.strerror(number), path)


def _apply(names: dict[str, FakeInode], change: NameChange) -> None:
    for path, inode in change.entries.items():
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode
