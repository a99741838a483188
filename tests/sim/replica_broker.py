"""A broker of the simulated cluster: a thin shell around the real replication cores, on a simulated machine.

What a shard and its network process do in a node is done here in one place: produce, fetch, follow, report, propose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from ringlog.errors import (
    CorruptSegment,
    OutOfOrderSequence,
    PartitionBusy,
    ReplicaHalted,
    RinglogError,
)
from ringlog.limits import REPLICA_FETCH_BYTES
from ringlog.net.wire_errors import number_of
from ringlog.replication.fetcher import Fetcher
from ringlog.replication.follower import Append, BeginAt, Truncate
from ringlog.replication.leader import BeginsLater, Diverged, Serve
from ringlog.replication.messages import Part, ReplicaFetch, ReplicaFetched, ReplicaHeld
from ringlog.replication.replica import Replica
from ringlog.replication.serving import Entry, Plan, ServingDesk
from ringlog.replication.view import IsrProposal, PartitionView
from tests.sim.machine import Machine
from tests.sim.replica_controller import (
    CONTROLLER,
    Heartbeat,
    NotRegistered,
    ProposalRefused,
    Register,
    Registered,
    Views,
)
from tests.sim.replica_log import BATCH_BYTES, SimBatch, SimLog
from tests.support.checkers.recording import RecordId

TICK_MS = 10.0
HEARTBEAT_MS = 100.0
LAG_MS_MAX = 2_000
PROPOSE_AGAIN_MS = 300.0
SERVED_BATCHES_MAX = 20


class Produce(NamedTuple):
    correlation: int
    partition: int
    producer_id: int
    sequence: int
    records: tuple[RecordId, ...]


class Produced(NamedTuple):
    correlation: int
    base_offset: int
    error: str = ""
    leader_epoch: int = -1
    """Under which it was committed."""


class Poll(NamedTuple):
    correlation: int
    partition: int
    offset: int


class Polls(NamedTuple):
    correlation: int
    offset: int
    batches: tuple[SimBatch, ...]
    high_watermark: int
    error: str = ""


class Fetched(NamedTuple):
    """An answer to a follower, with its batches."""

    head: ReplicaFetched
    batches: tuple[tuple[SimBatch, ...], ...]


@dataclass
class Hosted:
    """One replica with its log."""

    replica: Replica
    log: SimLog
    waiting: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(next offset, client, correlation, base offset) of records that wait to be committed."""
    proposed_ms: float = 0.0
    flushing: bool = False
    marked_offset: int = 0
    """The watermark that followers have been, or will be, told of."""


class Watcher:
    """Is told of what the checkers care for."""

    def became_leader(self, node: int, view: PartitionView) -> None: ...

    def watermark(self, node: int, view: PartitionView, offset: int) -> None: ...

    def moved(self, nbytes: int) -> None: ...

    def reopened(self, node: int, partition: int) -> None: ...

    def cut(self, node: int, partition: int, offset: int) -> None: ...


class SimBroker:
    """The process of one machine."""

    truncates_to_watermark = False
    """The mutant of old Kafka: who becomes a follower cuts its log to the watermark that it knows."""
    tick_ms = TICK_MS
    heartbeat_ms = HEARTBEAT_MS
    lag_ms_max = LAG_MS_MAX

    def __init__(self, machine: Machine, partitions: list[int], watcher: Watcher) -> None:
        self.machine = machine
        self.node = machine.node_id
        self._watcher = watcher
        disk = machine.disk
        self._is_new = disk.read("identity") is None
        self._clean = disk.read("clean", False)
        disk.write("identity", "mine")
        disk.write("clean", False)
        self.hosted: dict[int, Hosted] = {}
        for partition in partitions:
            log = SimLog(disk.journal(f"p{partition}"))
            self.hosted[partition] = Hosted(Replica(self.node, partition), log)
        self.node_epoch = -1
        self._version = 0
        self._lives: dict[int, int] = {}
        """The brokers that are there, as far as is known here, with their epochs."""
        self._desk = ServingDesk(self._find)
        self._fetchers: dict[int, Fetcher] = {}
        self._opened = False
        self._isolating: dict[int, IsrProposal] = {}
        """Of each partition, the last proposal to count on a single replica."""
        machine.flush(self._open)

    def _open(self) -> None:
        """What was found on the disk is flushed: from now on it is known to be held."""
        for hosted in self.hosted.values():
            hosted.log.flushed_to(hosted.log.end_offset)
        self._opened = True
        self._beat()
        self._tick()

    def _find(self, partition: int) -> tuple[Replica, SimLog]:
        hosted = self.hosted[partition]
        return hosted.replica, hosted.log

    def receive(self, source: int, message: Any) -> None:
        if not self._opened:
            return
        if isinstance(message, ReplicaFetch):
            plans, moved = self._desk.fetch(source, message, self._now_ms())
            self._send_plans(plans)
            self._committed(moved)
        elif isinstance(message, ReplicaHeld):
            self._committed(self._desk.held(message, self._now_ms()))
        elif isinstance(message, Fetched):
            self._take_fetched(source, message)
        elif isinstance(message, Produce):
            self._produce(source, message)
        elif isinstance(message, Poll):
            self._poll(source, message)
        elif isinstance(message, Views):
            if message.node_epoch == self.node_epoch:
                if message.version >= self._version:
                    self._version, self._lives = message.version, message.lives
                self._take_views(message.views)
        elif isinstance(message, Registered):
            if message.incarnation == self.machine.incarnation and self.node_epoch < 0:
                self.node_epoch = message.node_epoch
                self._beat_once()
        elif isinstance(message, ProposalRefused):
            hosted = self.hosted[message.proposal.partition]
            leader = hosted.replica.leader
            if leader is not None and leader.refused(*message, hosted.log):
                self._committed([message.proposal.partition])
        elif isinstance(message, NotRegistered):
            assert message.node_epoch != self.node_epoch, "nobody else has this node's epoch"

    def _now_ms(self) -> int:
        return int(self.machine.now_ms())

    # -- the controller ------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        self.machine.after(self.heartbeat_ms, self._beat)
        self._beat_once()

    def _beat_once(self) -> None:
        if self.node_epoch < 0:
            damaged = frozenset(p for p, hosted in self.hosted.items() if hosted.log.damaged)
            clean = self._clean and not damaged
            message: object = Register(self.node, self.machine.incarnation, clean, damaged, self._is_new)
        else:
            message = Heartbeat(self.node, self.node_epoch, self._version)
        self.machine.send(CONTROLLER, message)

    def _take_views(self, views: list[PartitionView]) -> None:
        for view in views:
            hosted = self.hosted.get(view.partition)
            if hosted is not None:
                self._follow(hosted, view)

    @property
    def proposes(self) -> bool:
        """Whether a proposal is under way to the controller."""
        leaders = [hosted.replica.leader for hosted in self.hosted.values()]
        return any(leader is not None and leader.pending is not None for leader in leaders)

    def may_isolate(self, views: Mapping[int, PartitionView]) -> bool:
        """Whether a proposal that is on its way may yet leave one replica alone in sync."""
        return any(
            (one.leader_epoch, one.partition_epoch)
            == (views[partition].leader_epoch, views[partition].partition_epoch)
            for partition, one in self._isolating.items()
        )

    @property
    def leads_ahead(self) -> bool:
        """Whether followers may have been sent what is not flushed here."""
        return any(
            hosted.replica.leader is not None and hosted.log.flushed_offset < hosted.log.end_offset
            for hosted in self.hosted.values()
        )

    @property
    def is_sure(self) -> bool:
        """No replica here may lack what the metadata say that it holds."""
        return all(hosted.replica.renewal is None for hosted in self.hosted.values())

    @property
    def is_whole(self) -> bool:
        """No log here lacks anything."""
        return all(hosted.log.hole_offset is None for hosted in self.hosted.values())

    def reopen(self, kept: Random, *, rotten: bool = False) -> None:
        """What a shard's process does that died and was started again: the node is still registered, and leads what it
        led; what the replicas knew is gone, and of what was not flushed some is; `rotten`: also of what was."""
        for partition, hosted in self.hosted.items():
            view, log = hosted.replica.view, hosted.log
            log.truncate(
                kept.randint(log.flushed_offset // 2 if rotten else log.flushed_offset, log.end_offset)
            )
            self._flush(hosted)
            hosted.replica = Replica(self.node, partition)
            hosted.proposed_ms = 0.0
            self._watcher.reopened(self.node, partition)
            if view is not None:
                self._follow(hosted, view, resumed=True)

    def holed(self, partition: int) -> None:
        """Somebody met a hole in a log."""
        hosted = self.hosted[partition]
        hosted.log.look_for_hole()
        if hosted.replica.look(hosted.log, self.node_epoch, self._now_ms()):
            self._watcher.became_leader(self.node, hosted.replica.must_lead().view)
        hosted.proposed_ms = 0.0
        self._ask_anew(hosted)

    def _ask_anew(self, hosted: Hosted) -> None:
        follower = hosted.replica.follower
        if follower is not None:
            fetcher = self._fetcher(follower.view.leader)
            fetcher.reopened()
            fetcher.add(hosted.replica, hosted.log)

    def _follow(self, hosted: Hosted, view: PartitionView, *, resumed: bool = False) -> None:
        replica, partition = hosted.replica, view.partition
        before = replica.high_watermark
        changed = replica.follow(view, hosted.log, self.node_epoch, self._now_ms(), resumed=resumed)
        if changed:
            for fetcher in self._fetchers.values():
                fetcher.remove(partition)
            for _, client, correlation, _ in hosted.waiting:
                self.machine.send(client, Produced(correlation, -1, "NOT_LEADER"))
            hosted.waiting.clear()
            if replica.leader is not None:
                self._watcher.became_leader(self.node, view)
            if replica.follower is not None:
                if self.truncates_to_watermark and replica.high_watermark < hosted.log.end_offset:
                    hosted.log.truncate(replica.high_watermark)
                fetcher = self._fetcher(view.leader)
                if resumed:
                    fetcher.reopened()
                fetcher.add(replica, hosted.log)
            self._send_plans(self._desk.grown(partition, self._now_ms()))
        elif hosted.log.hole_offset is not None:
            self._ask_anew(hosted)
        if replica.high_watermark > before:
            self._committed([partition])

    # -- leading ---------------------------------------------------------------------------------------------------

    def _produce(self, client: int, message: Produce) -> None:
        hosted = self.hosted.get(message.partition)
        try:
            if hosted is None:
                raise ReplicaHalted("not here")
            leader = hosted.replica.must_lead()
            leader.must_take()
            epoch = leader.view.leader_epoch
            at = hosted.log.append(epoch, message.producer_id, message.sequence, message.records)
        except OutOfOrderSequence:
            # A batch before it is still on its way, or was lost with an old leader's end: the producer sends it again.
            self.machine.send(client, Produced(message.correlation, -1, "OUT_OF_ORDER_SEQUENCE"))
            return
        except RinglogError as error:
            self.machine.send(client, Produced(message.correlation, -1, error.code))
            return
        hosted.waiting.append((at.last_offset + 1, client, message.correlation, at.base_offset))
        self._committed([message.partition])  # it may be a repeat of what is committed
        self._grown(hosted)

    def _grown(self, hosted: Hosted) -> None:
        self._flush(hosted)
        self._held(hosted)
        self._send_plans(self._desk.grown(hosted.replica.partition, self._now_ms()))

    def _flush(self, hosted: Hosted) -> None:
        """Flush what is there; what comes meanwhile goes with the next one."""
        log = hosted.log
        if hosted.flushing or log.flushed_offset == log.end_offset:
            return
        hosted.flushing, upto, cuts = True, log.end_offset, log.cuts

        def done() -> None:
            hosted.flushing = False
            if log.cuts == cuts:  # else what stands below `upto` now may have come after the flush began
                log.flushed_to(upto)
                self._held(hosted)
            self._flush(hosted)

        self.machine.flush(done)

    def _held(self, hosted: Hosted) -> None:
        """More of a log is flushed."""
        replica = hosted.replica
        if replica.leader is not None and replica.leader.advance(hosted.log):
            self._committed([replica.partition])
        elif replica.follower is not None:
            fetcher = self._fetcher(replica.follower.view.leader)
            fetcher.progressed(replica.partition)
            self._ask()
            report = fetcher.report()
            if report is not None:
                self.machine.send(replica.follower.view.leader, report)

    def _committed(self, partitions: list[int]) -> None:
        """The watermark of some partitions moved: those who wait for it are answered."""
        for partition in partitions:
            hosted = self.hosted[partition]
            replica = hosted.replica
            if replica.leader is None:
                continue
            self._watcher.watermark(self.node, replica.leader.view, replica.high_watermark)
            if replica.high_watermark > hosted.marked_offset:
                hosted.marked_offset = replica.high_watermark
                self._desk.committed(partition, self._now_ms())
            done = [ack for ack in hosted.waiting if ack[0] <= replica.high_watermark]
            hosted.waiting = [ack for ack in hosted.waiting if ack[0] > replica.high_watermark]
            for _, client, correlation, base_offset in done:
                epoch = replica.leader.view.leader_epoch
                self.machine.send(client, Produced(correlation, base_offset, leader_epoch=epoch))

    def _send_plans(self, plans: list[Plan]) -> None:
        for plan in plans:
            parts, batches, left = [], [], plan.fetch.bytes_max
            for at, entry in enumerate(plan.entries):
                if left <= 0:
                    self._desk.put_back(plan, [later.want.partition for later in plan.entries[at:]])
                    break
                part, read = self._part(entry, plan.fetch.node)
                parts.append(part)
                batches.append(tuple(read))
                left -= part.nbytes
            head = ReplicaFetched(plan.fetch.session, plan.fetch.sequence, plan.lost, parts)
            self.machine.send(plan.fetch.node, Fetched(head, tuple(batches)))
            self._watcher.moved(sum(part.nbytes for part in parts))
            self._committed(list(plan.moved))

    def _part(self, entry: Entry, node: int) -> tuple[Part, list[SimBatch]]:
        want, verdict = entry
        replica, log = self._find(want.partition)
        epoch = replica.view.leader_epoch if replica.view is not None else -1
        facts = (want.fetch_offset, replica.high_watermark, log.start_offset)
        if isinstance(verdict, RinglogError):
            return Part(want.partition, number_of(verdict), epoch, *facts), []
        if isinstance(verdict, Diverged):
            return Part(want.partition, 0, epoch, *facts, 0, *verdict.end), []
        if isinstance(verdict, BeginsLater):
            return Part(want.partition, 0, epoch, *facts), []
        assert isinstance(verdict, Serve)
        try:
            read = log.read(verdict.offset, log.readable_offset, SERVED_BATCHES_MAX)
        except CorruptSegment as error:
            return Part(want.partition, number_of(error), epoch, *facts), []
        leader = replica.must_lead()
        is_free = not leader.counts_on(node)
        return Part(want.partition, 0, epoch, *facts, len(read) * BATCH_BYTES, is_free=is_free), read

    def _poll(self, client: int, message: Poll) -> None:
        hosted = self.hosted.get(message.partition)
        try:
            if hosted is None:
                raise ReplicaHalted("not here")
            leader = hosted.replica.must_lead()
            watermark = leader.high_watermark
            read = tuple(hosted.log.read(message.offset, watermark, SERVED_BATCHES_MAX)) if watermark else ()
        except RinglogError as error:
            self.machine.send(client, Polls(message.correlation, message.offset, (), -1, error.code))
            return
        self.machine.send(client, Polls(message.correlation, message.offset, read, watermark))

    # -- following -------------------------------------------------------------------------------------------------

    def _fetcher(self, leader: int) -> Fetcher:
        if leader not in self._fetchers:
            # Some nodes report what they hold beside their fetches, some with them, some as it comes.
            lull_bytes = (self.node % 3) * 2 * BATCH_BYTES
            self._fetchers[leader] = Fetcher(self.node, self.node_epoch, 0, 1, lull_bytes)
        return self._fetchers[leader]

    def _take_fetched(self, source: int, message: Fetched) -> None:
        fetcher = self._fetchers.get(source)
        parts = fetcher.take(message.head, self._now_ms()) if fetcher is not None else None
        if fetcher is None or parts is None:
            return
        for part, batches in zip(parts, message.batches, strict=True):
            hosted = self.hosted[part.partition]
            follower = hosted.replica.follower
            if follower is None or part.partition not in fetcher:
                continue
            if part.error:
                fetcher.pause(part.partition, self._now_ms())
                continue
            try:
                action = follower.take(part, [batch.span for batch in batches], hosted.log)
            except ReplicaHalted as halted:
                hosted.replica.halt(halted)
                continue
            except PartitionBusy:
                fetcher.pause(part.partition, self._now_ms())
                continue
            if isinstance(action, Truncate):
                self._watcher.cut(self.node, part.partition, action.offset)
                hosted.log.truncate(action.offset)
                self._flush(hosted)
            elif isinstance(action, Append):
                hosted.log.append_as_they_are(batches)
                follower.appended(part, hosted.log)
                self._flush(hosted)
                self._held(hosted)
            else:
                assert not isinstance(action, BeginAt), "nothing is deleted in this world"
        self._ask()

    def _ask(self) -> None:
        for leader, fetcher in self._fetchers.items():
            fetch = fetcher.next_fetch(self._now_ms(), REPLICA_FETCH_BYTES)
            if fetch is not None:
                self.machine.send(leader, fetch)

    def _tick(self) -> None:
        self.machine.after(self.tick_ms, self._tick)
        if self.node_epoch < 0:
            return
        now_ms = self._now_ms()
        self._send_plans(self._desk.expire(now_ms))
        self._ask()
        for hosted in self._to_look_after():
            leader, renewal = hosted.replica.leader, hosted.replica.renewal
            proposal: IsrProposal | None = None
            if leader is not None and renewal is None:
                proposal = leader.propose(
                    hosted.log, self.lag_ms_max, now_ms, lambda node, epoch: self._lives.get(node) == epoch
                )
            if proposal is None and now_ms - hosted.proposed_ms >= PROPOSE_AGAIN_MS:
                proposal = renewal or (leader.pending if leader is not None else None)
            if proposal is not None:
                hosted.proposed_ms = now_ms
                if not proposal.renews and len(proposal.nodes) == 1:
                    self._isolating[proposal.partition] = proposal
                self.machine.send(CONTROLLER, proposal)

    def _to_look_after(self) -> Iterable[Hosted]:
        """The partitions whose in-sync replicas may have to change."""
        return self.hosted.values()
