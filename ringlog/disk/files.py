"""Whole small files over the disk interface: state that is read at start and replaced as one.

They go through the page cache: none of them is large or hot enough to be aligned by hand.
"""

from __future__ import annotations

import contextlib
import errno
import os

from ringlog.disk.api import Disk, File
from ringlog.disk.memory import aligned
from ringlog.limits import BLOCK_BYTES

TEMPORARY_SUFFIX = ".tmp"
"""What a crash in `replace_file` may leave behind; whoever opens the directory may remove it."""


def require_ok(result: int, path: str, expected: int = 0) -> None:
    """Raise OSError unless a call moved all that it should.

    >>> require_ok(4096, "/data/log", 4096)
    >>> require_ok(-errno.ENOSPC, "/data/log")
    Traceback (most recent call last):
    ...
    OSError: [Errno 28] No space left on device: '/data/log'
    """
    if result < 0:
        raise OSError(-result, os.strerror(-result), path)
    if result < expected:
        raise OSError(errno.EIO, f"short write: {result} of {expected} bytes", path)


def read_now(disk: Disk, file: File | str, position: int, nbytes: int) -> bytes:
    """Read a range and wait for it; less where the file ends. Files opened as direct may be given, too."""
    if isinstance(file, str):
        opened = disk.open(file)
        try:
            return read_now(disk, opened, position, nbytes)
        finally:
            disk.close(opened)
    # What a caller asks for may be a length that was read from somewhere: never allocate more than there is.
    end = min(position + nbytes, disk.size(file))
    if end <= position:
        return b""
    start = position - position % BLOCK_BYTES
    memory = aligned(end + -end % BLOCK_BYTES - start)
    result = disk.wait(disk.read(file, memory, start))
    require_ok(result, file.path)
    return bytes(memory[position - start : min(result, end - start)])


def read_file(disk: Disk, path: str) -> bytes:
    """The whole content of a file."""
    file = disk.open(path)
    try:
        return read_now(disk, file, 0, disk.size(file))
    finally:
        disk.close(file)


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Give a file a new content, at once and for good: after a crash at any moment it holds the old content
    or the new, and once this has returned the new. A failure raises OSError and leaves the old content, save
    one of the last step, the flush of the directory: then the file holds the new content, but not durably.
    """
    temporary = path + TEMPORARY_SUFFIX
    try:
        _write_flushed(disk, temporary, data)
        disk.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            # The first error tells more than a second one of the same disk.
            disk.remove(temporary)
        raise
    directory = os.path.dirname(path) or "."
    require_ok(disk.wait(disk.flush_dir(directory)), directory)


def _write_flushed(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, write=True, create=True)
    try:
        # An earlier crash may have left a longer one.
        disk.truncate(file, 0)
        if data:
            require_ok(disk.wait(disk.write(file, [memoryview(data)], 0, durable=False)), path, len(data))
        require_ok(disk.wait(disk.flush(file)), path)
    finally:
        disk.close(file)
