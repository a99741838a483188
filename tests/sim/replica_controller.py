"""A controller for simulated replicas, as small as can be: one process that never dies, with the rules of the real one.

It says who leads which partition and who is in sync. Brokers register, and are fenced when they fall silent; a leader
is elected among the in-sync replicas that are alive; changes of the ISR are taken only against the present epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ringlog.model import NO_LEADER
from ringlog.replication.view import IsrProposal, PartitionView
from tests.sim.machine import Machine

CONTROLLER = 0
SESSION_MS = 600.0
CHECK_MS = 50.0


class Register(NamedTuple):
    """A broker begins. `damaged`: partitions whose logs lost what was flushed."""

    node: int
    incarnation: int
    clean: bool
    damaged: frozenset[int]
    is_new: bool
    """Its disk is empty: whatever it held before is gone."""


class Registered(NamedTuple):
    node_epoch: int
    incarnation: int


class Heartbeat(NamedTuple):
    node: int
    node_epoch: int
    version: int
    """Of the metadata that the broker has."""


class Views(NamedTuple):
    """What changed for a broker. `node_epoch`: whose heartbeat this answers."""

    node_epoch: int
    version: int
    views: list[PartitionView]
    lives: dict[int, int]
    """The brokers that are there, each with its epoch."""


class AskLeader(NamedTuple):
    """A client's question."""

    partition: int


class NotRegistered(NamedTuple):
    node_epoch: int


class ProposalRefused(NamedTuple):
    """How the partition stood when it was refused, beside it."""

    proposal: IsrProposal
    leader_epoch: int
    partition_epoch: int


class Broker:
    """What the controller knows of a broker."""

    def __init__(self, node_epoch: int, incarnation: int, seen_ms: float) -> None:
        self.node_epoch = node_epoch
        self.incarnation = incarnation
        self.seen_ms = seen_ms
        self.alive = True


class SimController:
    """All partitions of the simulated cluster."""

    compares = True
    """Off: the mutant that takes changes of the ISR whatever they were made against."""
    bumps_on_restart = True
    """Off: the mutant that lets a leader which restarted go on in its epoch."""
    believes_restarted = False
    """On: the mutant that leaves a replica in sync whatever it may have lost."""
    elects_anyone = False
    """On: the mutant that prefers some leader to none."""

    def __init__(self, machine: Machine, partitions: Iterable[PartitionView]) -> None:
        self._machine = machine
        self.views = {view.partition: view for view in partitions}
        self._of_node: dict[int, list[int]] = {}
        for view in self.views.values():
            for node in view.replicas:
                self._of_node.setdefault(node, []).append(view.partition)
        self._changes = list(self.views)
        """Partitions in the order of their changes: a version is a place in it."""
        self._leaderless = set(self.views)
        self.brokers: dict[int, Broker] = {}
        self.lost: set[tuple[int, int]] = set()
        """(partition, node): in sync as far as is known, but what it held is gone. Never elected."""
        self._next_epoch = 1
        self.taken: Callable[[PartitionView], None] = lambda view: None
        """Is told of every change of the in-sync replicas that a leader asked for."""
        machine.after(CHECK_MS, self._check)

    def receive(self, source: int, message: object) -> None:
        if isinstance(message, Register):
            self._register(message)
        elif isinstance(message, Heartbeat):
            self._heartbeat(message)
        elif isinstance(message, IsrProposal):
            self._propose(message)
        elif isinstance(message, AskLeader):
            self._machine.send(source, self.views[message.partition])

    def _register(self, message: Register) -> None:
        known = self.brokers.get(message.node)
        now_ms = self._machine.now_ms()
        if known is None or known.incarnation < message.incarnation:
            was_here = known is not None
            known = self.brokers[message.node] = Broker(self._next_epoch, message.incarnation, now_ms)
            self._next_epoch += 1
            for partition in self._of_node.get(message.node, ()) if was_here else ():
                view = self.views[partition]
                if message.node in view.isr or view.leader == message.node:
                    self._restarted(view, message)
        elif known.incarnation > message.incarnation:
            return  # of an earlier life
        known.seen_ms, known.alive = now_ms, True
        self._elect()
        self._machine.send(message.node, Registered(known.node_epoch, message.incarnation))

    def _restarted(self, view: PartitionView, message: Register) -> None:
        node, isr = message.node, view.isr
        if view.leader == node and not self.bumps_on_restart:
            return
        if not self.believes_restarted and not message.clean and len(isr) > 1:
            isr = tuple(other for other in isr if other != node)
        if not self.believes_restarted and (message.is_new or view.partition in message.damaged):
            self.lost.add((view.partition, node))
        if view.leader == node:
            view = view._replace(leader=NO_LEADER, leader_epoch=view.leader_epoch + 1)
        self._change(view._replace(isr=isr))

    def _heartbeat(self, message: Heartbeat) -> None:
        broker = self.brokers.get(message.node)
        if broker is None or broker.node_epoch != message.node_epoch:
            self._machine.send(message.node, NotRegistered(message.node_epoch))
            return
        broker.seen_ms = self._machine.now_ms()
        if not broker.alive:
            broker.alive = True
            self._elect()
        changed = dict.fromkeys(self._changes[message.version :])
        views = [
            self.views[partition] for partition in changed if message.node in self.views[partition].replicas
        ]
        lives = {node: one.node_epoch for node, one in self.brokers.items() if one.alive}
        self._machine.send(message.node, Views(message.node_epoch, len(self._changes), views, lives))

    def _check(self) -> None:
        self._machine.after(CHECK_MS, self._check)
        for node, broker in self.brokers.items():
            if broker.alive and self._machine.now_ms() - broker.seen_ms > SESSION_MS:
                broker.alive = False
                for partition in self._of_node.get(node, ()):
                    self._fence(self.views[partition])
                self._elect()

    def _fence(self, view: PartitionView) -> None:
        """Who is not alive neither leads nor is in sync, as long as somebody else is."""
        alive = tuple(node for node in view.isr if self._alive(node))
        isr = alive or view.isr
        leader = view.leader if view.leader == NO_LEADER or self._alive(view.leader) else NO_LEADER
        if isr != view.isr or leader != view.leader:
            epoch = view.leader_epoch + (leader != view.leader)
            self._change(view._replace(isr=isr, leader=leader, leader_epoch=epoch))

    def _alive(self, node: int) -> bool:
        broker = self.brokers.get(node)
        return broker is not None and broker.alive

    def _elect(self) -> None:
        for partition in sorted(self._leaderless):
            view = self.views[partition]
            for node in view.replicas:
                if self._alive(node) and (self.elects_anyone or self._is_whole(view, node)):
                    isr = view.isr if node in view.isr else (node,)
                    self._change(view._replace(leader=node, leader_epoch=view.leader_epoch + 1, isr=isr))
                    break

    def _is_whole(self, view: PartitionView, node: int) -> bool:
        return node in view.isr and (view.partition, node) not in self.lost

    def _propose(self, proposal: IsrProposal) -> None:
        view = self.views[proposal.partition]
        joining = [(node, epoch) for node, epoch in proposal.isr if node not in view.isr]
        fits = (
            (view.leader == proposal.leader or proposal.renews)
            and view.leader_epoch == proposal.leader_epoch
            and view.partition_epoch == proposal.partition_epoch
            and all(
                node in self.brokers and self.brokers[node].node_epoch == epoch for node, epoch in joining
            )
        )
        if not fits and self.compares:
            self._refuse(proposal)
            return
        if proposal.renews:
            self._relieve(view, proposal.leader)
            return
        isr = tuple(node for node in proposal.nodes if node in view.isr or self._alive(node))
        self.lost -= {(view.partition, node) for node in isr if node not in view.isr}
        self._change(view._replace(isr=isr), also_same=True)
        self.taken(self.views[view.partition])

    def _relieve(self, view: PartitionView, node: int) -> None:
        """Who may lack what it held is in sync no more, unless it is the last."""
        others = tuple(member for member in view.isr if member != node)
        leader, epoch = view.leader, view.leader_epoch
        epoch += leader != NO_LEADER
        if leader == node:
            leader = next((member for member in others if self._alive(member)), node)
        isr = others if others and leader != node else view.isr
        self._change(view._replace(leader=leader, leader_epoch=epoch, isr=isr), also_same=True)

    def _refuse(self, proposal: IsrProposal) -> None:
        view = self.views[proposal.partition]
        refused = ProposalRefused(proposal, view.leader_epoch, view.partition_epoch)
        self._machine.send(proposal.leader, refused)

    def _change(self, view: PartitionView, *, also_same: bool = False) -> None:
        if also_same or view != self.views[view.partition]:
            self.views[view.partition] = view._replace(partition_epoch=view.partition_epoch + 1)
            self._changes.append(view.partition)
            (self._leaderless.add if view.leader == NO_LEADER else self._leaderless.discard)(view.partition)
