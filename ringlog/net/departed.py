"""Clients of this host whose connections have ended: has the process died, or did it only hang up?

A process closes its sockets a moment before it is dead for everyone to see, so each is watched for a while. The kernel
tells of a death through a descriptor of the process, which a poller waits for beside everything else: nobody has to be
looked at again and again. Where there are no such descriptors, each is looked at when the counters are shown, and a
death is seen half a second later.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from dataclasses import dataclass

WATCH_US = 2_000_000


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that was killed and not buried yet does not.

    >>> import os
    >>> is_alive(os.getpid()), is_alive(2**22 + 1)
    (True, False)
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in (b"Z", b"X")


@dataclass(slots=True)
class _Watched:
    """A process, and the clients that it had."""

    sessions: list[int]
    until_us: int
    fd: int | None
    """Readable when it has died; None: there is no such descriptor, and it is looked at."""


class Departed:
    """Sessions of clients that may have died.

    >>> departed = Departed()
    >>> departed.add(session=7, pid=os.getpid(), now_us=0), departed.add(session=8, pid=2**22 + 1, now_us=0)
    (None, None)
    >>> departed.dead(now_us=0), departed.dead(now_us=WATCH_US), departed.is_watching
    ([8], [], False)
    >>> departed.close()
    """

    def __init__(self, open_process: Callable[[int], int] = os.pidfd_open) -> None:
        """`open_process`: a descriptor of a process; OSError when there is none."""
        self._open_process = open_process
        self._poller = select.epoll()
        self.fd = self._poller.fileno()
        """Readable while `dead` has somebody to name."""
        self._watched: dict[int, _Watched] = {}
        self._pids: dict[int, int] = {}
        """By the descriptors."""

    @property
    def is_watching(self) -> bool:
        return bool(self._watched)

    def add(self, *, session: int, pid: int, now_us: int) -> None:
        """The connection of a session ended; the process at its other end was this one."""
        found = self._watched.get(pid)
        if found is None:
            found = self._watched[pid] = _Watched([], 0, self._watch(pid))
        found.sessions.append(session)
        found.until_us = now_us + WATCH_US

    def dead(self, now_us: int) -> list[int]:
        """Sessions whose processes are found dead. Those that live on are forgotten after a while; those without a
        descriptor are looked at whenever this is called."""
        died = {self._pids[fd] for fd, _ in self._poller.poll(0)}
        died.update(pid for pid, one in self._watched.items() if one.fd is None and not is_alive(pid))
        sessions = [session for pid in died for session in self._forget(pid)]
        for pid in [pid for pid, one in self._watched.items() if one.until_us <= now_us]:
            self._forget(pid)
        return sessions

    def close(self) -> None:
        """Let go of all processes."""
        for pid in list(self._watched):
            self._forget(pid)
        self._poller.close()

    def _watch(self, pid: int) -> int | None:
        try:
            fd = self._open_process(pid)
        except OSError:
            return None  # it is gone altogether, or there is no descriptor for it
        self._pids[fd] = pid
        self._poller.register(fd, select.EPOLLIN)
        return fd

    def _forget(self, pid: int) -> list[int]:
        """Watch it no more; the sessions that it had."""
        one = self._watched.pop(pid)
        if one.fd is not None:
            del self._pids[one.fd]
            os.close(one.fd)
        return one.sessions
