"""Who runs a data directory: the lock that only one node can hold, and the file that says where it is.

The lock is inherited by all processes of a node, so that it is free only when the last of them has gone.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

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
        self._fd = -1

    def take(self) -> None:
        """Take it, or raise NodeRunning; waits for processes that are about to leave."""
        os.makedirs(self.data_dir, mode=0o700, exist_ok=True)
        fd = os.open(os.path.join(self.data_dir, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + LEAVING_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                info = read_info(self.data_dir)
                if time.monotonic() >= until or (info is not None and _alive(info.pid)):
                    os.close(fd)
                    raise _held(self.data_dir, info) from None
                time.sleep(0.02)
        self._fd = fd

    def write_info(self, info: NodeInfo) -> None:
        """Say who we are."""
        path = os.path.join(self.data_dir, INFO_NAME)
        with open(path + ".tmp", "wb") as file:
            file.write(msgspec.json.encode(info))
        os.replace(path + ".tmp", path)

    def leave(self) -> None:
        """Clean stop: nobody is here."""
        try:
            os.unlink(os.path.join(self.data_dir, INFO_NAME))
        except FileNotFoundError:
            return
        finally:
            os.close(self._fd)


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


def _held(data_dir: str, info: NodeInfo | None) -> NodeRunning:
    who = "another process holds its lock"
    if info is not None:
        who = f"node with pid {info.pid} runs there, listening on {info.endpoints[0]}"
    return NodeRunning(f"{data_dir}: {who}. Stop it with `ringlog stop`, or use another --data-dir")
