"""A cluster as large as on paper: racks of brokers, thousands of partitions; a rack is lost, then all restart in turn.

python -m tests.sim.paper                                  # 50 brokers, 10,000 partitions: some minutes
python -m tests.sim.paper --brokers 10 --partitions 300    # a small one

It reports how long the cluster needed to be writable and to be in sync again, and the bytes that moved for it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from dataclasses import dataclass

from ringlog.model import NO_LEADER
from ringlog.replication.view import PartitionView
from tests.sim.replay import CheckFailed
from tests.sim.replica_broker import Hosted, SimBroker
from tests.sim.replica_clients import SimProducer
from tests.sim.replicas import ReplicaWorld

RACKS = 5
WITHIN_MS = 120_000.0
RACK_DOWN_MS = 10_000.0
RESTART_MS = 300.0
"""How long a broker is away in a rolling restart."""


class CalmBroker(SimBroker):
    """Looks after its hundreds of partitions less often; after those that lack a replica as often as ever."""

    tick_ms = 50.0
    heartbeat_ms = 200.0
    turns = 10
    """In so many ticks every partition has been looked after."""
    _turn = 0

    def _to_look_after(self) -> Iterable[Hosted]:
        self._turn = (self._turn + 1) % self.turns
        for at, hosted in enumerate(self.hosted.values()):
            leader = hosted.replica.leader
            if leader is not None:
                view = leader.view
                if at % self.turns == self._turn or leader.pending or len(view.isr) < len(view.replicas):
                    yield hosted


class CalmProducer(SimProducer):
    pauses_ms = (200.0, 500.0, 1_000.0)


@dataclass
class PaperReport:
    """What was measured, in virtual time."""

    brokers: int
    partitions: int
    rack_brokers: int = 0
    led_by_rack: int = 0
    leaders_ms: float = 0.0
    """From the loss of the rack until every partition has a leader elsewhere."""
    back_in_sync_ms: float = 0.0
    """From the return of the rack until all replicas are in sync."""
    rack_moved_bytes: int = 0
    """Sent to followers meanwhile."""
    restart_ms: float = 0.0
    """All brokers, one after another, each waiting for the last to be in sync."""
    restart_worst_ms: float = 0.0
    """Of one broker, until all its replicas were in sync again."""
    restart_moved_bytes: int = 0
    acked: int = 0

    def __str__(self) -> str:
        return (
            f"{self.brokers} brokers in {RACKS} racks, {self.partitions} partitions, replication 3, min in-sync 2\n"
            f"a rack of {self.rack_brokers} is lost, which led {self.led_by_rack} partitions: all have a leader after "
            f"{self.leaders_ms:.0f} ms\n"
            f"it returns after {RACK_DOWN_MS:.0f} ms: in sync after {self.back_in_sync_ms:.0f} ms, "
            f"{self.rack_moved_bytes} bytes moved\n"
            f"a rolling restart takes {self.restart_ms / 1000:.0f} s, at most {self.restart_worst_ms:.0f} ms each, "
            f"{self.restart_moved_bytes} bytes moved\n"
            f"{self.acked} records were acknowledged, and none was lost"
        )


def place(partitions: int, brokers: int) -> list[PartitionView]:
    """Each partition on brokers of three different racks: broker n stands in rack n mod RACKS."""
    views = []
    for partition in range(1, partitions + 1):
        # Neighbours stand in different racks; the step spreads the followers of one leader over all others.
        first, step = partition % brokers, (1 + partition // brokers % 3) % RACKS
        chosen = [(first + at * step) % brokers for at in range(3)]
        replicas = tuple(node + 1 for node in chosen)
        views.append(PartitionView(partition, NO_LEADER, 0, 0, replicas, replicas, min_insync=2))
    return views


def paper(seed: int, *, brokers: int = 50, partitions: int = 10_000, producers: int = 300) -> PaperReport:
    """Run it all; raises CheckFailed when something is lost or does not recover."""
    views = place(partitions, brokers)
    world = ReplicaWorld(seed, broker=CalmBroker, nodes=range(1, brokers + 1), views=views)
    report = PaperReport(brokers, partitions)
    world.start(producers, CalmProducer)
    _until(world, lambda: _in_sync(world), "the start")
    world.scheduler.run_for(2_000)
    _lose_rack(world, report)
    _restart_all(world, report)
    for producer in world.producers:
        producer.stop()
    _until(world, world.settled, "the end")
    world.scheduler.run_for(1_000)
    world.judge()
    report.acked = sum(producer.acked for producer in world.producers)
    return report


def _lose_rack(world: ReplicaWorld, report: PaperReport) -> None:
    rack = [machine for machine in world.machines if machine.node_id % RACKS == 0]
    nodes = {machine.node_id for machine in rack}
    report.rack_brokers = len(rack)
    report.led_by_rack = sum(view.leader in nodes for view in world.controller.views.values())
    for machine in rack:
        machine.lose_power()
    report.leaders_ms = _until(world, lambda: _led_outside(world, nodes), "the loss of a rack")
    world.scheduler.run_for(RACK_DOWN_MS - report.leaders_ms)
    moved = world.watcher.moved_bytes
    for machine in rack:
        machine.start()
    report.back_in_sync_ms = _until(world, lambda: _in_sync(world), "the return of a rack")
    report.rack_moved_bytes = world.watcher.moved_bytes - moved


def _restart_all(world: ReplicaWorld, report: PaperReport) -> None:
    began_ms, moved = world.scheduler.now_ms, world.watcher.moved_bytes
    for machine in world.machines:
        machine.kill()
        world.scheduler.run_for(RESTART_MS)
        machine.start()
        process = machine.process

        def is_back() -> bool:
            return process.node_epoch >= 0 and _in_sync(world)  # noqa: B023

        took_ms = _until(world, is_back, f"the restart of {machine.node_id}")
        report.restart_worst_ms = max(report.restart_worst_ms, RESTART_MS + took_ms)
    report.restart_ms = world.scheduler.now_ms - began_ms
    report.restart_moved_bytes = world.watcher.moved_bytes - moved


def _until(world: ReplicaWorld, condition, what: str) -> float:
    began_ms = world.scheduler.now_ms
    if not world.scheduler.run_until(condition, within_ms=WITHIN_MS, step_ms=50):
        raise CheckFailed(f"not over {what} within {WITHIN_MS} ms")
    return world.scheduler.now_ms - began_ms


def _in_sync(world: ReplicaWorld) -> bool:
    return all(len(view.isr) == 3 and view.leader != NO_LEADER for view in world.controller.views.values())


def _led_outside(world: ReplicaWorld, nodes: set[int]) -> bool:
    for view in world.controller.views.values():
        if view.leader == NO_LEADER or view.leader in nodes:
            return False
        process = world.machines[view.leader - 1].process
        if process is None or process.hosted[view.partition].replica.leader is None:
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.paper", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=10_000)
    given = parser.parse_args()
    began_s = time.monotonic()
    print(paper(given.seed, brokers=given.brokers, partitions=given.partitions))
    print(f"simulated in {time.monotonic() - began_s:.0f} s")


if __name__ == "__main__":
    main()
