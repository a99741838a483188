"""Runs a voter for real: the Raft core between its file and its sockets. Save, then send; nothing else happens here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ringlog.consensus.messages import Entry, Snapshot, decode_message, encode_message
from ringlog.consensus.raft import Raft
from ringlog.consensus.roles import Role
from ringlog.consensus.timing import Timing
from ringlog.errors import CorruptFrame
from ringlog.limits import QUORUM_FILE_BYTES_MAX
from ringlog.net.peer_links import PeerLinks, PeerMessage
from ringlog.node.quorum_store import QuorumStore

REMOVED = 0
"""The number of an answer that nobody asked for: the receiver was taken out of the cluster."""

_log = logging.getLogger(__name__)


class StateMachine(Protocol):
    """What the log adds up to."""

    def apply(self, entry: Entry) -> None:
        """An entry is committed."""

    def restore(self, snapshot: Snapshot) -> None:
        """Begin anew from a snapshot; one without data stands for nothing."""

    def snapshot(self) -> bytes:
        """Everything that was applied."""


class Quorum:
    """One voter of the quorum, in one process."""

    file_bytes_max = QUORUM_FILE_BYTES_MAX

    def __init__(
        self,
        store: QuorumStore,
        links: PeerLinks,
        machine: StateMachine,
        *,
        now_ms: Callable[[], float],
        timing: Timing | None = None,
    ) -> None:
        self._store = store
        self._links = links
        self._machine = machine
        self._now_ms = now_ms
        links.cluster_id = store.cluster_id
        restored = store.restored()
        machine.restore(restored.snapshot)
        self.raft = Raft(store.me, restored, timing=timing or Timing(), now_ms=now_ms())
        self._waiting: dict[int, list[tuple[int, Callable[[bool], None]]]] = {}
        """By index: the epoch of the entry that is waited for, and whom to tell."""
        self._lost: set[int] = set()
        self.removed: set[int] = set()
        """Nodes that were taken out of the cluster: they are told so, and not heard."""
        self.others: list[PeerMessage] = []
        """Requests and answers that came along: for whoever runs the quorum."""

    @property
    def leads(self) -> bool:
        return self.raft.role is Role.LEADER

    def propose(self, data: bytes, done: Callable[[bool], None]) -> int:
        """Append data, and say whether it was committed; NotController when another one leads."""
        index = self.raft.propose(data)
        self._waiting.setdefault(index, []).append((self.raft.epoch, done))
        return index

    def when_committed(self, done: Callable[[bool], None]) -> None:
        """Say when all that this leader has appended so far is committed; now, if it is."""
        index = self.raft.log.last_index
        if index <= self.raft.applied_index:
            done(True)
        else:
            self._waiting.setdefault(index, []).append((self.raft.log.last_epoch, done))

    def join(self, cluster_id: str) -> None:
        """The log says which cluster this is."""
        self._store.join(cluster_id)
        self._links.cluster_id = cluster_id

    def run(self, wait_s: float) -> None:
        """One pass: take what came, let time pass, save, send, apply."""
        due_s = (self.raft.due_ms - self._now_ms()) / 1000
        self._links.wait(max(0.0, min(wait_s, due_s)))
        for peer in self._links.lost - self._lost:
            self.raft.lost(peer, self._now_ms())
        self._lost = set(self._links.lost)
        for message in self._links.receive():
            if message.source in self.removed:
                self._links.send(message.source, "answer", b"", number=REMOVED, error=True)
                continue
            if message.kind != "raft":
                self.others.append(message)
                continue
            try:
                self.raft.receive(decode_message(message.body), self._now_ms())
            except CorruptFrame as wrong:
                _log.error("node %d sent what is no message of the quorum: %s", message.source, wrong)
            self.pump()
        self.raft.tick(self._now_ms())
        self.pump()

    def pump(self) -> None:
        """Do what the core asks for until it asks for nothing."""
        while (save := self.raft.take()) is not None:
            self._store.save(save)
            released = self.raft.saved(save)
            for to, message in released.messages:
                self._links.send(to, "raft", encode_message(message))
            if released.restored is not None:
                self._machine.restore(released.restored)
            for entry in released.committed:
                self._machine.apply(entry)
                self._tell(entry)
        if (
            self._store.file_bytes > self.file_bytes_max
            and self.raft.applied_index > self.raft.log.snapshot.last_index
        ):
            self.raft.compact(self.raft.applied_index, self._machine.snapshot())
            self.pump()
        self._tell_deposed()

    def close(self) -> None:
        self._links.close()
        self._store.close()

    def _tell(self, entry: Entry) -> None:
        for epoch, done in self._waiting.pop(entry.index, []):
            done(epoch == entry.epoch)

    def _tell_deposed(self) -> None:
        """Who waits for what this voter appended as a leader may wait in vain once it leads no more."""
        if self._waiting and not self.leads:
            waiting, self._waiting = self._waiting, {}
            for _, done in (one for those in waiting.values() for one in those):
                done(False)
