"""Whether a node stopped in order the last time: a file that is there only between a clean stop and the next start.

A node in a cluster says so when it registers: after a crash, what it acknowledged unflushed may be gone.
"""

from __future__ import annotations

import os

CLEAN_STOP_NAME = "clean.stop"


def leave_clean(data_dir: str) -> None:
    """All is flushed, and nobody writes here any more."""
    fd = os.open(os.path.join(data_dir, CLEAN_STOP_NAME), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    _flush_dir(data_dir)


def take_clean(data_dir: str) -> bool:
    """Whether the last stop was clean. Asked once at a start: from then on, the next one has to be clean anew.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as data_dir:
    ...     leave_clean(data_dir)
    ...     take_clean(data_dir), take_clean(data_dir)
    (True, False)
    """
    try:
        os.unlink(os.path.join(data_dir, CLEAN_STOP_NAME))
    except FileNotFoundError:
        return False
    _flush_dir(data_dir)
    return True


def _flush_dir(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
