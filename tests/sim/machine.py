"""A machine of the simulated cluster: it has a clock of its own, a disk, and a process that may die, pause and return.

What runs on it is a *process*: a thin shell around pure cores that takes messages and time from here, and that reaches
the world through `Machine` alone. When the machine stops, everything that the process had planned is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tests.sim.disk import SimDisk
from tests.sim.network import Network
from tests.sim.scheduler import Action, Scheduler


class Process(Protocol):
    """What runs on a machine. It is made anew, from the disk, at every start."""

    def receive(self, source: int, message: Any) -> None:
        """A message came from another machine."""


Program = Callable[["Machine"], Process]
"""Makes the process of a machine that starts, from what its disk holds."""


class Machine:
    """One node: the only way for a process to reach clock, disk and network."""

    def __init__(self, node_id: int, scheduler: Scheduler, network: Network, program: Program) -> None:
        self.node_id = node_id
        self.scheduler = scheduler
        self.network = network
        self.program = program
        self.disk = SimDisk(scheduler)
        self.process: Any = None
        """The running process; None while the machine is down."""
        self.incarnation = 0
        self.clock_rate = 1.0
        """How fast its clock runs, against the time of the world."""
        self._clock_ms = 0.0
        self._clock_set_at_ms = 0.0
        self._paused = False
        self._held: list[tuple[int, Action]] = []
        network.join(node_id, self._arrive)

    # -- for the process ---------------------------------------------------------------------------------------

    def now_ms(self) -> float:
        """The machine's monotonic clock: begins anywhere, and runs too fast or too slow."""
        return self._clock_ms + (self.scheduler.now_ms - self._clock_set_at_ms) * self.clock_rate

    def after(self, delay_ms: float, action: Action) -> None:
        """Do something later by this machine's clock, unless the process is gone by then."""
        incarnation = self.incarnation
        self.scheduler.after(delay_ms / self.clock_rate, lambda: self._run(incarnation, action))

    def send(self, destination: int, message: object) -> None:
        """Send a message to another machine, or to itself."""
        if not self._paused:
            self.network.send(self.node_id, destination, message)

    def flush(self, then: Action) -> None:
        """Make durable all that was written, and go on when it is."""
        incarnation = self.incarnation
        self.disk.flush(lambda: self._run(incarnation, then))

    # -- for the world -----------------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        return self.process is not None

    @property
    def paused(self) -> bool:
        return self._paused

    def start(self) -> None:
        """Begin a new incarnation from what is on the disk."""
        if self.process is None:
            self.incarnation += 1
            self._paused = False
            self.process = self.program(self)

    def kill(self) -> None:
        """The process dies; what it wrote is there at the next start."""
        self._stop()
        self.disk.stop()

    def lose_power(self) -> None:
        """The machine stops; what it had not flushed may be lost."""
        self._stop()
        self.disk.lose_power()

    def pause(self) -> None:
        """The process stands still, and time passes: as after SIGSTOP, or in a long pause of a virtual machine."""
        self._paused = self.up

    def resume(self) -> None:
        """It goes on, with everything that waited for it, and believes what it believed."""
        self._paused = False
        held, self._held = self._held, []
        for incarnation, action in held:
            self._run(incarnation, action)

    def skew(self, rate: float) -> None:
        """From now on the clock runs at another rate."""
        self._clock_ms, self._clock_set_at_ms = self.now_ms(), self.scheduler.now_ms
        self.clock_rate = rate

    def _stop(self) -> None:
        self.incarnation += 1
        self._held.clear()
        self._paused = False
        self.process = None

    def _run(self, incarnation: int, action: Action) -> None:
        if incarnation != self.incarnation:
            return
        if self._paused:
            self._held.append((incarnation, action))
        else:
            action()

    def _arrive(self, source: int, message: object) -> None:
        if self.process is not None:
            self._run(self.incarnation, lambda: self.process.receive(source, message))
