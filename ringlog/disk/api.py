"""The disk interface: all that a log may ask of a file system, and nothing else.

Namespace calls (open, rename, …) are immediate. Data calls (write, read, flush, preallocate) are queued,
go to the device together at `submit()`, and come back through `completions()` in any order.

A rule that every engine keeps: memory handed to `write` or `read` belongs to the engine until its
completion has been returned. A result is the number of bytes moved, or a negative errno; an engine never
retries and never hides a short write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Completion(NamedTuple):
    """What became of one queued call."""

    token: int
    result: int
    """Bytes moved (0 for flush and preallocate), or a negative errno."""


class Space(NamedTuple):
    """Room on a file system."""

    free_bytes: int
    """For a program without special rights."""
    total_bytes: int


class File(Protocol):
    """An open file. Opaque to everyone but the engine that opened it."""

    @property
    def path(self) -> str: ...


@runtime_checkable
class Disk(Protocol):
    """One file system, used by one thread."""

    name: str
    """For people: `io_uring`, `plain`, `fake`."""

    # -- the name space: immediate; durable only after flush_dir of the parent -------------------------
    def open(self, path: str, *, write: bool = False, create: bool = False, direct: bool = False) -> File:
        """Open a file. `direct` bypasses the page cache: positions, lengths and memory must then be
        multiples of BLOCK_BYTES. `create` makes the file if it is missing; without it a missing file raises
        FileNotFoundError. All other failures raise OSError."""
        ...

    def close(self, file: File) -> None: ...
    def size(self, file: File) -> int: ...
    def exists(self, path: str) -> bool: ...
    def list_dir(self, path: str) -> list[tuple[str, int]]:
        """Names and sizes of the plain files in a directory, sorted by name."""
        ...

    def list_dirs(self, path: str) -> list[str]:
        """Names of the directories in a directory, sorted."""
        ...

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents, each durable at once; no error when it exists."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file or a directory another name. Files that are open stay so."""
        ...

    def remove(self, path: str) -> None: ...
    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def space(self, path: str) -> Space:
        """The room on the file system that holds a path."""
        ...

    def truncate(self, file: File, size: int) -> None:
        """Set the length of a file. Durable after the next flush of the file."""
        ...

    # -- data: queued, then submitted together -----------------------------------------------------------
    def write(self, file: File, pieces: Sequence[memoryview], position: int, *, durable: bool) -> int:
        """Queue one gathered write. When it completes in full it is `written`; with `durable`, `flushed`."""
        ...

    def read(self, file: File, into: memoryview, position: int) -> int:
        """Queue one read. A result shorter than `into` means that the file ends there."""
        ...

    def flush(self, file: File) -> int:
        """Queue a data flush: all writes that completed before it are `flushed` when it completes."""
        ...

    def flush_dir(self, path: str) -> int:
        """Queue a flush of a directory: names made, changed or removed before it survive power loss."""
        ...

    def preallocate(self, file: File, position: int, length: int) -> int:
        """Queue the reservation of zeroed space; the file grows to cover it."""
        ...

    def submit(self) -> None:
        """Hand all queued calls to the device in one go."""
        ...

    def completions(self, wait_s: float | None = 0.0) -> list[Completion]:
        """What has completed. Waits for at least one up to `wait_s` seconds (None: for ever) when
        calls are in flight; returns at once when none are. Calls that were queued and not submitted are
        submitted first."""
        ...

    def wait(self, token: int) -> int:
        """Submit, wait for one call and return its result. Other completions are kept for `completions()`."""
        ...

    @property
    def in_flight(self) -> int:
        """Calls queued or submitted whose completion was not returned yet."""
        ...

    def shutdown(self) -> None:
        """Wait for what is in flight and release everything. The disk is unusable afterwards."""
        ...


@runtime_checkable
class WatchingDisk(Disk, Protocol):
    """A disk that is also the one place where its owner waits: for completions, and for doorbells."""

    def watch(self, fd: int) -> int:
        """Return a Completion(token, events) from `completions` each time that `fd` becomes readable, until
        `unwatch`. Whoever gets one reads the descriptor empty before waiting again: several rings of a
        doorbell may come as one. A negative result is an error, and the end of the watch. Watches are not
        counted in `in_flight`."""
        ...

    def unwatch(self, token: int) -> None:
        """End a watch. Nothing with its token is returned from now on, and the descriptor may be closed."""
        ...
