"""Who waits for which part of the log: each is fetched once, however many ask; who left waits no more. Pure."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ringlog.errors import Overloaded
from ringlog.limits import BRIDGE_ASKS_MAX, BRIDGE_ASKS_PER_CLIENT_MAX
from spark_bridge.bridge_cache import Wanted
from spark_bridge.bridge_wire import ReadRequest


class Ask(NamedTuple):
    """One question."""

    client: bytes
    correlation: int
    request: ReadRequest


class Place(NamedTuple):
    """From where on something is to be fetched."""

    wanted: Wanted
    offset: int


class Desk:
    """The questions that are not answered yet, by what they wait for."""

    def __init__(self) -> None:
        self._waiting: dict[Place, list[Ask]] = {}
        self._asks: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return self._asks.total()

    def wait(self, place: Place, ask: Ask) -> bool:
        """Let a question wait; True when its place must be fetched, False when it is under way already. Overloaded when
        too many wait: a task then reads the brokers itself."""
        if self._asks[ask.client] >= BRIDGE_ASKS_PER_CLIENT_MAX:
            raise Overloaded(
                f"{BRIDGE_ASKS_PER_CLIENT_MAX} questions of this client wait for their answers. Retry"
            )
        if len(self) >= BRIDGE_ASKS_MAX:
            raise Overloaded(
                f"{BRIDGE_ASKS_MAX} questions wait for a reader of this bridge. Retry, or read the brokers"
            )
        self._asks[ask.client] += 1
        first = place not in self._waiting
        self._waiting.setdefault(place, []).append(ask)
        return first

    def is_wanted(self, place: Place) -> bool:
        """Whether somebody waits for a place. One that nobody waits for is forgotten, and can be asked for anew."""
        if self._waiting.get(place):
            return True
        self._waiting.pop(place, None)
        return False

    def arrived(self, place: Place) -> list[Ask]:
        """A place was fetched, or could not be: those who waited for it."""
        asks = self._waiting.pop(place, [])
        for ask in asks:
            self._forget_one(ask.client)
        return asks

    def left(self, client: bytes) -> None:
        """A client is gone: its questions are answered to nobody."""
        for asks in self._waiting.values():
            asks[:] = [ask for ask in asks if ask.client != client]
        self._asks.pop(client, None)

    def _forget_one(self, client: bytes) -> None:
        self._asks[client] -= 1
        if self._asks[client] <= 0:
            del self._asks[client]
