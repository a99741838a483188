"""What an address asks of the socket that is to use it. Pure."""

from __future__ import annotations


def is_ipv6(endpoint: str) -> bool:
    """Whether it is an address of IPv6, which ZeroMQ takes only from sockets that were told so. Not for all sockets: to
    those, `*` and names such as `localhost` mean something else.

    >>> is_ipv6("tcp://[::1]:9400"), is_ipv6("tcp://localhost:9400"), is_ipv6("ipc:///run/a:b")
    (True, False, False)
    """
    scheme, _, rest = endpoint.partition("://")
    return scheme == "tcp" and ":" in rest.rpartition(":")[0]
