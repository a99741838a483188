"""The engine without io_uring: each call is one system call, made at `submit()`, one after the other."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Sequence
from itertools import starmap

from ringlog.disk.api import Completion, File
from ringlog.disk.constants import RWF_DSYNC
from ringlog.disk.memory import gathered, require_bytes
from ringlog.disk.os_files import OsFile, OsFiles, open_dir
from ringlog.errors import check

PIECES_MAX = os.sysconf("SC_IOV_MAX")


class PlainDisk(OsFiles):
    """An engine behind `ringlog.disk.api.WatchingDisk`, for places where io_uring is forbidden."""

    name = "plain"

    def __init__(self) -> None:
        super().__init__()
        self._next_token = 1
        self._queued: dict[int, Callable[[], int]] = {}
        self._done: dict[int, int] = {}
        self._watches: dict[int, int] = {}
        self._poll = select.poll()
        self._is_down = False

    # -- data ------------------------------------------------------------------------------------------------
    def write(self, file: File, pieces: Sequence[memoryview], position: int, *, durable: bool) -> int:
        assert isinstance(file, OsFile)
        if not pieces:
            raise ValueError("a write of no pieces")
        for piece in pieces:
            require_bytes(piece)
        fd, vector = file.fd, gathered(pieces, PIECES_MAX)
        flags = RWF_DSYNC if durable else 0
        return self._queue(lambda: os.pwritev(fd, vector, position, flags))

    def read(self, file: File, into: memoryview, position: int) -> int:
        assert isinstance(file, OsFile)
        require_bytes(into, writable=True)
        fd = file.fd
        return self._queue(lambda: os.preadv(fd, [into], position))

    def flush(self, file: File) -> int:
        assert isinstance(file, OsFile)
        fd = file.fd

        def flush_now() -> int:
            os.fdatasync(fd)
            return 0

        return self._queue(flush_now)

    def flush_dir(self, path: str) -> int:
        fd = open_dir(path)

        def flush_now() -> int:
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            return 0

        return self._queue(flush_now)

    def preallocate(self, file: File, position: int, length: int) -> int:
        assert isinstance(file, OsFile)
        fd = file.fd

        def preallocate_now() -> int:
            os.posix_fallocate(fd, position, length)
            return 0

        return self._queue(preallocate_now)

    def close(self, file: File) -> None:
        self.submit()
        super().close(file)

    def submit(self) -> None:
        while self._queued:
            token, call = next(iter(self._queued.items()))
            try:
                self._done[token] = call()
            except OSError as error:
                self._done[token] = -(error.errno or errno.EIO)
            del self._queued[token]

    def completions(self, wait_s: float | None = 0.0) -> list[Completion]:
        self.submit()
        if self._watches:
            wait_ms = None if wait_s is None else wait_s * 1000
            for fd, events in self._poll.poll(0 if self._done else wait_ms):
                token = self._watches[fd]
                if events & select.POLLNVAL:
                    self.unwatch(token)
                self._done[token] = -errno.EBADF if events & select.POLLNVAL else events
        done, self._done = self._done, {}
        return list(starmap(Completion, done.items()))

    def wait(self, token: int) -> int:
        self.submit()
        check(token in self._done, f"call {token} is in flight")
        return self._done.pop(token)

    @property
    def in_flight(self) -> int:
        return len(self._queued) + len(self._done)

    def shutdown(self) -> None:
        self.submit()
        self._done.clear()
        self._watches.clear()
        self._close_all()
        self._is_down = True

    # -- doorbells -------------------------------------------------------------------------------------------
    def watch(self, fd: int) -> int:
        token = self._new_token()
        self._watches[fd] = token
        self._poll.register(fd, select.POLLIN)
        return token

    def unwatch(self, token: int) -> None:
        for fd in [fd for fd, watch in self._watches.items() if watch == token]:
            del self._watches[fd]
            self._poll.unregister(fd)

    # -- inside ----------------------------------------------------------------------------------------------
    def _new_token(self) -> int:
        check(not self._is_down, "no call after shutdown")
        token = self._next_token
        self._next_token = token + 1
        return token

    def _queue(self, call: Callable[[], int]) -> int:
        token = self._new_token()
        self._queued[token] = call
        return token
