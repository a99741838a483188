"""The scenario of the controller quorum: three or five voters, a storm, and a client that remembers every answer."""

from __future__ import annotations

from ringlog.consensus.messages import Voter
from ringlog.errors import InvariantBroken
from tests.sim.faults import KINDS, Storm
from tests.sim.machine import Machine
from tests.sim.network import Network
from tests.sim.quorum_checks import QuorumChecker, require
from tests.sim.quorum_node import Ask, Done, QuorumNode, Refused
from tests.sim.replay import CheckFailed, failing_with_story
from tests.sim.scheduler import Scheduler

CLIENT = 100
ASK_EVERY_MS = 15.0
STORM_MS = 8_000.0
BRISK = 8
"""How many times as often things break, and how much sooner they are mended."""
SETTLE_MS = 20_000.0
"""How long everyone may take to agree when the storm is over."""


class Client:
    """Asks for one value after another, at whoever may lead, and keeps what it was told."""

    def __init__(
        self, scheduler: Scheduler, network: Network, voters: int, every_ms: float = ASK_EVERY_MS
    ) -> None:
        self._scheduler = scheduler
        self._every_ms = every_ms
        self._network = network
        self._voters = voters
        self._next = 0
        self._target = 1
        self.acked: dict[int, set[int]] = {}
        self.running = True
        network.join(CLIENT, self._receive)
        self._ask()

    def _ask(self) -> None:
        if self.running:
            self._next += 1
            self._network.send(CLIENT, self._target, Ask(CLIENT, self._next))
            if self._scheduler.chance(0.05):
                self._target = self._scheduler.random.randint(1, self._voters)
            self._scheduler.after(self._every_ms, self._ask)

    def _receive(self, source: int, message: object) -> None:
        if isinstance(message, Done):
            # A request that the network doubled is done twice: here nobody knows a client's requests apart.
            self.acked.setdefault(message.value, set()).add(message.index)
        elif isinstance(message, Refused) and message.leader_id is not None:
            self._target = message.leader_id


def quorum(
    seed: int,
    node: type[QuorumNode] = QuorumNode,
    *,
    voters: int | None = None,
    kinds: tuple[str, ...] = KINDS,
    brisk: bool = False,
    storm_ms: float = STORM_MS,
    ask_every_ms: float = ASK_EVERY_MS,
) -> list[str]:
    """All invariants of the quorum hold through a storm, and after it everything goes on."""
    scheduler = Scheduler(seed)
    network = Network(scheduler)
    checker = QuorumChecker()
    count = voters or (5 if seed % 4 == 3 else 3)
    everyone = tuple(Voter(node_id, "") for node_id in range(1, count + 1))
    machines = [
        Machine(voter.node_id, scheduler, network, lambda machine: node(machine, everyone, checker))
        for voter in everyone
    ]
    storm = Storm(scheduler, network, machines, kinds=kinds, haste=BRISK if brisk else 1)
    try:
        for machine in machines:
            machine.start()
        client = Client(scheduler, network, count, ask_every_ms)
        scheduler.run_until(lambda: len(client.acked) > 5, within_ms=1_500)
        storm.begin()
        _spoil_disks(scheduler, machines, storm, storm_ms)
        scheduler.run_for(storm_ms)
        storm.mend()
        acked_before = len(client.acked)
        require(
            scheduler.run_until(lambda: len(client.acked) > acked_before + 5, within_ms=SETTLE_MS),
            "no progress after the storm",
        )
        client.running = False
        require(
            scheduler.run_until(lambda: agreed(machines), within_ms=SETTLE_MS),
            "no agreement after the storm",
        )
        checker.finish(machines, client.acked)
        checker.majority_holds(machines)
    except (CheckFailed, InvariantBroken) as error:
        raise failing_with_story(storm.trace, error) from error
    return storm.trace


def quorum_brisk(seed: int) -> list[str]:
    """The same with faults eight times as often."""
    return quorum(seed, brisk=True)


def quorum_short(seed: int) -> list[str]:
    """A short storm of such faults, and few requests: many seeds for the time of one."""
    return quorum(seed, brisk=True, storm_ms=1_500.0, ask_every_ms=40.0)


def agreed(machines: list[Machine]) -> bool:
    nodes = [machine.process for machine in machines]
    ends = {(node.raft.log.last_index, node.raft.commit_index, node.raft.flushed_index) for node in nodes}
    return len(ends) == 1 and all(len(set(end)) == 1 for end in ends)


def _spoil_disks(scheduler: Scheduler, machines: list[Machine], storm: Storm, storm_ms: float) -> None:
    """Once in a storm, one disk is wiped, or something that it had flushed rots: a minority, and not while another
    such node has yet to become a voter again."""

    def spoil() -> None:
        machine = scheduler.random.choice(machines)
        if not machine.up:
            return
        log = machine.disk.journal("log")
        if scheduler.chance(0.5) and log.flushed:
            log.rot(scheduler.random.randrange(min(len(log.flushed), len(log.items))))
            storm.trace.append(f"{scheduler.now_ms:9.1f} ms  rot on disk {machine.node_id}")
            machine.kill()
        else:
            machine.kill()
            machine.disk.wipe()
            storm.trace.append(f"{scheduler.now_ms:9.1f} ms  disk {machine.node_id} is wiped")
        scheduler.after(scheduler.random.uniform(50, 2000), machine.start)

    if scheduler.chance(0.5):
        scheduler.after(scheduler.random.uniform(storm_ms / 40, storm_ms / 2), spoil)
