"""Who runs a data directory: the lock that only one node can hold, and the file that says where it is.

The lock is inherited by all processes of a node, so that it is free only when the last of them has gone.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from ringlog.config import default_data_dir
from ringlog.errors import NodeRunning

LOCK_NAME = "node.lock"
INFO_NAME = "node.json"
NAMES_LOCK_NAME = "names.lock"
LEAVING_S = 5.0
"""How long a start waits for the processes of a node whose supervisor is dead."""


class ProcessInfo(msgspec.Struct, frozen=True):
    """One process of a node."""

    role: str
    index: int
    pid: int
    state: str
    restarts: int = 0


class NodeInfo(msgspec.Struct, frozen=True):
    """What `node.json` says of a running node."""

    pid: int
    endpoints: list[str]
    shards: int
    nets: int
    started_ms: int
    board: str
    """Names of shared memory."""
    stats: str
    metrics_endpoint: str | None
    processes: list[ProcessInfo]
    peers: int = 0
    """Processes that speak with other nodes: 1 in a cluster."""


_info_decoder = msgspec.json.Decoder(NodeInfo)


class DataDirLock:
    """The right to run a data directory."""

    def __init__(self, data_dir: str) -> None:
        self.data_dir = data_dir
        self._path = os.path.join(data_dir, LOCK_NAME)
        self._fd = -1
        self._made_dirs: list[str] = []
        """The innermost first."""
        self._made_lock = False

    def take(self) -> None:
        """Take it, or raise NodeRunning; waits for processes that are about to leave. Twice is fine."""
        until = time.monotonic() + LEAVING_S
        while self._fd < 0:
            self._made_dirs += _make_dirs(self.data_dir)
            self._made_lock |= not os.path.exists(self._path)
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                info, pid = read_info(self.data_dir), _read_pid(self.data_dir)
                if time.monotonic() >= until or (pid is not None and _alive(pid)):
                    raise _held(self.data_dir, info, pid) from None
                time.sleep(0.02)
                continue
            if not _is_at(self._path, fd):
                os.close(fd)  # of a start that was refused in this moment, and has taken its file away
                continue
            self._fd = fd
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
        self._forget_info()  # what was said by a node that died

    def write_info(self, info: NodeInfo) -> None:
        """Say who we are."""
        path = os.path.join(self.data_dir, INFO_NAME)
        with open(path + ".tmp", "wb") as file:
            file.write(msgspec.json.encode(info))
        os.replace(path + ".tmp", path)

    def leave(self) -> None:
        """Clean stop: nobody is here."""
        try:
            self._forget_info()
            os.ftruncate(self._fd, 0)  # its pid is soon another program's
        finally:
            os.close(self._fd)
            self._fd = -1

    def abandon(self) -> None:
        """The start is refused before anything else was made: leave what was there before, and nothing more."""
        if self._made_lock:
            os.unlink(self._path)
        for path in self._made_dirs:
            if os.listdir(path):
                break
            os.rmdir(path)
        self.leave()

    def _forget_info(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.data_dir, INFO_NAME))


class NamesLock:
    """Held by one process of a node at a time, while directories of partitions get or lose an owner.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as data_dir, NamesLock(data_dir)():
    ...     os.listdir(data_dir) == [NAMES_LOCK_NAME]
    True
    """

    def __init__(self, data_dir: str | os.PathLike[str]) -> None:
        self._fd = os.open(
            os.path.join(data_dir, NAMES_LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    @contextmanager
    def __call__(self) -> Iterator[None]:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


def holder_pid(data_dir: str) -> int | None:
    """Who runs a data directory, also while it starts; None when nobody does."""
    return _read_pid(data_dir) if is_locked(data_dir) else None


def read_info(data_dir: str) -> NodeInfo | None:
    """What the node of a data directory said of itself; None when there is nothing readable."""
    try:
        with open(os.path.join(data_dir, INFO_NAME), "rb") as file:
            return _info_decoder.decode(file.read())
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def is_locked(data_dir: str) -> bool:
    """Whether a node runs there."""
    try:
        fd = os.open(os.path.join(data_dir, LOCK_NAME), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _read_pid(data_dir: str) -> int | None:
    """Who holds the lock, as the holder said; a node of a version that did not, when it was ready."""
    try:
        with open(os.path.join(data_dir, LOCK_NAME), "rb") as file:
            said = file.read(32).strip()
    except FileNotFoundError:
        return None
    if said.isdigit():
        return int(said)
    info = read_info(data_dir)
    return None if info is None else info.pid


def _make_dirs(path: str) -> list[str]:
    """Make a directory and those above it; those that were missing, the innermost first."""
    missing, above = [], path
    while not os.path.exists(above):
        missing.append(above)
        above = os.path.dirname(above)
    os.makedirs(path, mode=0o700, exist_ok=True)
    return missing


def _is_at(path: str, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False


def _held(data_dir: str, info: NodeInfo | None, pid: int | None) -> NodeRunning:
    who = "another process holds its lock"
    if info is None and pid is not None:
        who = f"node with pid {pid} is starting there"
    elif info is not None:
        who = f"node with pid {info.pid} runs there, listening on {info.endpoints[0]}"
    return NodeRunning(
        f"{data_dir}: {who}. Stop it with `{command_for('stop', data_dir)}`, or use another --data-dir"
    )


def command_for(verb: str, data_dir: str) -> str:
    """What to type for the node of a directory: without its name, another node would be meant.

    >>> command_for("stop", "/srv/my data")
    "ringlog stop --data-dir '/srv/my data'"
    """
    is_default = os.path.abspath(data_dir) == os.path.abspath(default_data_dir())
    return f"ringlog {verb}" if is_default else f"ringlog {verb} --data-dir {shlex.quote(data_dir)}"
