"""A look at ports: whether all of them refuse connections. Never blocks."""

from __future__ import annotations

import errno
import select
import socket

LOOK_MS_MAX = 200.0
"""A host that has not answered by then refuses nothing."""


Address = tuple[int, tuple[str, int] | tuple[str, int, int, int]]
"""A family of addresses, and an address of it, as `socket.socket` takes them."""


def addresses_of(endpoints: list[str]) -> list[Address]:
    """Where endpoints are; none when one of them cannot be found. A name may be looked up, which may take a moment."""
    found: list[Address] = []
    for endpoint in endpoints:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        try:
            rows = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except OSError:
            return []
        found.append((rows[0][0], rows[0][4]))  # type: ignore[arg-type]
    return found


class Look:
    """Attempts to connect to some ports of one node at once.

    >>> with socket.socket() as taken:
    ...     taken.bind(("127.0.0.1", 0))
    ...     look = Look(addresses_of([f"tcp://127.0.0.1:{taken.getsockname()[1]}"]), now_ms=0.0)
    ...     look.verdict(now_ms=0.0)
    True
    """

    def __init__(self, addresses: list[Address], now_ms: float) -> None:
        self._until_ms = now_ms + LOOK_MS_MAX
        self._waiting: list[socket.socket] = []
        self._accepted = not addresses  # nothing can be said of nothing
        for family, address in addresses:
            one = socket.socket(family, socket.SOCK_STREAM)
            one.setblocking(False)
            self._note(one, one.connect_ex(address))

    def _note(self, one: socket.socket, error: int) -> None:
        if error in (errno.EINPROGRESS, errno.EAGAIN):
            self._waiting.append(one)
            return
        one.close()
        if error != errno.ECONNREFUSED:
            self._accepted = True

    def verdict(self, now_ms: float) -> bool | None:
        """Whether all have refused; None while some have not answered."""
        if self._waiting and not self._accepted:
            _, ready, failed = select.select([], self._waiting, self._waiting, 0)
            for one in {*ready, *failed}:
                self._waiting.remove(one)
                self._note(one, one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        if self._waiting and not self._accepted and now_ms < self._until_ms:
            return None
        refused = not self._waiting and not self._accepted
        self.close()
        return refused

    def close(self) -> None:
        for one in self._waiting:
            one.close()
        self._waiting.clear()
