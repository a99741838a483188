"""A node's controller in the simulator: the real quorum, the real controller on it, and a broker that registers.

The broker half is a caricature of a real one: it sends signs of life, and, where it leads a partition, it now and then
proposes other in-sync replicas, as chance has it, from what it knows of the metadata, which may be old.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ringlog.consensus.messages import Entry, Snapshot, Voter
from ringlog.controller.active import ActiveController, Request
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import MetadataRecord
from ringlog.errors import NotController, RinglogError
from ringlog.net.cluster_messages import (
    AlterIsrRequest,
    BrokerHeartbeatRequest,
    IsrChange,
    RegisterBrokerReply,
    RegisterBrokerRequest,
)
from tests.sim.machine import Machine
from tests.sim.quorum_node import Observer, QuorumNode

HEARTBEAT_MS = 80.0
SESSION_MS = 600.0
PROPOSE_MS = 120.0
_records = msgspec.msgpack.Decoder(list[MetadataRecord])


class Asked(NamedTuple):
    """A request to the active controller."""

    source: int
    number: int
    request: Request


class Answer(NamedTuple):
    """Its answer, or an error's code."""

    number: int
    body: Any
    error: str = ""
    leader_id: int | None = None


class MetadataNode(QuorumNode):
    """One life of a node."""

    active_controller: type[ActiveController] = ActiveController

    def __init__(self, machine: Machine, voters: tuple[Voter, ...], observer: Observer) -> None:
        self.image = MetadataImage()
        self._active: ActiveController | None = None
        self._active_epoch = 0
        self._replies: dict[int, list[tuple[int, Asked, Any]]] = {}
        self._broker_epoch: int | None = None
        self._number = 0
        super().__init__(machine, voters, observer)
        self._life = f"{machine.node_id}.{machine.incarnation}"
        self._beat()
        machine.after(PROPOSE_MS, self._propose_isr)

    # -- the controller ----------------------------------------------------------------------------------------

    def receive(self, source: int, message: Any) -> None:
        if isinstance(message, Asked):
            self._judge(message)
        elif isinstance(message, Answer):
            if isinstance(message.body, RegisterBrokerReply):
                self._broker_epoch = message.body.broker_epoch
            elif message.error == "STALE_BROKER":
                self._broker_epoch = None
        else:
            super().receive(source, message)

    def _tick(self) -> None:
        active = self._in_office()
        if active is not None:
            records = active.due(self.machine.now_ms())
            if records:
                self._append(active, records)
        super()._tick()

    def _in_office(self) -> ActiveController | None:
        raft = self.raft
        if raft.leader_id != raft.me.node_id:
            self._active = None
            return None
        if self._active is None or self._active_epoch != raft.epoch:
            appended = [
                record
                for index in range(raft.applied_index + 1, raft.log.last_index + 1)
                if (entry := raft.log.entry(index)) is not None and entry.kind == "data"
                for record in _records.decode(entry.data)
            ]
            self._active = self.active_controller(
                self.image,
                appended,
                session_ms=SESSION_MS,
                now_ms=self.machine.now_ms(),
                absent_ms=SESSION_MS,
            )
            self._active_epoch = raft.epoch
        return self._active

    def _judge(self, asked: Asked) -> None:
        active = self._in_office()
        try:
            if active is None:
                raise NotController("another one")
            version = self.raft.commit_index
            outcome = active.judge(asked.request, committed_version=version, now_ms=self.machine.now_ms())
            index = self._append(active, outcome.records) if outcome.records else self.raft.log.last_index
        except RinglogError as error:
            self.machine.send(asked.source, Answer(asked.number, None, error.code, self.raft.leader_id))
            return
        if index <= self.raft.applied_index:
            self.machine.send(asked.source, Answer(asked.number, outcome.reply(self.image)))
        else:
            self._replies.setdefault(index, []).append((self.raft.epoch, asked, outcome.reply))

    def _append(self, active: ActiveController, records: list[MetadataRecord]) -> int:
        index = self.raft.propose(msgspec.msgpack.encode(records))
        active.appended(records)
        self._after()
        return index

    def _apply(self, entry: Entry) -> None:
        if entry.kind == "data":
            self.applied.append((entry.index, entry.data))
            for record in _records.decode(entry.data):
                self.image.replay(record)
        self.image.version = entry.index
        for epoch, asked, reply in self._replies.pop(entry.index, []):
            if epoch == entry.epoch:
                self.machine.send(asked.source, Answer(asked.number, reply(self.image)))

    def _restore(self, snapshot: Snapshot) -> None:
        super()._restore(snapshot)
        self.image = MetadataImage()
        for _, data in self.applied:
            for record in _records.decode(data):
                self.image.replay(record)
        self.image.version = snapshot.last_index

    # -- the broker --------------------------------------------------------------------------------------------

    def _ask(self, request: Request) -> None:
        self._number += 1
        leader_id = self.raft.leader_id
        if leader_id is not None:
            self.machine.send(leader_id, Asked(self.machine.node_id, self._number, request))

    def _beat(self) -> None:
        node_id = self.machine.node_id
        if self._broker_epoch is None:
            self._ask(RegisterBrokerRequest(node_id, self._life, self.raft.me.disk_id, [], "", shards=2))
        else:
            self._ask(BrokerHeartbeatRequest(node_id, self._broker_epoch, self.image.version))
        self.machine.after(HEARTBEAT_MS, self._beat)

    def _propose_isr(self) -> None:
        me, choose = self.machine.node_id, self.machine.scheduler.random
        mine = [partition for partition in self.image.partitions.values() if partition.leader == me]
        if mine and self._broker_epoch is not None:
            partition = choose.choice(mine)
            isr = [n for n in partition.replicas if n == me or choose.random() < 0.7]
            members = [(n, self.image.brokers[n].broker_epoch) for n in isr if n in self.image.brokers]
            change = IsrChange(
                partition.partition, partition.leader_epoch, partition.partition_epoch, members
            )
            self._ask(AlterIsrRequest(me, self._broker_epoch, [change]))
        self.machine.after(PROPOSE_MS, self._propose_isr)
