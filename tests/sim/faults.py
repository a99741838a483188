"""What goes wrong while a simulated cluster works: drawn from the seed, a fault at a time, several at once.

A `Storm` breaks things at random and mends them again; `mend()` ends it. Which kinds it may use is up to the
scenario, and `down_max` keeps it from taking away more machines at a time than the promise under test allows.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim.machine import Machine
from tests.sim.network import CALM, ROUGH, Network, Weather
from tests.sim.scheduler import Scheduler

KINDS = (
    "kill",
    "restart",
    "power",
    "pause",
    "isolate",
    "one_way",
    "chain",
    "split",
    "rough",
    "skew",
    "slow_disk",
)
SLOW_DISK_MS = (20.0, 400.0)
FAULT_MS = (20.0, 4000.0)
"""How long one lasts."""
BETWEEN_MS = (10.0, 1500.0)


class Storm:
    """Breaks and mends, by the seed."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        machines: Sequence[Machine],
        *,
        kinds: Sequence[str] = KINDS,
        down_max: int | None = None,
        haste: float = 1,
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._machines = list(machines)
        self._kinds = list(kinds)
        self._down_max = len(self._machines) if down_max is None else down_max
        self._haste = haste
        """How many times as often things break, and how much sooner they are mended."""
        self._over = False
        self.trace: list[str] = []
        """What was done, and when: the story of a failing seed."""

    def begin(self) -> None:
        """Start breaking things."""
        self._next()

    def mend(self) -> None:
        """End the storm: everything is up, connected and quick again."""
        self._over = True
        self._network.heal()
        self._network.weather = CALM
        for machine in self._machines:
            machine.disk.flush_ms = (0.3, 3.0)
            machine.skew(1.0)
            machine.resume()
            machine.start()
        self._note("mended")

    def _next(self) -> None:
        self._scheduler.after(self._scheduler.random.uniform(*BETWEEN_MS) / self._haste, self._break)

    def _break(self) -> None:
        if self._over:
            return
        choose = self._scheduler.random
        kind = choose.choice(self._kinds)
        machine = choose.choice(self._machines)
        lasts_ms = choose.uniform(*FAULT_MS) / self._haste
        getattr(self, f"_{kind}")(machine, lasts_ms)
        self._next()

    def _later(self, lasts_ms: float, mend: str, machine: Machine) -> None:
        def act() -> None:
            if not self._over:
                getattr(machine, mend)()
                self._note(f"{mend} {machine.node_id}")

        self._scheduler.after(lasts_ms, act)

    def _note(self, what: str) -> None:
        self.trace.append(f"{self._scheduler.now_ms:9.1f} ms  {what}")

    def _may_take(self, machine: Machine) -> bool:
        gone = sum(not other.up or other.paused for other in self._machines)
        return machine.up and not machine.paused and gone < self._down_max

    # -- kinds -------------------------------------------------------------------------------------------------

    def _kill(self, machine: Machine, lasts_ms: float) -> None:
        if self._may_take(machine):
            self._note(f"kill {machine.node_id}")
            machine.kill()
            self._later(lasts_ms, "start", machine)

    def _restart(self, machine: Machine, lasts_ms: float) -> None:
        """Some die and are back at once, before what was sent to them has arrived."""
        for one in self._machines:
            if self._scheduler.chance(0.5) and self._may_take(one):
                self._note(f"restart {one.node_id}")
                one.kill()
                self._later(self._scheduler.random.uniform(0, 5), "start", one)

    def _power(self, machine: Machine, lasts_ms: float) -> None:
        """One loses power, or all do."""
        everyone = self._scheduler.chance(0.2) and self._down_max >= len(self._machines)
        for one in self._machines if everyone else [machine]:
            if one.up and (everyone or self._may_take(one)):
                self._note(f"power loss of {one.node_id}")
                one.lose_power()
                self._later(lasts_ms, "start", one)

    def _pause(self, machine: Machine, lasts_ms: float) -> None:
        if self._may_take(machine):
            self._note(f"pause {machine.node_id}")
            machine.pause()
            self._later(lasts_ms, "resume", machine)

    def _isolate(self, machine: Machine, lasts_ms: float) -> None:
        self._note(f"isolate {machine.node_id}")
        self._network.isolate(machine.node_id)
        self._heal_after(lasts_ms)

    def _one_way(self, machine: Machine, lasts_ms: float) -> None:
        other = self._scheduler.random.choice(self._machines)
        self._note(f"cut {machine.node_id} to {other.node_id}")
        self._network.cut_one_way(machine.node_id, other.node_id)
        self._heal_after(lasts_ms)

    def _chain(self, machine: Machine, lasts_ms: float) -> None:
        order = [one.node_id for one in self._machines]
        self._scheduler.random.shuffle(order)
        self._note(f"chain {order}")
        self._network.cut_chain(order)
        self._heal_after(lasts_ms)

    def _split(self, machine: Machine, lasts_ms: float) -> None:
        ids = [one.node_id for one in self._machines]
        side = self._scheduler.random.sample(ids, max(1, len(ids) // 2))
        self._note(f"split off {side}")
        self._network.split(side)
        self._heal_after(lasts_ms)

    def _heal_after(self, lasts_ms: float) -> None:
        def heal() -> None:
            self._network.heal()
            self._note("heal")

        self._scheduler.after(lasts_ms, heal)

    def _rough(self, machine: Machine, lasts_ms: float) -> None:
        self._note("rough weather")
        self._network.weather = ROUGH

        def clear() -> None:
            self._network.weather = Weather()

        self._scheduler.after(lasts_ms, clear)

    def _skew(self, machine: Machine, lasts_ms: float) -> None:
        rate = self._scheduler.random.uniform(0.8, 1.25)
        self._note(f"clock of {machine.node_id} runs at {rate:.2f}")
        machine.skew(rate)

    def _slow_disk(self, machine: Machine, lasts_ms: float) -> None:
        self._note(f"slow disk of {machine.node_id}")
        machine.disk.flush_ms = SLOW_DISK_MS

        def fast() -> None:
            machine.disk.flush_ms = (0.3, 3.0)

        self._scheduler.after(lasts_ms, fast)
