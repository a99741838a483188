"""The smallest scenario, and an example of one: a machine acknowledges numbers once they are flushed."""

from __future__ import annotations

from typing import Any

from tests.sim.faults import Storm
from tests.sim.machine import Machine
from tests.sim.network import Network
from tests.sim.replay import CheckFailed, failing_with_story
from tests.sim.scheduler import Scheduler

CLIENT = 100
ASK_EVERY_MS = 7.0


class Counter:
    """Writes every number that it is sent, and acknowledges it when it is flushed."""

    acks_before_flush = False
    """The mutant: believe the page cache."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._journal = machine.disk.journal("numbers")

    def receive(self, source: int, message: Any) -> None:
        self._journal.append(message)
        if self.acks_before_flush:
            self._machine.send(source, message)
        self._machine.flush(lambda: self._machine.send(source, message))


def counter(seed: int, process: type[Counter] = Counter) -> list[str]:
    """Numbers that were acknowledged are on the disk, whatever happened to the machine."""
    scheduler = Scheduler(seed)
    network = Network(scheduler)
    machine = Machine(1, scheduler, network, process)
    machine.start()
    acked: set[int] = set()
    network.join(CLIENT, lambda source, number: acked.add(number))  # type: ignore[arg-type]

    def ask(number: int) -> None:
        network.send(CLIENT, 1, number)
        scheduler.after(ASK_EVERY_MS, lambda: ask(number + 1))

    ask(0)
    storm = Storm(scheduler, network, [machine], kinds=("kill", "power", "slow_disk", "rough"))
    storm.begin()
    scheduler.run_for(20_000)
    storm.mend()
    lost = acked - set(machine.disk.journal("numbers").items)
    if lost:
        raise failing_with_story(storm.trace, CheckFailed(f"acknowledged and lost: {sorted(lost)}"))
    return storm.trace
