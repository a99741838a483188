"""The io_uring engine: all calls of a cycle in one submission, all waiting in one place.

The only importer of the liburing package, whose traps are kept out of sight here:

- Its exceptions carry whatever errno some earlier call left behind: errno is cleared before calls that raise.
- An entry of a full queue is a null pointer, and preparing it crashes: calls are prepared in entries of our
  own and copied in; a full queue refuses the copy, is submitted, and takes it then.
- Preparing leaves fields alone that the call has no use for, and the kernel refuses a call with a stray flag:
  each kind of call has an entry to itself.
- Only `peek_cqe` and `cqe_seen` are right when the completion queue wraps.
- A wait holds the GIL, so no other Python thread runs meanwhile, and it can be given a time limit only at the
  price of an exception: a timer in the ring ends it.
- It keeps no reference to the memory that the kernel reads and writes: `self._pinned` does.
- Registered buffers cannot be made from a memoryview: there are none.
- Its import writes a file beside the package: liburing_loader.py imports it without.

A signal handler that raises (Ctrl-C) may end any of this. Python runs handlers after calls, not after stores,
so a note of what the kernel is told, or said, is a store right before the call: no call is lost, and none is
taken twice.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import select
import threading
import time
from collections.abc import Sequence
from itertools import starmap

from ringlog.disk.api import Completion, File
from ringlog.disk.constants import (
    IORING_CQE_F_MORE,
    IORING_FSYNC_DATASYNC,
    IORING_SETUP_CLAMP,
    IORING_SETUP_DEFER_TASKRUN,
    IORING_SETUP_SINGLE_ISSUER,
    IORING_SETUP_SUBMIT_ALL,
    IORING_SETUP_TASKRUN_FLAG,
    LIBURING_IOVEC_PIECES_MAX,
    RWF_DSYNC,
)
from ringlog.disk.liburing_loader import load_liburing
from ringlog.disk.memory import gathered, require_bytes
from ringlog.disk.os_files import OsFile, OsFiles, open_dir
from ringlog.errors import check
from ringlog.limits import DISK_RING_ENTRIES

load_liburing()
from liburing import (  # noqa: E402 - it must be loaded in its own way first
    io_uring,
    io_uring_cqe,
    io_uring_cqe_seen,
    io_uring_peek_cqe,
    io_uring_prep_fallocate,
    io_uring_prep_fsync,
    io_uring_prep_nop,
    io_uring_prep_poll_multishot,
    io_uring_prep_poll_remove,
    io_uring_prep_read,
    io_uring_prep_timeout,
    io_uring_prep_writev2,
    io_uring_put_sqe,
    io_uring_queue_exit,
    io_uring_queue_init,
    io_uring_sq_ready,
    io_uring_sqe,
    io_uring_submit,
    io_uring_submit_and_wait,
    iovec,
    timespec,
)

SIGNAL_SLICE_S = 0.1
"""The longest wait in one system call. A signal ends a wait at once, save one that arrives in the moment
between Python's last look and the system call: that one is seen after this time."""

REFUSED_PAUSE_S = 0.001
"""How long to wait when the kernel is out of memory for calls and none has completed."""

_SPECIAL = 1 << 62
"""User data from here on belongs to watches, timers and removals; below it to data calls. Never 0."""

_BEST_FLAGS = (
    IORING_SETUP_CLAMP
    | IORING_SETUP_SUBMIT_ALL
    | IORING_SETUP_SINGLE_ISSUER
    | IORING_SETUP_DEFER_TASKRUN
    # Without it a peek would not see that deferred completions wait to be fetched.
    | IORING_SETUP_TASKRUN_FLAG
)

_log = logging.getLogger(__name__)


class UringDisk(OsFiles):
    """An engine behind `ringlog.disk.api.WatchingDisk`. Belongs to the thread that made it."""

    name = "io_uring"

    def __init__(self, *, entries: int = DISK_RING_ENTRIES) -> None:
        super().__init__()
        self._errno = _errno_of_this_thread()
        self._ring = self._open_ring(entries)
        self._write_sqe = io_uring_sqe()
        self._read_sqe = io_uring_sqe()
        self._flush_sqe = io_uring_sqe()
        self._preallocate_sqe = io_uring_sqe()
        self._watch_sqe = io_uring_sqe()
        self._unwatch_sqe = io_uring_sqe()
        self._timer_sqe = io_uring_sqe()
        self._cqe = io_uring_cqe()
        self._next_token = 1
        self._next_special = _SPECIAL
        self._pinned: dict[int, object] = {}
        """Data calls that were queued and not returned, with the memory that the kernel may touch."""
        self._done: dict[int, int] = {}
        """Results that were not returned yet, of data calls and watches."""
        self._dir_fds: dict[int, int] = {}
        self._watches: dict[int, int] = {}
        self._timers: dict[int, float] = {}
        """Armed timers and when they fire, in monotonic seconds: at most a slice after they were armed."""
        self._spans: dict[int, timespec] = {}
        """What the kernel reads when it is given a timer."""
        self._ended_watches: list[int] = []
        self._is_queued = False
        """The ring may have calls that the kernel was not told of."""
        self._owner = threading.get_ident()
        self._prove()

    # -- data ------------------------------------------------------------------------------------------------
    def write(self, file: File, pieces: Sequence[memoryview], position: int, *, durable: bool) -> int:
        assert isinstance(file, OsFile)
        for piece in pieces:
            # The other faults of a piece are found by iovec; this one it would take for contiguous bytes.
            if not piece.contiguous:
                require_bytes(piece)
        if len(pieces) > LIBURING_IOVEC_PIECES_MAX:
            pieces = gathered(pieces, LIBURING_IOVEC_PIECES_MAX)
        # From one view it is made in half the time that it takes from a list of one.
        vector = iovec(pieces[0] if len(pieces) == 1 else pieces)
        if not vector:
            raise ValueError("an empty write")
        flags = RWF_DSYNC if durable else 0
        io_uring_prep_writev2(self._write_sqe, file.fd, vector, len(pieces), position, flags)
        return self._queue(self._write_sqe, vector)

    def read(self, file: File, into: memoryview, position: int) -> int:
        assert isinstance(file, OsFile)
        require_bytes(into, writable=True)
        io_uring_prep_read(self._read_sqe, file.fd, into, into.nbytes, position)
        return self._queue(self._read_sqe, into)

    def flush(self, file: File) -> int:
        assert isinstance(file, OsFile)
        io_uring_prep_fsync(self._flush_sqe, file.fd, IORING_FSYNC_DATASYNC)
        return self._queue(self._flush_sqe, None)

    def flush_dir(self, path: str) -> int:
        fd = open_dir(path)
        io_uring_prep_fsync(self._flush_sqe, fd, 0)
        token = self._queue(self._flush_sqe, None)
        self._dir_fds[token] = fd
        return token

    def preallocate(self, file: File, position: int, length: int) -> int:
        assert isinstance(file, OsFile)
        io_uring_prep_fallocate(self._preallocate_sqe, file.fd, length, position, 0)
        return self._queue(self._preallocate_sqe, None)

    def close(self, file: File) -> None:
        # A queued call names its file by number, and the next open may get the same one.
        self.submit()
        super().close(file)

    def submit(self) -> None:
        if not self._is_queued:
            return
        while io_uring_sq_ready(self._ring):
            self._errno.value = 0
            try:
                io_uring_submit(self._ring)
            except OSError as error:
                self._after_refusal(error)
        self._is_queued = False

    def completions(self, wait_s: float | None = 0.0) -> list[Completion]:
        if wait_s == 0.0 or self._done or not (self._pinned or self._watches):
            self.submit()
            self._reap()
            return self._take_done()
        until = None if wait_s is None else time.monotonic() + wait_s
        while True:
            self._wait(until)
            self._reap()
            if self._done or (until is not None and time.monotonic() >= until):
                return self._take_done()

    def wait(self, token: int) -> int:
        check(token in self._pinned, f"call {token} is in flight")
        if token in self._done:
            self.submit()
        while token not in self._done:
            self._wait(None)
            self._reap()
        if self._dir_fds:
            self._close_dir(token)
        del self._pinned[token]
        return self._done.pop(token)

    @property
    def in_flight(self) -> int:
        return len(self._pinned)

    def shutdown(self) -> None:
        if isinstance(self._ring, _ShutDown):
            return
        for token in list(self._watches):
            self.unwatch(token)
        while self._pinned:
            self.completions(None)
        io_uring_queue_exit(self._ring)
        self._ring = _ShutDown()
        self._close_all()

    # -- doorbells -------------------------------------------------------------------------------------------
    def watch(self, fd: int) -> int:
        token = self._new_special()
        self._watches[token] = fd
        self._arm_watch(token)
        return token

    def unwatch(self, token: int) -> None:
        self._done.pop(token, None)
        if self._watches.pop(token, None) is None:
            return
        io_uring_prep_poll_remove(self._unwatch_sqe, token)
        self._put_special(self._unwatch_sqe, self._new_special())
        # At once: the caller may close the descriptor now, and its number come back as another file's.
        self.submit()

    # -- the submission side ---------------------------------------------------------------------------------
    def _queue(self, sqe: io_uring_sqe, memory: object) -> int:
        """Give the prepared call a token and a place in the queue."""
        token = self._next_token
        self._next_token = token + 1
        sqe.user_data = token
        self._is_queued = True
        self._pinned[token] = memory
        while not io_uring_put_sqe(self._ring, sqe):
            self.submit()
        return token

    def _put_special(self, sqe: io_uring_sqe, token: int) -> None:
        sqe.user_data = token
        self._is_queued = True
        while not io_uring_put_sqe(self._ring, sqe):
            self.submit()

    def _new_special(self) -> int:
        token = self._next_special
        self._next_special = token + 1
        return token

    def _arm_watch(self, token: int) -> None:
        io_uring_prep_poll_multishot(self._watch_sqe, self._watches[token], select.POLLIN)
        self._put_special(self._watch_sqe, token)

    def _renew_watch(self, token: int) -> None:
        """The kernel has ended a watch: on an error, or as its completion queue overflowed."""
        if self._done.get(token, 0) < 0:
            del self._watches[token]
        elif token in self._watches:
            self._arm_watch(token)

    # -- the completion side ---------------------------------------------------------------------------------
    def _wait(self, until: float | None) -> None:
        """Submit, and sleep until something completes or a signal arrives, for a slice or up to `until`."""
        # A timer that fires earlier will do, as the caller comes back: so most waits find one that is armed.
        if not self._timers or (until is not None and min(self._timers.values()) > until):
            self._arm_timer(until)
        self._errno.value = 0
        try:
            io_uring_submit_and_wait(self._ring, 1)
        except OSError as error:
            self._after_refusal(error)

    def _arm_timer(self, until: float | None) -> None:
        now = time.monotonic()
        at = now + SIGNAL_SLICE_S if until is None else min(until, now + SIGNAL_SLICE_S)
        token = self._new_special()
        span = timespec(max(at - now, 1e-6))
        io_uring_prep_timeout(self._timer_sqe, span, 0, 0)
        self._timers[token], self._spans[token] = at, span
        self._put_special(self._timer_sqe, token)

    def _reap(self) -> None:
        """Move what has completed from the ring to `_done`, without waiting."""
        ring, cqe, done = self._ring, self._cqe, self._done
        while io_uring_peek_cqe(ring, cqe) == 0:
            token = cqe.user_data
            if token < _SPECIAL:
                done[token] = cqe.res
            elif token in self._watches:
                done[token] = cqe.res
                if not cqe.flags & IORING_CQE_F_MORE:
                    self._ended_watches.append(token)
            elif token in self._timers:
                del self._timers[token], self._spans[token]
            io_uring_cqe_seen(ring, cqe)

    def _take_done(self) -> list[Completion]:
        if not self._done:
            return []
        # Not where they are reaped: that may happen while another watch stands prepared and waits for room.
        while self._ended_watches:
            self._renew_watch(self._ended_watches.pop())
        pinned = self._pinned
        for token in self._done:
            pinned.pop(token, None)
        if self._dir_fds:
            for token in self._done:
                self._close_dir(token)
        done, self._done = self._done, {}
        return list(starmap(Completion, done.items()))

    def _close_dir(self, token: int) -> None:
        fd = self._dir_fds.pop(token, None)
        if fd is not None:
            os.close(fd)

    def _after_refusal(self, error: OSError) -> None:
        """The kernel took nothing, or not all. What it did not take is still queued."""
        # Looked at only now: a ring of the best kind takes nothing from another thread.
        check(threading.get_ident() == self._owner, "a disk is used only by the thread that made it")
        if error.errno in (errno.EAGAIN, errno.EBUSY):
            # Too much is in flight for its memory or its completion queue: make room.
            done = len(self._done)
            self._reap()
            if len(self._done) == done:
                time.sleep(REFUSED_PAUSE_S)
        elif error.errno != errno.EINTR:
            raise error

    # -- birth -----------------------------------------------------------------------------------------------
    def _open_ring(self, entries: int) -> io_uring:
        """A ring of the best kind that this kernel has. One that failed to open is not used again: it does
        not know that it failed."""
        self._errno.value = 0
        ring = io_uring()
        try:
            io_uring_queue_init(entries, ring, _BEST_FLAGS)
            return ring
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        self._errno.value = 0
        ring = io_uring()
        io_uring_queue_init(entries, ring, IORING_SETUP_CLAMP)
        _log.warning(
            "this kernel (%s) has no DEFER_TASKRUN: completions interrupt the shard whenever they like, "
            "which costs latency under load. Linux 6.1 has it.",
            os.uname().release,
        )
        return ring

    def _prove(self) -> None:
        """One call through the ring: a filter may allow making a ring and forbid using it."""
        nop = io_uring_sqe()
        io_uring_prep_nop(nop)
        try:
            check(self.wait(self._queue(nop, None)) == 0, "an empty call goes through the ring")
        except BaseException:
            io_uring_queue_exit(self._ring)
            raise


class _ShutDown:
    """Stands where the ring was: liburing refuses its type, but would crash on a ring that was exited."""


def _errno_of_this_thread() -> ctypes.c_int:
    """The C variable itself. ctypes.set_errno will not do: it sets a copy that only ctypes looks at."""
    location = ctypes.CDLL(None).__errno_location
    location.restype = ctypes.c_void_p
    return ctypes.c_int.from_address(location())
