"""Files and names of a real file system: the part that the engines for real disks share."""

from __future__ import annotations

import errno
import logging
import os

from ringlog.disk.api import File, Space

FILE_MODE = 0o640
DIR_MODE = 0o750

_log = logging.getLogger(__name__)


class OsFile:
    """An open file descriptor."""

    __slots__ = ("_path", "fd", "is_direct")

    def __init__(self, path: str, fd: int, *, is_direct: bool) -> None:
        self._path = path
        self.fd = fd
        self.is_direct = is_direct
        """Whether the page cache is bypassed; False where the file system refused it."""

    @property
    def path(self) -> str:
        return self._path


class OsFiles:
    """The name space calls of `ringlog.disk.api.Disk`, by the system calls of their names."""

    def __init__(self) -> None:
        self._open_files: set[OsFile] = set()
        self._dirs_without_direct: set[str] = set()

    def open(self, path: str, *, write: bool = False, create: bool = False, direct: bool = False) -> OsFile:
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        if direct:
            try:
                return self._opened(path, os.open(path, flags | os.O_DIRECT, FILE_MODE), is_direct=True)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._warn_of_page_cache(path)
        return self._opened(path, os.open(path, flags, FILE_MODE), is_direct=False)

    def close(self, file: File) -> None:
        assert isinstance(file, OsFile)
        self._open_files.remove(file)
        fd, file.fd = file.fd, -1
        os.close(fd)

    def size(self, file: File) -> int:
        assert isinstance(file, OsFile)
        return os.fstat(file.fd).st_size

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def list_dir(self, path: str) -> list[tuple[str, int]]:
        with os.scandir(path) as entries:
            return sorted(
                (entry.name, entry.stat(follow_symlinks=False).st_size)
                for entry in entries
                if entry.is_file(follow_symlinks=False)
            )

    def list_dirs(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))

    def make_dir(self, path: str) -> None:
        """Make a directory and its parents, each durable at once: no file may be lost with its directory."""
        if os.path.isdir(path):
            return
        parent = parent_of(path)
        self.make_dir(parent)
        try:
            os.mkdir(path, DIR_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        fd = open_dir(parent)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def space(self, path: str) -> Space:
        found = os.statvfs(path)
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def truncate(self, file: File, size: int) -> None:
        assert isinstance(file, OsFile)
        os.ftruncate(file.fd, size)

    def _opened(self, path: str, fd: int, *, is_direct: bool) -> OsFile:
        file = OsFile(path, fd, is_direct=is_direct)
        self._open_files.add(file)
        return file

    def _close_all(self) -> None:
        for file in list(self._open_files):
            OsFiles.close(self, file)

    def _warn_of_page_cache(self, path: str) -> None:
        directory = parent_of(path)
        if directory not in self._dirs_without_direct:
            self._dirs_without_direct.add(directory)
            _log.warning(
                "the file system of %s refuses O_DIRECT: writes there go through the page cache. They are "
                "just as durable, and cost 2-4 times as much. Put the data on ext4 or XFS.",
                directory,
            )


def parent_of(path: str) -> str:
    """The directory that holds a path.

    >>> parent_of("/data/topic-0/"), parent_of("log")
    ('/data', '.')
    """
    return os.path.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")


def open_dir(path: str) -> int:
    """A descriptor of a directory, to flush it."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
