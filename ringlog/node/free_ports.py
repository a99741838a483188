"""Whether a node could listen where it is told to: asked before anything is made. A refused start leaves nothing.

The processes that listen find out for themselves, too: the answer may be another one by then.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable

from ringlog.errors import InvalidRequest, NodeFailed
from ringlog.net.listening import why_not_listening

_FINAL = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES, errno.EPERM})
"""What the listener would be told as well; names that only ZeroMQ knows (`*`, `eth0`) are left to it."""


def require_apart(endpoints: Iterable[tuple[str, str]]) -> None:
    """InvalidRequest when two processes of the node would listen at the same address.

    >>> require_apart([("tcp://127.0.0.1:9400", "--listen"), ("tcp://127.0.0.1:9401", "--cluster")])
    """
    taken: dict[str, str] = {}
    for endpoint, option in endpoints:
        if endpoint in taken and not endpoint.endswith(":0"):
            raise InvalidRequest(
                f"{taken[endpoint]} and {option} both need {endpoint}: --cluster names a port for the controllers, and "
                "the next one is for replication. Give one of them another port"
            )
        taken[endpoint] = option


def require_free(endpoints: Iterable[tuple[str, str]]) -> None:
    """NodeFailed, with what to do, for the first `tcp://HOST:PORT` that cannot be listened at; each is given with the
    option that names it. Other addresses are not looked at.

    >>> require_free([("tcp://127.0.0.1:0", "--listen"), ("ipc:///run/x", "--listen")])
    """
    for endpoint, option in endpoints:
        if not endpoint.startswith("tcp://"):
            continue
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        try:
            _try(host.strip("[]"), int(port))
        except socket.gaierror:
            continue
        except OSError as error:
            if error.errno in _FINAL:
                raise NodeFailed(why_not_listening(endpoint, error, option)) from None


def _try(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as ZeroMQ does: what was closed just now is free
        probe.bind((host, port))
        probe.listen(1)
