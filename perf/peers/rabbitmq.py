"""A RabbitMQ of one node with its stream plugin, and the port mapper that Erlang wants beside it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from perf.peers.fetch import PeerUnavailable, rabbitmq_root
from perf.peers.process import free_port, server
from perf.peers.settings import RABBITMQ_SERVER

_ERL = """#!/bin/sh
ROOTDIR={root}; BINDIR={bin}; EMU=beam; PROGNAME=erl
export ROOTDIR BINDIR EMU PROGNAME
exec "$BINDIR/erlexec" "$@"
"""


class RabbitmqServer(NamedTuple):
    """A RabbitMQ that runs beside this process."""

    address: str
    """Of its stream protocol."""
    pid: int


@contextmanager
def rabbitmq(directory: str, *, fetch: bool = True) -> Iterator[RabbitmqServer]:
    """Start a server whose streams live in an empty directory, and stop it at the end of the block.

    Erlang nodes find each other through a port mapper, epmd, which they would leave running: this one is ours, on a
    port of its own, and ends after the server.
    """
    root = rabbitmq_root(fetch=fetch)
    script = _only(root, "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")
    erlang = os.path.dirname(_only(root, "usr/lib/erlang/erts-*/bin/erlexec"))
    directory = os.path.abspath(directory)
    tools = os.path.join(directory, "bin")
    os.makedirs(tools, exist_ok=True)
    _write(os.path.join(tools, "erl"), _ERL.format(root=os.path.join(root, "usr/lib/erlang"), bin=erlang))
    os.chmod(os.path.join(tools, "erl"), 0o755)
    port, mapper_port = free_port(), free_port()
    _write(os.path.join(directory, "rabbitmq.conf"), server_config(port))
    _write(os.path.join(directory, "enabled_plugins"), "[rabbitmq_stream].\n")
    environment = {
        "PATH": f"{tools}:{erlang}:{os.environ.get('PATH', '')}",
        **server_environment(directory, mapper_port, free_port()),
    }
    mapper = [os.path.join(erlang, "epmd"), "-address", "127.0.0.1", "-port", str(mapper_port)]
    with (
        server("epmd", mapper, directory, mapper_port, environment),
        server("rabbitmq", [script, "-noinput"], directory, port, environment) as pid,
    ):
        yield RabbitmqServer(f"127.0.0.1:{port}", pid)


def server_config(port: int) -> str:
    """The server's configuration file.

    >>> "stream.listeners.tcp.1 = 127.0.0.1:5552" in server_config(5552)
    True
    """
    lines = ["listeners.tcp = none", f"stream.listeners.tcp.1 = 127.0.0.1:{port}"]
    lines += ["log.file = false", "log.console = true", "log.console.level = warning"]
    lines += [f"{name} = {value}" for name, value, _ in RABBITMQ_SERVER]
    return "\n".join(lines) + "\n"


def server_environment(directory: str, mapper_port: int, distribution_port: int) -> dict[str, str]:
    """Keeps every file and port of a server apart from those of one that is installed."""
    return {
        "HOME": directory,  # the cookie
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "peer@localhost",
        "RABBITMQ_DIST_PORT": str(distribution_port),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_CONF_ENV_FILE": os.path.join(directory, "none"),
        "RABBITMQ_CONFIG_FILE": os.path.join(directory, "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": os.path.join(directory, "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": os.path.join(directory, "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": os.path.join(directory, "data"),
        "RABBITMQ_LOG_BASE": os.path.join(directory, "log"),
        "RABBITMQ_ALLOW_INPUT": "1",  # its script becomes the server instead of waiting for it: one id to stop
    }


def _only(root: str, pattern: str) -> str:
    found = sorted(glob.glob(os.path.join(root, pattern)))
    if not found:
        raise PeerUnavailable(f"rabbitmq has no {pattern} below {root}: remove the directory, fetch it again")
    return found[-1]


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
