"""Checkers of replication: one leader per epoch, watermarks that grow, replicas that agree, majorities that hold."""

from __future__ import annotations

from collections.abc import Iterable

from ringlog.replication.view import PartitionView
from tests.sim.disk import Rotten
from tests.sim.machine import Machine
from tests.sim.replay import CheckFailed
from tests.sim.replica_broker import SimBroker, Watcher
from tests.sim.replica_log import SimBatch
from tests.support.checkers.history import check_history
from tests.support.checkers.recording import AnyEvent, Polled, Positioned, ReadAll, RecordId
from tests.support.checkers.violations import report


class ReplicaWatcher(Watcher):
    """Judges while the cluster runs, and remembers what was ever committed."""

    def __init__(self, machines: list[Machine]) -> None:
        self._machines = machines
        self._leaders: dict[tuple[int, int], tuple[int, int]] = {}
        self._epochs: dict[int, int] = {}
        self._watermarks: dict[tuple[int, int, int], int] = {}
        self.committed: dict[int, list[SimBatch]] = {}
        """By partition: the batches below the highest watermark that any leader had, as that leader had them."""
        self.views: dict[int, PartitionView] = {}
        """What the controller has decided of each partition."""
        self.moved_bytes = 0
        self.elections = 0
        self.unclean: dict[int, int] = {}
        """By partition: the last epoch that began with a leader that was not in sync. What was committed under an
        earlier one, and that leader did not have, may be lost; nothing else."""
        self.hurt: int | None = None
        """The machine whose disk was last hurt: it may have held what it reported just before."""

    def became_leader(self, node: int, view: PartitionView) -> None:
        incarnation = self._machines[node - 1].incarnation
        key = (view.partition, view.leader_epoch)
        if self._leaders.setdefault(key, (node, incarnation)) != (node, incarnation):
            raise CheckFailed(f"epoch {view.leader_epoch} of partition {view.partition} has two leaders")
        self._epochs[view.partition] = max(self._epochs.get(view.partition, -1), view.leader_epoch)
        self.elections += 1
        if view.unclean_epoch > self.unclean.get(view.partition, -1):
            self.unclean[view.partition] = view.unclean_epoch
            self._forgive(node, view.partition)

    def _forgive(self, node: int, partition: int) -> None:
        """Committed is what this leader has of it: all that it shares with what was."""
        known, stands = (
            self.committed.get(partition, []),
            self._machines[node - 1].process.hosted[partition].log,
        )
        shared = 0
        for ours, theirs in zip(known, stands.batches, strict=False):
            if ours != theirs:
                break
            shared += 1
        del known[shared:]

    def watermark(self, node: int, view: PartitionView, offset: int) -> None:
        key = (view.partition, view.leader_epoch, node)
        if offset < self._watermarks.get(key, 0):
            raise CheckFailed(f"the watermark of {key} went back to {offset}")
        self._watermarks[key] = offset
        self._note_committed(view, node, offset)

    def reopened(self, node: int, partition: int) -> None:
        """The watermark outlives no process: it is learned anew."""
        for key in [key for key in self._watermarks if key[0] == partition and key[2] == node]:
            del self._watermarks[key]

    def cut(self, node: int, partition: int, offset: int) -> None:
        """Who is in sync, by the controller's word, cuts nothing that is committed."""
        committed, decided = self.committed.get(partition), self.views.get(partition)
        if not committed or decided is None or node not in decided.isr or node == self.hurt:
            return
        if decided.leader_epoch >= self.unclean.get(partition, -1) and offset <= committed[-1].last_offset:
            raise CheckFailed(
                f"partition {partition}: node {node}, in sync, cuts its log to {offset}; {committed[-1]} is committed"
            )

    def moved(self, nbytes: int) -> None:
        self.moved_bytes += nbytes

    def _note_committed(self, view: PartitionView, node: int, offset: int) -> None:
        if view.leader_epoch < self.unclean.get(view.partition, -1):
            return  # by a leader that has not heard yet that it was replaced by one that lacks this
        known = self.committed.setdefault(view.partition, [])
        end = known[-1].last_offset + 1 if known else 0
        if offset <= end:
            return
        log = self._machines[node - 1].process.hosted[view.partition].log
        fresh = []
        for batch in reversed(log.batches):  # they are at the end: the rest need not be looked at
            if batch.base_offset < end:
                break
            if batch.last_offset < offset:
                fresh.append(batch)
        fresh.reverse()
        known += fresh
        if fresh:
            self._majority_holds(view, fresh[-1])
            decided = self.views.get(view.partition)
            if decided is not None and decided.leader_epoch == view.leader_epoch:
                self.taken(decided)

    def taken(self, view: PartitionView) -> None:
        """Who is in sync, by the controller's word, has flushed all that is committed: any of them may lead next."""
        committed = self.committed.get(view.partition)
        for node in view.isr if committed else ():
            if node != self.hurt and not self._holds(node, view.partition, committed[-1]):
                raise CheckFailed(
                    f"partition {view.partition}: {committed[-1]} is committed; node {node} is in sync and lacks it"
                )

    def _holds(self, node: int, partition: int, batch: SimBatch) -> bool:
        return batch in reversed(self._machines[node - 1].disk.journal(f"p{partition}").flushed[-200:])

    def _majority_holds(self, view: PartitionView, batch: SimBatch) -> None:
        """What is committed now is flushed on as many machines as min_insync asks for, whatever they say of it."""
        holding = [
            node for node in view.replicas if node == self.hurt or self._holds(node, view.partition, batch)
        ]
        if len(holding) < view.min_insync:
            raise CheckFailed(
                f"partition {view.partition}: {batch} is committed in epoch {view.leader_epoch}; only {holding} have it"
            )


def check_replicas(
    watcher: ReplicaWatcher, machines: Iterable[Machine], views: Iterable[PartitionView]
) -> None:
    """C2: what was ever committed stands, the same, in every replica that is in sync."""
    by_node = {machine.node_id: machine for machine in machines}
    for view in views:
        committed = watcher.committed.get(view.partition, [])
        for node in view.isr:
            broker: SimBroker = by_node[node].process
            stands = broker.hosted[view.partition].log.batches
            if any(isinstance(batch, Rotten) for batch in stands):
                raise CheckFailed(f"node {node} is in sync with a rotten log of partition {view.partition}")
            if stands[: len(committed)] != committed:
                at = next(i for i, batch in enumerate(committed) if i >= len(stands) or stands[i] != batch)
                found = stands[at] if at < len(stands) else "nothing"
                raise CheckFailed(
                    f"partition {view.partition} on node {node}: {found} stands where {committed[at]} was committed"
                )


def check_acks(
    watcher: ReplicaWatcher,
    acks: Iterable[tuple[int, int, int, RecordId]],
    machines: Iterable[Machine],
    views: Iterable[PartitionView],
) -> None:
    """C1 where elections may be unclean, of (partition, epoch, offset, record): what was acknowledged since the last
    one stands where that was said."""
    by_node = {machine.node_id: machine for machine in machines}
    stands: dict[tuple[int, int], RecordId] = {}
    for view in views:
        hosted = by_node[view.leader].process.hosted[view.partition]
        for batch in hosted.log.batches:
            for at, record in enumerate(batch.records):
                if batch.base_offset + at < hosted.replica.high_watermark:
                    stands[view.partition, batch.base_offset + at] = record
    for partition, epoch, offset, record in acks:
        found = stands.get((partition, offset))
        if epoch >= watcher.unclean.get(partition, -1) and found != record:
            raise CheckFailed(
                f"partition {partition}: {record} was acknowledged at {offset} in epoch {epoch}; {found} is there"
            )


def check_clients(
    history: list[AnyEvent], machines: Iterable[Machine], views: Iterable[PartitionView]
) -> None:
    """C1, with a last reading of every log up to its watermark."""
    by_node = {machine.node_id: machine for machine in machines}
    for view in views:
        broker: SimBroker = by_node[view.leader].process
        hosted, name = broker.hosted[view.partition], f"t-{view.partition}"
        end = hosted.replica.high_watermark
        history.append(Positioned("judge", name, 0))
        offsets, records = [], []
        for batch in hosted.log.batches:
            for at, record in enumerate(batch.records):
                if batch.base_offset + at < end:
                    offsets.append(batch.base_offset + at)
                    records.append(record)
        history.append(Polled("judge", name, offsets, records))
        history.append(ReadAll("judge", name, end))
    violations = check_history(history)
    if violations:
        raise CheckFailed(report(violations))
