"""Finds out quickly whether a node listens at an address: clients are patient, people are not."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from enum import Enum

from cli.screen import say_above_bar
from ringlog.client.settings import DEFAULT_BOOTSTRAP, endpoints_of
from ringlog.errors import NodeUnavailable

PATIENCE_S = 3.0
"""For each address. Long enough for a node that was started in the line before, and several that share its cores."""
SILENCE_S = 15.0
"""How long one that takes connections may say nothing: it is no node, or one that hangs."""
TRY_S = 1.0
PAUSE_S = 0.05
_SIGNATURE = b"\xff\0\0\0\0\0\0\0\1\x7f"
"""What both sides of a connection of ZeroMQ say first. Servers of other protocols refuse it, or wait for more."""


class Found(Enum):
    """What listens at an address, the best first."""

    NODE = "a node, or something else that speaks ZeroMQ"
    SILENT = "somebody who takes connections and says nothing"
    OTHER = "somebody who hangs up, or speaks another protocol"
    NOBODY = "nobody"
    UNKNOWN = "a name that cannot be looked up"


def require_listener(bootstrap: str, patience_s: float = PATIENCE_S, silence_s: float = SILENCE_S) -> None:
    """Return when one of the addresses greets as a node does; NodeUnavailable when none does in time.

    >>> require_listener("127.0.0.1:1", patience_s=0)
    Traceback (most recent call last):
    ringlog.errors.NodeUnavailable: no node listens at 127.0.0.1:1. Start one with `ringlog start`, or check --bootstrap
    """
    endpoints = endpoints_of(bootstrap)
    where = bootstrap or DEFAULT_BOOTSTRAP
    began_s = time.monotonic()
    patience_s *= len(endpoints)
    is_told = False
    while (found := _look(endpoints)) is not Found.NODE:
        waited_s = time.monotonic() - began_s
        if found is Found.SILENT and waited_s < silence_s:
            if waited_s >= patience_s and not is_told:
                is_told = True
                say_above_bar(
                    f"ringlog: what listens at {where} says nothing; it is waited for up to {silence_s:.0f} s."
                )
        elif waited_s >= patience_s:
            raise NodeUnavailable(_why(found, where))
        time.sleep(PAUSE_S)


def _why(found: Found, where: str) -> str:
    if found is Found.NOBODY:
        return f"no node listens at {where}. Start one with `ringlog start`, or check --bootstrap"
    if found is Found.UNKNOWN:
        return f"no host is known by the name in {where}. Check --bootstrap"
    if found is Found.OTHER:
        return f"what listens at {where} is no node of ringlog: it does not greet as one. Check --bootstrap"
    return f"what listens at {where} says nothing: it is no node of ringlog, or one that hangs. Check --bootstrap"


def _look(endpoints: Sequence[str]) -> Found:
    """The best of what listens at some addresses."""
    best = Found.UNKNOWN
    for endpoint in endpoints:
        found = _listener(endpoint)
        if found is Found.NODE:
            return found
        best = min(best, found, key=list(Found).index)
    return best


def _listener(endpoint: str) -> Found:
    try:
        connection = _connect(endpoint)
    except socket.gaierror:
        return Found.UNKNOWN
    except OSError:
        return Found.NOBODY
    with connection:
        try:
            connection.sendall(_SIGNATURE)
            return Found.NODE if connection.recv(1) == _SIGNATURE[:1] else Found.OTHER
        except TimeoutError:
            return Found.SILENT
        except OSError:
            return Found.OTHER


def _connect(endpoint: str) -> socket.socket:
    if endpoint.startswith("ipc://"):
        local = socket.socket(socket.AF_UNIX)
        try:
            local.settimeout(TRY_S)
            local.connect(endpoint.removeprefix("ipc://"))
        except OSError:
            local.close()
            raise
        return local
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), TRY_S)
