"""The scenario of a quorum whose voters change: nodes join and leave in a storm, and nothing acknowledged is lost."""

from __future__ import annotations

from ringlog.consensus.messages import Voter
from ringlog.errors import InvariantBroken
from tests.sim.faults import KINDS, Storm
from tests.sim.machine import Machine
from tests.sim.network import Network
from tests.sim.quorum import SETTLE_MS, STORM_MS, Client, agreed
from tests.sim.quorum_checks import QuorumChecker, require
from tests.sim.quorum_node import QuorumNode
from tests.sim.replay import CheckFailed, failing_with_story
from tests.sim.scheduler import Scheduler

NODES = (1, 2, 3, 4, 5)
FIRST = (1, 2, 3)
"""Who votes at the beginning; the others join."""


class Wishes:
    """Who shall vote. Those who join are named to every node when it starts; who leaves, while it runs."""

    def __init__(self) -> None:
        self.leaving: set[int] = set()
        self.joining: set[int] = set()

    def tell(self, node: QuorumNode) -> None:
        node.raft.wish(self.joining, self.leaving)


def members(seed: int, node: type[QuorumNode] = QuorumNode, *, kinds: tuple[str, ...] = KINDS) -> list[str]:
    """Two nodes join and up to two leave, one after another, while everything breaks."""
    scheduler = Scheduler(seed)
    network = Network(scheduler)
    checker, wishes = QuorumChecker(), Wishes()

    class Member(node):  # type: ignore[misc,valid-type]
        def _tick(self) -> None:
            wishes.tell(self)
            super()._tick()

    def start(machine: Machine) -> QuorumNode:
        # Who joins believes to be one of all: its empty log keeps it from being elected, its vote from counting.
        known = FIRST if machine.node_id in FIRST else NODES
        return Member(machine, tuple(Voter(node_id, "") for node_id in known), checker)

    machines = {node_id: Machine(node_id, scheduler, network, start) for node_id in NODES}
    storm = Storm(scheduler, network, list(machines.values()), kinds=kinds)
    try:
        for node_id in FIRST:
            machines[node_id].start()
        client = Client(scheduler, network, len(NODES))
        scheduler.run_for(1_500)
        for node_id in (4, 5):
            machines[node_id].start()
        storm.begin()
        _change(scheduler, wishes, storm)
        scheduler.run_for(STORM_MS)
        storm.mend()
        stay = [node_id for node_id in NODES if node_id not in wishes.leaving]
        acked_before = len(client.acked)
        require(
            scheduler.run_until(lambda: len(client.acked) > acked_before + 20, within_ms=SETTLE_MS),
            "no progress after the storm",
        )
        left = [machines[node_id] for node_id in stay]
        require(
            scheduler.run_until(lambda: _voting(left) == [set(stay)] * len(left), within_ms=SETTLE_MS),
            f"the voters are {_voting(left)}, and should be {stay}",
        )
        client.running = False
        require(
            scheduler.run_until(lambda: agreed(left), within_ms=SETTLE_MS), "no agreement after the storm"
        )
        checker.finish(left, client.acked)
        checker.majority_holds(left)
    except (CheckFailed, InvariantBroken) as error:
        raise failing_with_story(storm.trace, error) from error
    return storm.trace


def _voting(machines: list[Machine]) -> list[set[int]]:
    return [{voter.node_id for voter in machine.process.raft.voters.latest} for machine in machines]


def _change(scheduler: Scheduler, wishes: Wishes, storm: Storm) -> None:
    """Wish for changes at random moments of a storm; one of the nodes that join may be sent away again."""

    def join(node_id: int) -> None:
        wishes.joining.add(node_id)
        storm.trace.append(f"{scheduler.now_ms:9.1f} ms  node {node_id} shall vote")

    def leave(node_id: int) -> None:
        wishes.leaving.add(node_id)
        storm.trace.append(f"{scheduler.now_ms:9.1f} ms  node {node_id} shall not vote any more")

    for node_id in (4, 5):
        scheduler.after(scheduler.random.uniform(0, STORM_MS), lambda node_id=node_id: join(node_id))
    for node_id in scheduler.random.sample(NODES, scheduler.random.randint(0, 2)):
        scheduler.after(scheduler.random.uniform(0, STORM_MS), lambda node_id=node_id: leave(node_id))
