"""A Redis with an append-only file."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from perf.peers.fetch import redis_binary
from perf.peers.process import free_port, server
from perf.peers.settings import REDIS_FSYNC, REDIS_SERVER


class RedisServer(NamedTuple):
    """A Redis that runs beside this process."""

    address: str
    pid: int


@contextmanager
def redis(directory: str, durability: str, *, fetch: bool = True) -> Iterator[RedisServer]:
    """Start a server whose file lives in an empty directory, and stop it at the end of the block."""
    binary = redis_binary(fetch=fetch)
    directory = os.path.abspath(directory)
    os.makedirs(directory, exist_ok=True)
    port = free_port()
    path = os.path.join(directory, "redis.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(server_config(directory, port, durability))
    unpacked = glob.glob(os.path.join(os.path.dirname(binary), "usr", "lib", "*-linux-gnu"))
    environment = {"LD_LIBRARY_PATH": unpacked[0]} if unpacked else {}
    with server("redis", [binary, path], directory, port, environment) as pid:
        yield RedisServer(f"127.0.0.1:{port}", pid)


def server_config(directory: str, port: int, durability: str) -> str:
    """The server's configuration file.

    >>> "appendfsync always" in server_config("/d", 6379, "D2")
    True
    """
    lines = ["bind 127.0.0.1", f"port {port}", f"dir {directory}", "daemonize no"]
    lines += [f"{name} {value or chr(34) * 2}" for name, value, _ in [*REDIS_SERVER, REDIS_FSYNC[durability]]]
    return "\n".join(lines) + "\n"
