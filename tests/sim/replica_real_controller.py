"""The controller's real decisions behind the simulated one's messages: registrations, leaders and in-sync replicas.

Its image is kept by a process that never dies: how controllers agree on it is another scenario's matter (`quorum`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ringlog.controller.brokers import Liveness, fence, heartbeat, register
from ringlog.controller.image import MetadataImage
from ringlog.controller.isr import alter_isr
from ringlog.controller.leaders import may_lead
from ringlog.controller.records import MetadataRecord, Partition, Topic
from ringlog.controller.topic_config import UNCLEAN_ELECTION
from ringlog.controller.unclean import UncleanElections
from ringlog.errors import StaleBroker
from ringlog.net.cluster_messages import (
    AlterIsrReply,
    AlterIsrRequest,
    BrokerHeartbeatRequest,
    IsrChange,
    RegisterBrokerRequest,
)
from ringlog.replication.view import IsrProposal, PartitionView
from tests.sim.machine import Machine
from tests.sim.replica_controller import (
    CHECK_MS,
    SESSION_MS,
    Heartbeat,
    NotRegistered,
    Register,
    Registered,
    SimController,
    Views,
)

ABSENT_MS = 650.0
LEADERLESS_MS = 100.0
"""Where a topic allows an unclean election: how long a broker may be silent, and nobody lead, before there is one."""


class RealController(SimController):
    """Asks `ringlog.controller` for every decision."""

    topic_config: Mapping[str, str] = {"min.insync.replicas": "2"}
    session_ms = SESSION_MS

    def __init__(self, machine: Machine, partitions: Iterable[PartitionView]) -> None:
        super().__init__(machine, partitions)
        self.image = MetadataImage()
        self._liveness = Liveness(self.session_ms, ABSENT_MS)
        self._unclean = UncleanElections(wait_ms=LEADERLESS_MS)
        self._liveness.take_office(machine.now_ms())
        self._disks: dict[int, int] = {}
        self._lives: dict[int, int] = {}
        self._nodes = {node for view in self.views.values() for node in view.replicas}

    def _apply(self, records: Iterable[MetadataRecord]) -> None:
        for record in records:
            self.image.replay(record)
            if isinstance(record, Partition):
                before = self.views[record.partition]
                self.views[record.partition] = before._replace(
                    leader=record.leader,
                    leader_epoch=record.leader_epoch,
                    partition_epoch=record.partition_epoch,
                    isr=record.isr,
                    unclean_epoch=record.unclean_epoch,
                )
                self._changes.append(record.partition)

    def _create(self) -> None:
        """Topics are made when enough brokers are there."""
        ready = {node for node, broker in self.image.brokers.items() if not broker.fenced}
        if self.image.topics or ready != self._nodes:
            return
        self._apply([Topic(1, "t", dict(self.topic_config))])
        for view in list(self.views.values()):
            replicas = view.replicas
            record = Partition(
                view.partition, 1, view.partition, 0, 1, 1, replicas, (0, 0, 0), replicas[0], replicas
            )
            self._apply([record])

    def _register(self, message: Register) -> None:
        if message.incarnation < self._lives.get(message.node, 0):
            return  # of an earlier life
        if message.incarnation > self._lives.get(message.node, 0):
            self._lives[message.node] = message.incarnation
            self._disks[message.node] = self._disks.get(message.node, 0) + message.is_new
        request = RegisterBrokerRequest(
            message.node,
            str(message.incarnation),
            f"disk-{self._disks[message.node]}",
            [],
            "",
            clean_stop=message.clean,
        )
        outcome = register(self.image, request)
        self._apply(outcome.records)
        epoch = self.image.brokers[message.node].broker_epoch
        self._machine.send(message.node, Registered(epoch, message.incarnation))

    def _heartbeat(self, message: Heartbeat) -> None:
        request = BrokerHeartbeatRequest(message.node, message.node_epoch, message.version)
        try:
            outcome = heartbeat(self.image, request, committed_version=len(self._changes))
        except StaleBroker:
            self._machine.send(message.node, NotRegistered(message.node_epoch))
            return
        self._liveness.heard(message.node, self._machine.now_ms())
        self._apply(outcome.records)
        self._create()
        changed = dict.fromkeys(self._changes[message.version :])
        views = [
            self.views[partition] for partition in changed if message.node in self.views[partition].replicas
        ]
        lives = {
            node: one.broker_epoch for node, one in self.image.brokers.items() if may_lead(self.image, node)
        }
        self._machine.send(message.node, Views(message.node_epoch, len(self._changes), views, lives))

    def _check(self) -> None:
        self._machine.after(CHECK_MS, self._check)
        now_ms = self._machine.now_ms()
        for node in self._liveness.silent(self.image, now_ms):
            self._apply(fence(self.image, node))
        self._apply(self._unclean.due(self.image, self._liveness.absent(self.image, now_ms), now_ms))

    def _propose(self, proposal: IsrProposal) -> None:
        brokers = self.image.brokers
        isr = [(node, brokers[node].broker_epoch if epoch < 0 else epoch) for node, epoch in proposal.isr]
        change = IsrChange(
            proposal.partition, proposal.leader_epoch, proposal.partition_epoch, isr, proposal.renews
        )
        leader_epoch = dict(proposal.isr)[proposal.leader]
        try:
            outcome = alter_isr(self.image, AlterIsrRequest(proposal.leader, leader_epoch, [change]))
        except StaleBroker:
            self._refuse(proposal)
            return
        self._apply(outcome.records)
        reply = outcome.reply(self.image)
        assert isinstance(reply, AlterIsrReply)
        if reply.partitions[0].error:
            self._refuse(proposal)
        else:
            self.taken(self.views[proposal.partition])


class LossyController(RealController):
    """Of a topic that prefers a leader that lacks records to none."""

    topic_config: Mapping[str, str] = {"min.insync.replicas": "2", UNCLEAN_ELECTION: "true"}


class BriskController(RealController):
    """One that gives nobody much time."""

    session_ms = SESSION_MS / 4
