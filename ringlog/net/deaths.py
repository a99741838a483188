"""Which nodes are dead for certain, long before their silence would tell. Pure.

A host whose process died says so: its kernel ends the connection, and refuses every new one to the ports of the node. A
node that merely stands still, is cut off, or has lost its power refuses nothing, and only its silence tells of it. So a
lost connection makes one look at the ports; only refusals of all of them, more than once, are taken for a death. Should
a node have been reborn meanwhile, it registers and heartbeats, and nothing is lost but a moment.
"""

from __future__ import annotations

from dataclasses import dataclass

LOOK_AGAIN_MS = 8.0
"""Between two looks at a node that may be dead."""
REFUSALS = 2
"""So many looks in a row at which all ports refuse are a death. One alone might meet processes being replaced."""
LOOKS_MAX = 20
"""A node whose ports do not all refuse after so many is left to its session."""


@dataclass(slots=True)
class _Suspicion:
    """A node that may be dead."""

    due_ms: float
    looks: int = 0
    refusals: int = 0
    is_looking: bool = False


class Deaths:
    """What is known of the other nodes' deaths.

    >>> deaths = Deaths()
    >>> deaths.lost(2, now_ms=0.0); deaths.due(0.0)
    [2]
    >>> deaths.looked(2, refused=True, now_ms=1.0); deaths.due(9.0)
    [2]
    >>> deaths.looked(2, refused=True, now_ms=9.0); deaths.dead
    {2}
    """

    def __init__(self) -> None:
        self.dead: set[int] = set()
        """Since they were found dead, nothing was heard of them."""
        self._suspected: dict[int, _Suspicion] = {}

    def lost(self, node: int, now_ms: float) -> None:
        """A connection to a node ended."""
        if node not in self.dead:
            self._suspected[node] = _Suspicion(now_ms)

    def came(self, node: int) -> None:
        """A node was reached."""
        self.dead.discard(node)
        self._suspected.pop(node, None)

    def heard(self, node: int) -> None:
        """A message of a node came. It may be the last word of one that is being looked at, so the looks go on."""
        self.dead.discard(node)

    def due(self, now_ms: float) -> list[int]:
        """The nodes to be looked at now; each is answered with `looked`."""
        found = [node for node, one in self._suspected.items() if one.due_ms <= now_ms and not one.is_looking]
        for node in found:
            self._suspected[node].is_looking = True
        return found

    @property
    def next_ms(self) -> float:
        """When `due` has something to say next."""
        return min((one.due_ms for one in self._suspected.values()), default=float("inf"))

    def looked(self, node: int, *, refused: bool, now_ms: float) -> None:
        """Whether all ports of a node refused."""
        one = self._suspected.get(node)
        if one is None:
            return
        one.looks += 1
        one.refusals = one.refusals + 1 if refused else 0
        one.is_looking, one.due_ms = False, now_ms + LOOK_AGAIN_MS
        if one.refusals >= REFUSALS:
            del self._suspected[node]
            self.dead.add(node)
        elif one.looks >= LOOKS_MAX:
            del self._suspected[node]
