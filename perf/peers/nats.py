"""A NATS server with JetStream's file store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from perf.peers.fetch import nats_binary
from perf.peers.process import free_port, server
from perf.peers.settings import NATS_SERVER, NATS_SYNC


class NatsServer(NamedTuple):
    """A NATS that runs beside this process."""

    address: str
    pid: int


@contextmanager
def nats(directory: str, durability: str, *, fetch: bool = True) -> Iterator[NatsServer]:
    """Start a server whose streams live in an empty directory, and stop it at the end of the block."""
    binary = nats_binary(fetch=fetch)
    directory = os.path.abspath(directory)
    os.makedirs(directory, exist_ok=True)
    port = free_port()
    path = os.path.join(directory, "nats.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(server_config(directory, port, durability))
    with server("nats", [binary, "-c", path], directory, port) as pid:
        yield NatsServer(f"127.0.0.1:{port}", pid)


def server_config(directory: str, port: int, durability: str) -> str:
    """The server's configuration file.

    >>> "sync_interval: always" in server_config("/d", 4222, "D2")
    True
    """
    lines = [f"listen: 127.0.0.1:{port}"]
    lines += [f"{name}: {value}" for name, value, _ in NATS_SERVER]
    sync = NATS_SYNC[durability]
    lines.append(f'jetstream {{ store_dir: "{directory}/data", {sync.name}: {sync.value} }}')
    return "\n".join(lines) + "\n"
