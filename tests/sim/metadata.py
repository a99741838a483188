"""The scenario of the cluster's metadata: brokers come and go, leaders and in-sync replicas change, in a storm."""

from __future__ import annotations

import msgspec

from ringlog.consensus.messages import Voter
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Broker, MetadataRecord, Partition, Topic
from ringlog.controller.topic_config import UNCLEAN_ELECTION, allows_unclean
from ringlog.errors import InvariantBroken
from ringlog.model import NO_LEADER
from ringlog.net.messages import CreateTopicRequest
from tests.sim.faults import KINDS, Storm
from tests.sim.machine import Machine
from tests.sim.metadata_node import Answer, Asked, MetadataNode
from tests.sim.network import Network
from tests.sim.quorum_checks import QuorumChecker, require
from tests.sim.replay import CheckFailed, failing_with_story
from tests.sim.scheduler import Scheduler

CLIENT = 100
CREATE_MS = 150.0
STORM_MS = 6_000.0
SETTLE_MS = 30_000.0
_records = msgspec.msgpack.Decoder(list[MetadataRecord])


class Admin:
    """Creates topics, at whoever may lead, and remembers which it was told exist."""

    def __init__(self, scheduler: Scheduler, network: Network, voters: int) -> None:
        self._scheduler, self._network, self._voters = scheduler, network, voters
        self._next = 0
        self._target = 1
        self.created: set[str] = set()
        self.running = True
        network.join(CLIENT, self._receive)
        self._ask()

    def _ask(self) -> None:
        if self.running:
            self._next += 1
            config = {UNCLEAN_ELECTION: "true"} if self._next % 2 else {}
            request = CreateTopicRequest(f"t{self._next}", 2, 3, config)
            self._network.send(CLIENT, self._target, Asked(CLIENT, self._next, request))
            if self._scheduler.chance(0.2):
                self._target = self._scheduler.random.randint(1, self._voters)
            self._scheduler.after(CREATE_MS, self._ask)

    def _receive(self, source: int, message: object) -> None:
        if isinstance(message, Answer):
            if message.error == "" and message.body is not None:
                self.created.add(message.body.topic.name)
            elif message.leader_id is not None:
                self._target = message.leader_id


def check_history(entries: list[tuple[int, bytes]]) -> MetadataImage:
    """Go through all committed records from the first: every change of a partition must follow from the one before."""
    image = MetadataImage()
    broker_epochs: set[int] = set()
    for index, data in entries:
        for record in _records.decode(data):
            if isinstance(record, Partition):
                _check_partition(image, record, index)
            elif isinstance(record, Broker):
                known = image.brokers.get(record.node_id)
                if known is None or known.broker_epoch != record.broker_epoch:
                    require(
                        record.broker_epoch not in broker_epochs, f"{index}: a broker epoch was given twice"
                    )
                    broker_epochs.add(record.broker_epoch)
            elif isinstance(record, Topic):
                require(record.name not in image.topics, f"{index}: topic {record.name} was created twice")
            image.replay(record)
    return image


def _check_partition(image: MetadataImage, new: Partition, index: int) -> None:
    where = f"{index}: partition {new.partition}"
    require(set(new.isr) <= set(new.replicas), f"{where}: {new.isr} are not all replicas")
    require(new.leader == NO_LEADER or new.leader in new.isr, f"{where}: leader {new.leader} is not in sync")
    old = image.partitions.get(new.partition)
    if old is None:
        return
    same = (old.leader, old.isr, old.replicas) == (new.leader, new.isr, new.replicas)
    require(same or new.partition_epoch == old.partition_epoch + 1, f"{where}: a change without its epoch")
    moved = new.leader != old.leader
    require(
        new.leader_epoch == old.leader_epoch + moved, f"{where}: {old.leader_epoch} to {new.leader_epoch}"
    )
    if new.unclean_epoch != old.unclean_epoch:
        topic = image.topics_by_id[new.topic_id]
        require(
            new.unclean_epoch == new.leader_epoch > old.leader_epoch,
            f"{where}: {new.unclean_epoch} is no election",
        )
        require(
            allows_unclean(topic.name, topic.config), f"{where}: an unclean election, and nobody allowed it"
        )
        alive = [node_id for node_id in old.isr if not image.brokers[node_id].fenced]
        require(not alive, f"{where}: an unclean election, and {alive} are in sync and alive")
    elif moved and new.leader != NO_LEADER:
        require(new.leader in old.isr, f"{where}: {new.leader} leads and was not in sync {old.isr}")


def metadata(seed: int, node: type[MetadataNode] = MetadataNode) -> list[str]:
    """Every change of the metadata follows from the one before, no topic is lost, and after the storm all agree."""
    scheduler = Scheduler(seed)
    network = Network(scheduler)
    checker = QuorumChecker()
    everyone = tuple(Voter(node_id, "") for node_id in (1, 2, 3))
    machines = [
        Machine(voter.node_id, scheduler, network, lambda machine: node(machine, everyone, checker))
        for voter in everyone
    ]
    storm = Storm(scheduler, network, machines, kinds=KINDS)
    try:
        for machine in machines:
            machine.start()
        scheduler.run_for(2_000)
        admin = Admin(scheduler, network, len(machines))
        scheduler.run_for(1_000)
        storm.begin()
        scheduler.run_for(STORM_MS)
        storm.mend()
        admin.running = False
        require(
            scheduler.run_until(lambda: _healthy(machines), within_ms=SETTLE_MS),
            "not healthy after the storm",
        )
        images = [check_history(machine.process.applied) for machine in machines]
        for image in images[1:]:
            require(image.records() == images[0].records(), "two nodes have different metadata")
        lost = admin.created - images[0].topics.keys()
        require(not lost, f"created and lost: {sorted(lost)}")
        require(len(admin.created) > 0, "something was created")
    except (CheckFailed, InvariantBroken) as error:
        raise failing_with_story(storm.trace, error) from error
    return storm.trace


def _healthy(machines: list[Machine]) -> bool:
    """Everyone is let in, every partition is led, and all have applied the same log to its end."""
    nodes = [machine.process for machine in machines]
    # By what the image has: a snapshot that is still being flushed counts as applied in the quorum's core.
    ends = {(node.raft.log.last_index, node.image.version) for node in nodes}
    # Also to its end: nodes that have just started know their snapshots alone, and may agree in them.
    if len(ends) != 1 or any(applied < last for last, applied in ends):
        return False
    image = nodes[0].image
    let_in = len(image.brokers) == len(machines) and not any(
        broker.fenced for broker in image.brokers.values()
    )
    return let_in and all(partition.leader != NO_LEADER for partition in image.partitions.values())
