"""C3: no shared memory, socket, process or temporary file is left behind.

A node under test is started with a mark in its environment, which all its processes inherit: so they are found even
when their parents are dead, and the nodes of other tests that run beside it are not taken for its own. What its
processes hold is noted while they live, since a name in /dev/shm does not say whose it was.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Iterator

import psutil

from ringlog.ring.shm import NAME_PREFIX, SHM_DIR
from tests.support.checkers.violations import Rule, Violation

MARK_VARIABLE = "RINGLOG_TEST_MARK"

EXEC_S = 5.0
"""How long a process may take to load its program. The kernel shows its new environment only at the end of that."""


class LeakWatch:
    """Knows what a marked group of processes holds, and says what is left when it should be gone.

    >>> watch = LeakWatch("/nonexistent")
    >>> watch.leaks()
    []
    """

    def __init__(self, data_dir: str) -> None:
        self.data_dir = data_dir
        self.mark = secrets.token_hex(8)
        self.shared_memory: set[str] = set()
        """Paths below /dev/shm that a process of the node was seen to use."""
        self.socket_files: set[str] = set()

    def environment(self) -> dict[str, str]:
        """For the processes that are watched."""
        return {MARK_VARIABLE: self.mark}

    def processes(self) -> list[psutil.Process]:
        """Those that carry the mark and live; a zombie does not."""
        return [process for process in psutil.process_iter() if self.is_marked(process.pid)]

    def is_marked(self, pid: int) -> bool:
        """Whether this process, or one that started it, was given the environment above."""
        return f"{MARK_VARIABLE}={self.mark}".encode() in _environment(pid)

    def observe(self) -> None:
        """Note what the processes hold now. Call it while they run: after a start, and after each fault."""
        for process in self.processes():
            self.shared_memory |= _mapped_shared_memory(process.pid)
            self.socket_files |= _bound_paths(process.pid)

    def held_shared_memory(self) -> set[str]:
        """What the living processes have mapped now, and has a name still."""
        return {path for process in self.processes() for path in _mapped_shared_memory(process.pid)}

    def leaks(self, within_s: float = 0.0) -> list[Violation]:
        """What is left of a node that was stopped. Waits up to `within_s` for it to go."""
        until = time.monotonic() + within_s
        while (found := list(self._left())) and time.monotonic() < until:
            time.sleep(0.02)
        return found

    def _left(self) -> Iterator[Violation]:
        for process in self.processes():
            yield Violation(Rule.PROCESS, self.data_dir, f"{process.pid}: {_command(process.pid)}")
        for path in sorted(self.shared_memory):
            if os.path.exists(path):
                yield Violation(Rule.SHARED_MEMORY, self.data_dir, f"{path} of {os.stat(path).st_size} bytes")
        for path in sorted(self.socket_files):
            if os.path.exists(path):
                yield Violation(Rule.SOCKET, self.data_dir, path)
        for directory, _, names in os.walk(self.data_dir):
            for path in (os.path.join(directory, name) for name in sorted(names)):
                if path.endswith(".tmp"):
                    yield Violation(Rule.TEMP_FILE, self.data_dir, path)
                elif path not in self.socket_files and _is_socket(path):
                    yield Violation(Rule.SOCKET, self.data_dir, path)


def _read(path: str) -> bytes:
    """A file of /proc; empty for a process that is gone."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _environment(pid: int) -> list[bytes]:
    """What a process was started with. One in the middle of its exec shows none for a moment, and is asked again."""
    until = time.monotonic() + EXEC_S
    while True:
        is_in_exec = _is_in_exec(pid)  # asked first: once that is over, what is read is all there is
        found = _read(f"/proc/{pid}/environ")
        if found or not is_in_exec or time.monotonic() >= until:
            return found.split(b"\0")
        time.sleep(0.001)


def _is_in_exec(pid: int) -> bool:
    """It has a program, which neither a zombie nor a thread of the kernel has, but no arguments yet."""
    return bool(_link(f"/proc/{pid}/exe")) and not _command(pid)


def _command(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def _mapped_shared_memory(pid: int) -> set[str]:
    ours = f"{SHM_DIR}{NAME_PREFIX}"
    paths = (
        line.split(None, 5)[-1] for line in _read(f"/proc/{pid}/maps").decode(errors="replace").splitlines()
    )
    return {path for path in paths if path.startswith(ours) and not path.endswith(" (deleted)")}


def _socket_inodes(pid: int) -> set[str]:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return set()  # the process is gone
    links = (_link(f"/proc/{pid}/fd/{number}") for number in numbers)
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


def _link(path: str) -> str:
    """Where a link points; empty for a descriptor that was closed meanwhile, or a process that is gone."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _bound_paths(pid: int) -> set[str]:
    """Names in the file system of a process's sockets: each network namespace has a list of its own."""
    inodes = _socket_inodes(pid)
    rows = (line.split() for line in _read(f"/proc/{pid}/net/unix").decode(errors="replace").splitlines()[1:])
    return {row[7] for row in rows if len(row) > 7 and row[6] in inodes and row[7].startswith("/")}


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
