"""Doorbells: an eventfd that wakes the sleeping reader of a ring.

A writer rings only when the reader announced, in the ring's memory, that it is about to sleep, so a busy ring
costs no system call. The announcement and the check that follows it are native (`ring_reader.hpp`); this
file is only the file descriptor. It travels to another process by inheritance (`pass_fds`) or SCM_RIGHTS.
"""

from __future__ import annotations

import os
import select


class Doorbell:
    """One eventfd: readable from the first ring until it is cleared.

    >>> with Doorbell.create() as bell:
    ...     bell.ring()
    ...     bell.ring()
    ...     bell.wait(0.0), bell.clear(), bell.wait(0.0)
    (True, True, False)
    """

    def __init__(self, fd: int) -> None:
        """Take over `fd`: it is closed by `close()`."""
        self._fd = fd

    @classmethod
    def create(cls) -> Doorbell:
        """A new doorbell, not yet rung, closed on exec unless it is passed on by name."""
        return cls(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))

    @property
    def fd(self) -> int:
        """For pollers, io_uring and `pass_fds`."""
        return self._fd

    def ring(self) -> None:
        """Make it readable. A writer's handle does this by itself; a supervisor does it for the dead."""
        os.eventfd_write(self._fd, 1)

    def clear(self) -> bool:
        """Forget all rings so far; False when there were none."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            return False
        return True

    def wait(self, timeout_s: float | None) -> bool:
        """Sleep until rung, at most `timeout_s` seconds (None: for ever). Does not clear."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        return bool(poller.poll(None if timeout_s is None else timeout_s * 1000))

    def close(self) -> None:
        """Close the descriptor. Does nothing the second time."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Doorbell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
