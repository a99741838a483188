"""Named shared memory: made, opened, unlinked, and swept when all who used it are dead.

Every process that has a segment open holds a shared `flock` on it, which the kernel drops when the process
dies, however it dies. A segment that nobody locks is a leftover. Process ids would not do: they are reused,
and mean something else in another container that shares /dev/shm.

`multiprocessing.shared_memory` is not used: its resource tracker unlinks segments that others still use.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import secrets

import posix_ipc

from ringlog.errors import InvalidRequest
from ringlog.ring.huge_pages import collapse

NAME_PREFIX = "/ringlog-"
SHM_DIR = "/dev/shm"
_MODE_OWNER_ONLY = 0o600
_MADV_POPULATE_WRITE = 23
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class SharedMemory:
    """One mapped segment. `memory` is the mapping; whoever holds views of it must drop them before `close()`.

    >>> with SharedMemory.create("doc", 4096) as made, SharedMemory.open(made.name) as opened:
    ...     made.memory[:2] = b"hi"
    ...     bytes(opened.memory[:2])
    b'hi'
    >>> made.unlink()
    """

    def __init__(self, name: str, fd: int) -> None:
        """Map an open and locked segment; `create` and `open` make one."""
        self.name = name
        self._fd = fd
        self.memory = mmap.mmap(fd, 0)

    @classmethod
    def create(
        cls, label: str, size_bytes: int, reserved_bytes: int | None = None, *, is_for_disk: bool = False
    ) -> SharedMemory:
        """A new zeroed segment of mode 0600, named `/ringlog-<label>-<random>`.

        Its pages are reserved now: OSError (ENOSPC) here instead of SIGBUS at some later store. All of them, or the
        first `reserved_bytes`: whoever stores beyond calls `reserve` before. `is_for_disk`: much of it is written to
        a device, which large pages make faster.
        """
        if not _LABEL.fullmatch(label) or size_bytes <= 0:
            raise InvalidRequest(
                f"label {label!r}, {size_bytes} bytes: want a short [a-z0-9._-] label and a size"
            )
        while True:
            name = f"{NAME_PREFIX}{label}-{secrets.token_hex(6)}"
            fd = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=_MODE_OWNER_ONLY, size=size_bytes).fd
            if not _lock_shared(fd):
                continue
            try:
                if is_for_disk:
                    collapse(fd, size_bytes)
                os.posix_fallocate(fd, 0, size_bytes if reserved_bytes is None else reserved_bytes)
                return cls(name, fd)
            except OSError:
                os.close(fd)
                posix_ipc.unlink_shared_memory(name)
                raise

    @classmethod
    def open(cls, name: str) -> SharedMemory:
        """An existing segment, in full. FileNotFoundError when there is none (or it was just unlinked)."""
        if not name.startswith(NAME_PREFIX):
            raise InvalidRequest(f"{name!r} is not ours: names start with {NAME_PREFIX}")
        try:
            fd = posix_ipc.SharedMemory(name).fd
        except posix_ipc.ExistentialError:
            raise FileNotFoundError(name) from None
        if not _lock_shared(fd):
            raise FileNotFoundError(name)
        return cls(name, fd)

    def close(self) -> None:
        """Unmap. BufferError while a ring handle or a memoryview still uses the memory. Idempotent."""
        if self._fd >= 0:
            self.memory.close()
            os.close(self._fd)
            self._fd = -1

    def reserve(self, position: int, nbytes: int) -> None:
        """Have pages for a part of the segment; OSError (ENOSPC) when there are none."""
        os.posix_fallocate(self._fd, position, nbytes)

    def populate(self) -> None:
        """Map every page now, so that nobody pays for page faults later: those of a mebibyte cost half of a copy of it.
        Kernels before 5.14 cannot, and fault as they go."""
        try:
            self.memory.madvise(_MADV_POPULATE_WRITE)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def unlink(self) -> None:
        """Remove the name; the memory lives on while it is mapped. No error when it is gone already."""
        try:
            posix_ipc.unlink_shared_memory(self.name)
        except posix_ipc.ExistentialError:
            return

    def __enter__(self) -> SharedMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock_shared(fd: int) -> bool:
    """Mark the segment as in use. False, with the descriptor closed, when a sweep removed it first."""
    fcntl.flock(fd, fcntl.LOCK_SH)
    if os.fstat(fd).st_nlink > 0:
        return True
    os.close(fd)
    return False


def sweep() -> list[str]:
    """Unlink every segment of ours that no living process has open; the names that went.

    Run at start. Safe beside running nodes: a segment in use is locked, and one that is being made is made
    again by its maker when a sweep was faster than its lock. Segments of other users are left alone.
    """
    swept: list[str] = []
    for entry in sorted(os.listdir(SHM_DIR)):
        name = f"/{entry}"
        if name.startswith(NAME_PREFIX) and _unlink_if_unused(name):
            swept.append(name)
    return swept


def _unlink_if_unused(name: str) -> bool:
    try:
        fd = posix_ipc.SharedMemory(name).fd
    except (posix_ipc.ExistentialError, posix_ipc.PermissionsError):
        return False
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            return False  # root could, but should not
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_nlink == 0:
            return False
        posix_ipc.unlink_shared_memory(name)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
