"""A throw-away node for tests and notebooks: a temporary directory, a free port, gone at the end of the block."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import msgspec

from ringlog.errors import InvalidRequest, NodeFailed
from ringlog.limits import MIB
from ringlog.node.identity import NodeInfo, read_info

START_PATIENCE_S = 30.0
STOP_PATIENCE_S = 30.0
_TAIL_BYTES = 64 * MIB


class EmbeddedNode(msgspec.Struct, frozen=True):
    """A node that runs beside this process."""

    bootstrap: str
    """What clients take: `Producer(bootstrap=node.bootstrap)`."""
    data_dir: str
    pid: int
    info: NodeInfo


@contextmanager
def embedded(
    *,
    shards: int = 1,
    data_dir: str | os.PathLike[str] | None = None,
    keep: bool = False,
    tail_bytes_per_shard: int = _TAIL_BYTES,
    config: str | os.PathLike[str] | None = None,
) -> Iterator[EmbeddedNode]:
    """Start a node, and stop it at the end of the block.

    `config` names a TOML file with all settings of a node but its address and directory, instead of those given here.
    `data_dir` names a directory to use, and keep, instead of a temporary one; `keep` keeps that, too. A program that is
    killed takes its node with it, and the temporary directory.

    >>> import ringlog
    >>> with ringlog.embedded() as node:
    ...     producer = ringlog.Producer(bootstrap=node.bootstrap)
    ...     producer.produce("greetings", b"hello").result(10).durability
    ...     producer.close()
    'flushed'
    """
    _check_numbers(shards=shards, tail_bytes_per_shard=tail_bytes_per_shard)
    config = None if config is None else _path("config", config)
    owner = os.getpid()
    directory = _path("data_dir", data_dir) if data_dir else tempfile.mkdtemp(prefix="ringlog-")
    os.makedirs(directory, exist_ok=True)
    log_path = os.path.join(directory, "node.log")
    command = [sys.executable, "-m", "ringlog.node", "--data-dir", directory, "--listen", "tcp://127.0.0.1:0"]
    if config is not None:
        command += ["--config", config]
    else:
        command += ["--shards", str(shards), "--no-pin", "--tail-bytes-per-shard", str(tail_bytes_per_shard)]
    command += ["--die-with", str(owner)]
    if data_dir is None and not keep:
        command += ["--throw-away"]
    process, over = _start(command, log_path)
    try:
        info = _wait_ready(process, directory, log_path)
        yield EmbeddedNode(info.endpoints[0].removeprefix("tcp://"), directory, process.pid, info)
    finally:
        if (
            os.getpid() == owner
        ):  # the child of a fork may leave the block, too, while its parent uses the node
            _stop(process)
            over.set()
            if data_dir is None and not keep:
                shutil.rmtree(directory, ignore_errors=True)


def _check_numbers(**values: int) -> None:
    for name, value in values.items():
        if type(value) is not int:
            raise InvalidRequest(f"{name} must be an int, not {value!r}")


def _path(name: str, value: str | os.PathLike[str]) -> str:
    try:
        return os.fspath(value)
    except TypeError:
        raise InvalidRequest(f"{name} must be a path, as str or Path, not {value!r}") from None


def _start(command: list[str], log_path: str) -> tuple[subprocess.Popen[bytes], threading.Event]:
    """Start the node on a thread of its own, which stays until the event is set: the kernel ends a node with the thread
    that started it, and the caller's may end long before the program does."""
    started: Future[subprocess.Popen[bytes]] = Future()
    over = threading.Event()

    def start_and_stay() -> None:
        try:
            with open(log_path, "ab") as log:
                # A group of its own: Ctrl-C in a terminal is for the program, which may need its node to end well.
                process = subprocess.Popen(
                    command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, process_group=0
                )
        except Exception as refused:  # whatever it is: nobody else tells the one who waits
            started.set_exception(refused)
            return
        started.set_result(process)
        over.wait()

    threading.Thread(target=start_and_stay, name="ringlog-embedded", daemon=True).start()
    try:
        return started.result(), over
    except BaseException:
        over.set()  # whoever was interrupted here has no node
        raise


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_ready(process: subprocess.Popen[bytes], directory: str, log_path: str) -> NodeInfo:
    until = time.monotonic() + START_PATIENCE_S
    while time.monotonic() < until:
        info = read_info(directory)
        if info is not None and info.pid == process.pid:
            return info
        if process.poll() is not None:
            with open(log_path, encoding="utf-8", errors="replace") as log:
                said = log.read()[-2000:]
            raise NodeFailed(f"the embedded node ended with exit code {process.returncode}: {said}")
        time.sleep(0.005)
    raise NodeFailed(f"the embedded node is not ready after {START_PATIENCE_S:.0f} s; see {log_path}")
