"""Finds out quickly whether anybody listens at an address: clients are patient, people are not."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from ringlog.client.settings import DEFAULT_BOOTSTRAP, endpoints_of
from ringlog.errors import NodeUnavailable

PATIENCE_S = 3.0
"""For each address. Long enough for a node that was started in the line before, and several that share its cores."""
TRY_S = 1.0
PAUSE_S = 0.05


def require_listener(bootstrap: str, patience_s: float = PATIENCE_S) -> None:
    """Return when one of the addresses takes connections; NodeUnavailable when none does in time.

    >>> require_listener("127.0.0.1:1", patience_s=0)
    Traceback (most recent call last):
    ringlog.errors.NodeUnavailable: no node listens at 127.0.0.1:1. Start one with `ringlog start`, or check --bootstrap
    """
    endpoints = endpoints_of(bootstrap)
    until_s = time.monotonic() + patience_s * len(endpoints)
    while not _is_taken(endpoints):
        if time.monotonic() >= until_s:
            where = bootstrap or DEFAULT_BOOTSTRAP
            raise NodeUnavailable(
                f"no node listens at {where}. Start one with `ringlog start`, or check --bootstrap"
            )
        time.sleep(PAUSE_S)


def _is_taken(endpoints: Sequence[str]) -> bool:
    for endpoint in endpoints:
        try:
            _connect(endpoint).close()
        except OSError:
            continue  # the next address may do
        return True
    return False


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
