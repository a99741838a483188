"""A peer's server as a process: its own directory and free port on loopback, stopped by its id, its costs read."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import psutil

from perf.peers.fetch import PeerUnavailable

START_PATIENCE_S = 120.0
STOP_PATIENCE_S = 20.0


class Cost(NamedTuple):
    """What a process and its children have used."""

    cpu_s: float
    rss_bytes: int


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cost_of(pid: int) -> Cost:
    """CPU seconds and resident bytes of a process with all its children.

    >>> cost_of(os.getpid()).rss_bytes > 0
    True
    """
    cpu_s, rss_bytes = 0.0, 0
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            cpu_s += times.user + times.system
            rss_bytes += _private_and_shared_once(process)
    return Cost(cpu_s, rss_bytes)


def _private_and_shared_once(process: psutil.Process) -> int:
    """Proportional resident memory: what several processes share counts once in their sum."""
    try:
        return int(process.memory_full_info().pss)
    except (psutil.AccessDenied, AttributeError):
        return int(process.memory_info().rss)


@contextmanager
def server(
    name: str,
    command: Sequence[str],
    directory: str,
    port: int,
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Run a server until the end of the block; its id, once its port answers. Its words go to `NAME.log`."""
    log_path = os.path.join(directory, f"{name}.log")
    with open(log_path, "ab") as log:
        try:
            process = subprocess.Popen(
                list(command),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )
        except OSError as failed:
            raise PeerUnavailable(f"{name} did not start: {failed}") from failed
    try:
        _wait_for_port(name, process, port, log_path)
        yield process.pid
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and end it when it does not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for_port(name: str, process: subprocess.Popen[bytes], port: int, log_path: str) -> None:
    until_s = time.monotonic() + START_PATIENCE_S
    while time.monotonic() < until_s:
        if process.poll() is not None:
            raise PeerUnavailable(f"{name} ended at its start: {last_line(log_path)}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(0.05)
    raise PeerUnavailable(f"{name} did not answer within {START_PATIENCE_S:.0f} s: {last_line(log_path)}")


def last_line(path: str) -> str:
    """The last line of a log that says anything."""
    with open(path, encoding="utf-8", errors="replace") as file:
        said = [line.strip() for line in file if line.strip()]
    return said[-1] if said else "it said nothing"
