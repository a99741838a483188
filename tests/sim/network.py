"""A network that loses, delays, doubles and reorders messages, and that can be cut in one direction at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.sim.scheduler import Scheduler

Deliver = Callable[[int, object], None]
"""Takes the sender's id and the message."""


@dataclass
class Weather:
    """How bad the network is. A delay differs from message to message: that is what reorders them."""

    delay_ms: tuple[float, float] = (0.2, 2.0)
    drop: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    """Share of messages that come `late_ms` later: long after what they belong to is over."""
    late_ms: tuple[float, float] = (50.0, 3000.0)


CALM = Weather()
ROUGH = Weather(delay_ms=(0.2, 20.0), drop=0.05, duplicate=0.05, late=0.02)


@dataclass
class Network:
    """Carries messages between machines by their ids."""

    scheduler: Scheduler
    weather: Weather = field(default_factory=Weather)
    sent: int = 0
    dropped: int = 0
    _inboxes: dict[int, Deliver] = field(default_factory=dict)
    _cuts: set[tuple[int, int]] = field(default_factory=set)

    def join(self, node_id: int, deliver: Deliver) -> None:
        """From now on, messages to this id are handed to `deliver`."""
        self._inboxes[node_id] = deliver

    def send(self, source: int, destination: int, message: object) -> None:
        """Send; whether and when it arrives is a matter of chance."""
        self.sent += 1
        weather, scheduler = self.weather, self.scheduler
        copies = 1 + scheduler.chance(weather.duplicate) - scheduler.chance(weather.drop)
        if copies < 1:
            self.dropped += 1
        for _ in range(copies):
            delay_ms = scheduler.random.uniform(*weather.delay_ms)
            if scheduler.chance(weather.late):
                delay_ms += scheduler.random.uniform(*weather.late_ms)
            scheduler.after(delay_ms, lambda: self._arrive(source, destination, message))

    def _arrive(self, source: int, destination: int, message: object) -> None:
        # A cut also takes what was under way when it began.
        if (source, destination) in self._cuts:
            self.dropped += 1
        elif destination in self._inboxes:
            self._inboxes[destination](source, message)

    # -- cuts --------------------------------------------------------------------------------------------------

    def cut_one_way(self, source: int, destination: int) -> None:
        """What the one sends, the other does not get; the other direction works."""
        self._cuts.add((source, destination))

    def cut(self, one: int, other: int) -> None:
        """Nothing passes between the two."""
        self._cuts |= {(one, other), (other, one)}

    def isolate(self, node_id: int) -> None:
        """Nothing passes between this one and anybody else."""
        for other in self._inboxes:
            if other != node_id:
                self.cut(node_id, other)

    def cut_around(self, ring: Iterable[int]) -> None:
        """Everybody reaches only the neighbours in the ring: no one sees all, and all are reachable by detours."""
        members = list(ring)
        for at, one in enumerate(members):
            for other in members[at + 2 :]:
                if not (at == 0 and other == members[-1]):
                    self.cut(one, other)

    def cut_chain(self, members: Iterable[int]) -> None:
        """A ring that is broken at one place: with three machines, the ends do not see each other."""
        chain = list(members)
        for at, one in enumerate(chain):
            for other in chain[at + 2 :]:
                self.cut(one, other)

    def split(self, one_side: Iterable[int]) -> None:
        """Two halves that do not see each other."""
        side = set(one_side)
        for one in side:
            for other in self._inboxes.keys() - side:
                self.cut(one, other)

    @property
    def is_whole(self) -> bool:
        """Nothing is cut."""
        return not self._cuts

    def heal(self) -> None:
        """All cuts are mended."""
        self._cuts.clear()
