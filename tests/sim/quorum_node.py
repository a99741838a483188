"""A voter in the simulator: the real Raft core over a simulated disk, and a state machine that is a list of values.

The shell is as thin as the real one: it saves what it is told to, and sends what it is given when that is flushed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from ringlog.consensus.messages import Entry, HardState, Message, Snapshot, Voter
from ringlog.consensus.raft import Raft
from ringlog.consensus.saving import Released, Restored, Save
from ringlog.consensus.timing import Timing
from ringlog.errors import NotController
from tests.sim.disk import Rotten
from tests.sim.machine import Machine

TICK_MS = 20.0
TIMING = Timing(election_ms=300.0, beat_ms=60.0)
COMPACT_EVERY = 40
"""Entries between two snapshots: few, so that they happen."""


class Ask(NamedTuple):
    """A client wants a value appended."""

    client: int
    value: int


class Done(NamedTuple):
    """It is committed, at this index."""

    value: int
    index: int


class Refused(NamedTuple):
    """Ask another one: this one, if it is known."""

    value: int
    leader_id: int | None


class Observer(Protocol):
    """Looks on."""

    def stepped(self, node: QuorumNode) -> None:
        """A node has done something."""

    def sent(self, node: QuorumNode, to: int, message: Message) -> None:
        """A message leaves."""


class QuorumNode:
    """One incarnation of a voter."""

    core: type[Raft] = Raft
    timing = TIMING

    def __init__(self, machine: Machine, voters: tuple[Voter, ...], observer: Observer) -> None:
        self.machine = machine
        self._observer = observer
        self.applied: list[tuple[int, bytes]] = []
        """Index and data of everything committed: the state machine."""
        self._waiting: dict[int, tuple[int, Ask]] = {}
        """By index: the epoch and the client to tell when it is committed."""
        self._compacted_at = 0
        disk_id, restored = self.load(machine, voters)
        self._restore(restored.snapshot)
        me = Voter(machine.node_id, disk_id)
        self.raft = self.core(me, restored, timing=self.timing, now_ms=machine.now_ms())
        self._tick()

    # -- disk --------------------------------------------------------------------------------------------------

    def load(self, machine: Machine, voters: tuple[Voter, ...]) -> tuple[str, Restored]:
        """What is on the disk; a damaged one is laid aside, and the node is a stranger from then on."""
        disk = machine.disk
        if any(isinstance(item, Rotten) for item in disk.journal("log").items):
            self.lay_aside(machine)
        if disk.read("disk_id") is None:
            disk.write("disk_id", f"d{machine.node_id}.{machine.incarnation}")
        items = disk.journal("log").items or [Snapshot(0, 0, voters, b"")]
        # The snapshot and what follows it are one file: a crash must not leave the one without the other.
        snapshot, entries = (items[0], items[1:]) if isinstance(items[0], Snapshot) else (None, items)
        restored = Restored(
            disk.read("hard_state", HardState()), snapshot or Snapshot(0, 0, voters, b""), tuple(entries)
        )
        return disk.read("disk_id"), restored

    def lay_aside(self, machine: Machine) -> None:
        """Nothing on a damaged disk can be trusted, its promises included."""
        machine.disk.wipe()

    def save(self, save: Save, then: Callable[[], None]) -> None:
        """Write, flush, and go on."""
        disk, journal = self.machine.disk, self.machine.disk.journal("log")
        if save.hard_state is not None:
            disk.write("hard_state", save.hard_state)
        if save.snapshot is not None:
            journal.replace([save.snapshot, *save.entries])
        elif save.entries:
            keep = [item for item in journal.items if _index(item) < save.entries[0].index]
            if len(keep) < len(journal.items):
                journal.truncate(len(keep))
            for entry in save.entries:
                journal.append(entry)
        if save.empty:
            then()
        else:
            self.machine.flush(then)

    # -- steps -------------------------------------------------------------------------------------------------

    def receive(self, source: int, message: Any) -> None:
        if isinstance(message, Ask):
            self._propose(source, message)
        else:
            self.raft.receive(message, self.machine.now_ms())
            self._after()

    def _tick(self) -> None:
        self.raft.tick(self.machine.now_ms())
        self._after()
        self.machine.after(TICK_MS, self._tick)

    def _propose(self, source: int, ask: Ask) -> None:
        try:
            index = self.raft.propose(str(ask.value).encode())
        except NotController:
            self.machine.send(source, Refused(ask.value, self.raft.leader_id))
            return
        self._waiting[index] = (self.raft.epoch, ask)
        self._after()

    def _after(self) -> None:
        self._observer.stepped(self)
        save = self.raft.take()
        if save is not None:
            self.save(save, lambda: self._saved(save))

    def _saved(self, save: Save) -> None:
        self._give_out(self.raft.saved(save))
        self._after()

    def _give_out(self, released: Released) -> None:
        for to, message in released.messages:
            self.send(to, message)
        if released.restored is not None:
            self._restore(released.restored)
        for entry in released.committed:
            self._apply(entry)
        if len(self.applied) - self._compacted_at >= COMPACT_EVERY:
            self._compacted_at = len(self.applied)
            self.raft.compact(self.applied[-1][0], msgspec.msgpack.encode(self.applied))

    def send(self, to: int, message: Message) -> None:
        self._observer.sent(self, to, message)
        self.machine.send(to, message)

    def _apply(self, entry: Entry) -> None:
        if entry.kind == "data":
            self.applied.append((entry.index, entry.data))
        epoch, ask = self._waiting.pop(entry.index, (0, None))
        if ask is not None and epoch == entry.epoch:
            self.machine.send(ask.client, Done(ask.value, entry.index))

    def _restore(self, snapshot: Snapshot) -> None:
        if snapshot.data:
            self.applied = msgspec.msgpack.decode(snapshot.data, type=list[tuple[int, bytes]])
        self._compacted_at = len(self.applied)


def _index(item: Entry | Snapshot) -> int:
    return item.last_index if isinstance(item, Snapshot) else item.index
