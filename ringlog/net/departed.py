"""Clients of this host whose connections have ended: has the process died, or did it only hang up?

A process closes its sockets a moment before it is dead for everyone to see, so each is looked at for a while.
"""

from __future__ import annotations

from collections.abc import Callable

WATCH_US = 2_000_000
LOOK_US = 10_000
"""Between two looks: each reads a file for every process."""


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


class Departed:
    """Sessions of clients that may have died.

    >>> departed = Departed(alive=lambda pid: pid == 1)
    >>> departed.add(session=7, pid=1, now_us=0), departed.add(session=8, pid=2, now_us=0)
    (None, None)
    >>> departed.dead(now_us=LOOK_US), departed.watching, departed.dead(now_us=WATCH_US), departed.watching
    ([8], True, [], False)
    """

    def __init__(self, alive: Callable[[int], bool] = is_alive) -> None:
        self._alive = alive
        self._watched: list[tuple[int, int, int]] = []
        self._look_us = 0

    @property
    def watching(self) -> bool:
        return bool(self._watched)

    def add(self, *, session: int, pid: int, now_us: int) -> None:
        """The connection of a session ended; the process at its other end was this one."""
        self._watched.append((session, pid, now_us + WATCH_US))

    def dead(self, now_us: int) -> list[int]:
        """Sessions whose processes are found dead. Those that live on are forgotten after a while."""
        if now_us < self._look_us:
            return []
        self._look_us = now_us + LOOK_US
        dead = [session for session, pid, _ in self._watched if not self._alive(pid)]
        self._watched = [one for one in self._watched if one[0] not in dead and one[2] > now_us]
        return dead
