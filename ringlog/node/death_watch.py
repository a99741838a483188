"""Watches over the other nodes of a cluster for the controller: looks at the ports of those whose connection broke."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from ringlog.net.deaths import Deaths
from ringlog.net.peer_links import PeerLinks
from ringlog.net.refusal import Address, Look, addresses_of

LOOK_MS = 3.0
"""Between two passes while hosts are asked."""

_log = logging.getLogger(__name__)


class DeathWatch:
    """Which nodes are dead for certain."""

    def __init__(
        self, ports: Mapping[int, Sequence[str]], has_left: Callable[[int], bool] = lambda node: False
    ) -> None:
        """`ports`: all that each node listens at for the others; `has_left`: whether a node said that it would go."""
        self._ports = ports
        self._has_left = has_left
        self._addresses: dict[int, list[Address]] = {}
        """Of nodes that were reached once: their names need not be looked up when they have died."""
        self._deaths = Deaths()
        self._lost: set[int] = set()
        self._looks: dict[int, Look] = {}

    @property
    def dead(self) -> set[int]:
        return self._deaths.dead

    def next_ms(self, now_ms: float) -> float:
        """When `follow` must be called at the latest, should nothing happen before."""
        return now_ms + LOOK_MS if self._looks else self._deaths.next_ms

    def follow(self, links: PeerLinks, now_ms: float) -> None:
        """Once a pass: hear what became of connections, and look on."""
        for node in links.met:
            self._addresses[node] = addresses_of(list(self._ports.get(node, ())))
        links.met.clear()
        for node in links.heard_of:
            self._deaths.heard(node)
        links.heard_of.clear()
        for node in self._lost - links.lost:
            self._deaths.came(node)
        for node in links.lost - self._lost:
            self._deaths.lost(node, now_ms)
        self._lost = set(links.lost)
        self._look(now_ms)

    def _look(self, now_ms: float) -> None:
        for node in self._deaths.due(now_ms):
            self._looks[node] = Look(self._addresses.get(node, []), now_ms)
        for node, look in list(self._looks.items()):
            refused = look.verdict(now_ms)
            if refused is None:
                continue
            del self._looks[node]
            self._deaths.looked(node, refused=refused, now_ms=now_ms)
            if node not in self._deaths.dead:
                continue
            if self._has_left(node):
                _log.info("node %d has left: it was stopped in order", node)
            else:
                _log.warning("node %d is dead: its host refuses all connections to it", node)

    def close(self) -> None:
        for look in self._looks.values():
            look.close()
