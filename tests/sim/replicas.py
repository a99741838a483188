"""The scenario of replication: three brokers, replicas of the real cores, clients that keep a history, and a storm."""

from __future__ import annotations

from collections.abc import Sequence

from ringlog.errors import RinglogError
from ringlog.model import NO_LEADER
from ringlog.replication.view import PartitionView
from tests.sim.faults import KINDS, Storm
from tests.sim.machine import Machine
from tests.sim.network import Network
from tests.sim.replay import CheckFailed, failing_with_story
from tests.sim.replica_broker import SimBroker
from tests.sim.replica_checks import ReplicaWatcher, check_acks, check_clients, check_replicas
from tests.sim.replica_clients import LossyProducer, SimConsumer, SimProducer
from tests.sim.replica_controller import CONTROLLER, SimController
from tests.sim.replica_log import LostBatch
from tests.sim.replica_real_controller import BriskController, LossyController, RealController
from tests.sim.scheduler import Scheduler
from tests.support.checkers.recording import AnyEvent

NODES = (1, 2, 3)
PARTITIONS = (1, 2)
FIRST_CLIENT = 1_000
SETTLE_MS = 60_000.0
ALL_KINDS = (*KINDS, "rot", "wipe", "reopen", "hole")
HOLE_KINDS = ("hole", "hole", "hole", *KINDS, "reopen")
"""Those under which segments that were lost are mended."""
UNCLEAN_KINDS = ("kill", "kill", "kill", "power", "pause", "isolate", "slow_disk", "rough", "wipe")
"""Those that leave a partition without anybody in sync."""


class ReplicaStorm(Storm):
    """The usual faults, and disks that rot or are replaced: one machine at a time, while others are in sync."""

    def __init__(self, world: ReplicaWorld, kinds: Sequence[str], haste: float = 1) -> None:
        super().__init__(world.scheduler, world.network, world.machines, kinds=kinds, haste=haste)
        self._world = world
        self._hurt: Machine | None = None

    def _break(self) -> None:
        """While a machine that was hurt is not whole again the others are left alone: two at once are a majority."""
        if self._is_healing():
            self._next()
        else:
            super()._break()

    def _is_healing(self) -> bool:
        hurt, views = self._hurt, self._world.controller.views.values()
        is_whole = hurt is not None and hurt.up and hurt.process.is_sure
        if hurt is not None and is_whole and all(hurt.node_id in view.isr for view in views):
            self._hurt = hurt = None
        return hurt is not None and not self._over

    def _may_hurt(self, one: Machine | None = None) -> bool:
        """Whether the others are sure to be elected: they are up, connected and in sync, and will be in a moment.
        `one`: that need not be."""
        apart = set() if one is None else {one.node_id}
        views = self._world.controller.views
        return (
            self._network.is_whole
            and all(machine.up and not machine.paused for machine in self._machines)
            and all(set(view.replicas) - set(view.isr) <= apart for view in views.values())
            and all(machine.process.is_whole for machine in self._machines)
            and not any(machine.process.may_isolate(views) for machine in self._machines)
        )

    def _reopen(self, machine: Machine, lasts_ms: float) -> None:
        """The process that has the replicas dies and is back at once; the node does not notice. When it hurts most:
        with a proposal on its way, or with records that are not flushed, if there are any within this time."""
        until_ms = self._scheduler.now_ms + lasts_ms
        with_proposal = self._scheduler.random.random() < 0.5

        def look() -> None:
            if self._over or not machine.up or machine.paused or machine.process.node_epoch < 0:
                return
            if self._is_healing():
                return  # another one was hurt since this was begun: two at once are a majority
            hurts = machine.process.proposes if with_proposal else machine.process.leads_ahead
            if hurts or self._scheduler.now_ms >= until_ms:
                rotten = self._may_hurt() and self._scheduler.random.random() < 0.3
                self._note(f"replicas of {machine.node_id} are opened anew{', rotten' if rotten else ''}")
                if rotten:
                    self._hurt, self._world.watcher.hurt = machine, machine.node_id
                machine.process.reopen(self._scheduler.random, rotten=rotten)
            else:
                self._scheduler.after(1.0, look)

        look()

    def _rot(self, machine: Machine, lasts_ms: float) -> None:
        """Some batch that was flushed cannot be read at the next start."""
        if self._may_hurt():
            journals = [
                j for name, j in sorted(machine.disk.journals().items()) if name[0] == "p" and j.flushed
            ]
            machine.kill()
            for journal in journals:
                at = self._scheduler.random.randrange(min(len(journal.flushed), len(journal.items)) or 1)
                if at < len(journal.items) and journal.items[at] == journal.flushed[at]:
                    journal.rot(at)
                    self._note(f"item {at} rots on {machine.node_id}, which is down")
            self._hurt, self._world.watcher.hurt = machine, machine.node_id
            self._later(lasts_ms, "start", machine)

    def _hole(self, machine: Machine, lasts_ms: float) -> None:
        """A sealed segment is lost, of any replica while all others are in sync: found at once, or at the next start.
        Nobody's disk loses more until that is mended; all else goes on."""
        if not self._may_hurt(machine):
            return
        choose = self._scheduler.random
        partition = choose.choice(sorted(machine.process.hosted))
        journal = machine.disk.journal(f"p{partition}")
        committed = self._world.watcher.committed.get(partition, [])
        if len(committed) < 3:
            return
        at = choose.randrange(len(committed) - 2)
        if at >= min(len(journal.flushed), len(journal.items)) or journal.flushed[at] != committed[at]:
            return
        is_found = choose.random() < 0.5
        self._note(
            f"item {at} of {partition} is lost on {machine.node_id}{', which is up' if is_found else ''}"
        )
        if not is_found:
            machine.kill()
            self._later(lasts_ms, "start", machine)
        journal.put(at, LostBatch(committed[at]))
        if is_found:
            machine.process.holed(partition)

    def _wipe(self, machine: Machine, lasts_ms: float) -> None:
        if self._may_hurt():
            self._note(f"the disk of {machine.node_id} is replaced")
            machine.kill()
            machine.disk.wipe()
            self._hurt, self._world.watcher.hurt = machine, machine.node_id
            self._later(lasts_ms, "start", machine)


def new_partition(partition: int, nodes: Sequence[int]) -> PartitionView:
    """A partition that nobody led yet, on three of the nodes."""
    replicas = tuple(nodes[(partition + at) % len(nodes)] for at in range(3))
    return PartitionView(partition, NO_LEADER, 0, 0, replicas, replicas, min_insync=2)


class ReplicaWorld:
    """A whole cluster."""

    def __init__(
        self,
        seed: int,
        *,
        broker: type[SimBroker] = SimBroker,
        controller: type[SimController] = SimController,
        nodes: Sequence[int] = NODES,
        views: Sequence[PartitionView] | None = None,
    ) -> None:
        self.scheduler = Scheduler(seed)
        self.network = Network(self.scheduler)
        self.history: list[AnyEvent] = []
        self.machines: list[Machine] = []
        self.watcher = ReplicaWatcher(self.machines)
        views = views or [new_partition(partition, nodes) for partition in PARTITIONS]
        hosts: dict[int, list[int]] = {node: [] for node in nodes}
        for view in views:
            for node in view.replicas:
                hosts[node].append(view.partition)
        brain = Machine(CONTROLLER, self.scheduler, self.network, lambda machine: controller(machine, views))
        brain.start()
        self.controller: SimController = brain.process
        self.controller.taken = self.watcher.taken
        self.watcher.views = self.controller.views
        for node in nodes:
            program = lambda machine: broker(machine, hosts[machine.node_id], self.watcher)  # noqa: E731
            self.machines.append(Machine(node, self.scheduler, self.network, program))
        self.producers: list[SimProducer] = []
        self.consumers: list[SimConsumer] = []

    def start(self, producers: int, producer: type[SimProducer] = SimProducer) -> None:
        """Start all machines and clients."""
        for machine in self.machines:
            machine.start()
        partitions = list(self.controller.views)
        for at in range(producers):
            partition = partitions[at % len(partitions)]
            self.producers.append(
                producer(FIRST_CLIENT + at, partition, self.scheduler, self.network, self.history)
            )
        for at, partition in enumerate(partitions[:2]):
            client = FIRST_CLIENT + producers + at
            self.consumers.append(SimConsumer(client, partition, self.scheduler, self.network, self.history))
        for client in (*self.producers, *self.consumers):
            client.begin()

    def settled(self) -> bool:
        """All clients are answered, all partitions have leaders, and all replicas are in sync."""
        return all(producer.idle for producer in self.producers) and all(
            view.leader != NO_LEADER and set(view.isr) == set(view.replicas)
            for view in self.controller.views.values()
        )

    def judge(self) -> None:
        """Everything that must hold when all is over."""
        self.must_be_whole()
        check_clients(self.history, self.machines, self._led())

    def _led(self) -> list[PartitionView]:
        return [view for view in self.controller.views.values() if view.leader != NO_LEADER]

    def must_be_whole(self) -> None:
        """No replica has halted, and those in sync have all that is committed."""
        for machine in self.machines:
            for hosted in machine.process.hosted.values():
                if hosted.replica.halted is not None:
                    raise CheckFailed(str(hosted.replica.halted))
        check_replicas(self.watcher, self.machines, self._led())


def unclean(seed: int) -> list[str]:
    """A topic that prefers a leader that lacks records to none loses no more than such an election takes: replicas
    agree, and what was acknowledged since stands. Nothing halts, and all are in sync again."""
    world = ReplicaWorld(seed, controller=LossyController)
    storm = ReplicaStorm(world, UNCLEAN_KINDS)
    try:
        world.start(producers=3, producer=LossyProducer)
        _weather(world, storm, 8_000.0)
        world.must_be_whole()
        views = list(world.controller.views.values())
        acks = [
            (one.partition, *ack)
            for one in world.producers
            if isinstance(one, LossyProducer)
            for ack in one.acks
        ]
        check_acks(world.watcher, acks, world.machines, views)
    except (CheckFailed, RinglogError, AssertionError) as error:
        raise failing_with_story(storm.trace, error) from error
    return [*storm.trace, *(f"unclean election of partition {one}" for one in world.watcher.unclean)]


class BriskBroker(SimBroker):
    """One of a cluster in which everything takes a quarter of the time."""

    heartbeat_ms = SimBroker.heartbeat_ms / 4
    lag_ms_max = SimBroker.lag_ms_max // 4


def replicas_short(seed: int, kinds: Sequence[str] = ALL_KINDS) -> list[str]:
    """The same promises in a short storm of short faults: several seeds for the time of one."""
    return replicas(
        seed, broker=BriskBroker, controller=BriskController, kinds=kinds, storm_ms=2_000.0, haste=4
    )


def _weather(world: ReplicaWorld, storm: ReplicaStorm, storm_ms: float) -> None:
    """A storm, and what comes after: all in sync."""
    world.scheduler.run_for(500)
    storm.begin()
    world.scheduler.run_for(storm_ms)
    storm.mend()
    for producer in world.producers:
        producer.stop()
    if not world.scheduler.run_until(world.settled, within_ms=SETTLE_MS, step_ms=50):
        views = list(world.controller.views.values())
        world.must_be_whole()  # it says more than that
        raise CheckFailed(f"not in sync again within {SETTLE_MS} ms: {views}")
    world.scheduler.run_for(storm_ms / 4)


def replicas(
    seed: int,
    *,
    broker: type[SimBroker] = SimBroker,
    controller: type[SimController] = RealController,
    kinds: Sequence[str] = ALL_KINDS,
    storm_ms: float = 8_000.0,
    haste: float = 1,
) -> list[str]:
    """Nothing acknowledged is lost and replicas agree, whatever happened; afterwards, all are in sync again."""
    world = ReplicaWorld(seed, broker=broker, controller=controller)
    storm = ReplicaStorm(world, kinds, haste)
    try:
        world.start(producers=3)
        _weather(world, storm, storm_ms)
        world.judge()
    except (CheckFailed, RinglogError, AssertionError) as error:
        raise failing_with_story(storm.trace, error) from error
    return storm.trace
