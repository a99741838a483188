"""The loop of a shard: rings → core → disk → rings, and one place to wait.

Each pass drains every ring in one native call, submits all writes in one system call, and answers what the disk
has completed. When nothing is left to do it sleeps in the disk's ring, where doorbells wake it too. A pass that only
carries records looks at nothing else: the rest is looked after when something else has happened, or when it is due.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping

from ringlog.controller.topic_config import NOTHING
from ringlog.errors import RingClosed, RingCorrupt, RingStale
from ringlog.limits import REPLICA_LAG_MS_DEFAULT
from ringlog.log.store import LogStore
from ringlog.net.cluster_messages import AlterIsrReply
from ringlog.net.messages import decode_body
from ringlog.ring.board import Board, Links, ProcessState, Topology
from ringlog.ring.stats import LoopClock, Stats
from ringlog.shard.commands import NodeApi, node_frame, pack_u64
from ringlog.shard.core import ShardCore
from ringlog.shard.near_batches import NearBatches

IDLE_WAIT_MS = 500
SHOW_MS = 250
"""How often the stats page is brought up to date."""
FULL_RING_WAIT_S = 0.001
"""How long to sleep while a reply waits for room: nobody rings when a reader has made some."""


class ShardAgent:
    """One shard process's work."""

    def __init__(
        self,
        process: int,
        board: Board,
        links: Links,
        store: LogStore,
        region: memoryview,
        near: NearBatches,
        stats: Stats,
        stopping: Callable[[], bool],
        topic_defaults: Mapping[str, str] = NOTHING,
        *,
        spin_us: int = 0,
        lag_ms_max: int = REPLICA_LAG_MS_DEFAULT,
    ) -> None:
        """`spin_us`: how long it looks for more to do before it sleeps; `lag_ms_max`: how long a replica may lag and be
        in sync."""
        self._process = process
        self._board = board
        self._links = links
        self._store = store
        self._stats = stats
        self._stopping = stopping
        self._spin_us = spin_us
        self._spins_until_us = 0
        _, shard = board.topology.role(process)
        self.core = ShardCore(
            shard,
            store,
            stats,
            region,
            near,
            first_session=secrets.randbelow(2**31) + 1,
            incarnation=int(board.processes[process]["incarnation"]),
            topic_defaults=topic_defaults,
            lag_ms_max=lag_ms_max,
        )
        self._applied_version = -1
        self._is_applied = False
        """The controller knows that all of the present metadata is served. Until then every completion may be the last
        that it waits for."""
        self._due_ms = 0
        """When something is to be looked after, though nothing happens."""
        self._calm_due_ms: int | None = None
        """The same, of what is only changed by what stirs the core: then it is looked after, and asked again."""
        self._clock = LoopClock(stats)
        self._shown_ms = 0
        self._started_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000
        """Wall time when the monotonic clock was 0: a jump of the wall clock moves nothing."""
        self._rung = False
        """The doorbell was, and is not cleared yet."""
        store.watch(links.bell.fd, self._note_ring)

    def run(self) -> None:
        """Work until told to stop, then stop cleanly."""
        while not self._stopping():
            monotonic_us = time.monotonic_ns() // 1000
            self.cycle(self._started_ms + monotonic_us // 1000, monotonic_us)
        self._store.close(now_ms=self._started_ms + time.monotonic_ns() // 1_000_000)
        self._stats.show()

    def cycle(self, now_ms: int, now_us: int) -> None:
        """One pass."""
        core = self.core
        core.at(now_ms=now_ms, now_us=now_us)
        self._clock.work(now_us)
        self._follow_links(now_ms)
        # First: a shard that stood still has been replaced meanwhile, and must hear it before it serves anyone.
        news = self._take_deltas(now_ms)
        self._take_requests(now_us)
        core.groups.work(now_ms)
        # What came in is on its way to the device before anything else is looked after.
        events = self._store.push(now_ms)
        if events:
            core.progress(events)
        if news or core.is_stirred or not self._is_applied or now_ms >= self._due_ms:
            self._look_around(now_ms)
        room = self._links.pump()
        if news or now_us < self._spins_until_us or not self._links.announce_wait():
            # A ring has something: that is asked, rather than looked at in a pass that mostly finds nothing. What has
            # become due meanwhile was not: the next pass looks around.
            self._due_ms = 0
            self._run_disk(now_ms, 0.0)
        else:
            self._run_disk(now_ms, self._patience_s(now_ms, room))

    def _look_around(self, now_ms: int) -> None:
        """Look after all that records on their way through the shard do not touch."""
        core = self.core
        core.is_stirred = False
        core.hosting.work(now_ms)
        core.replication.work(now_ms)
        core.deletions.work()
        self._is_applied = self._report_applied()
        core.fetches.expire(now_ms)
        self._show(now_ms)
        self._calm_due_ms = 0 if core.hosting.has_work else core.hosting.next_retry_ms

    def _patience_s(self, now_ms: int, room: bool) -> float:
        """How long nothing is due; noted for the passes before then."""
        core, store = self.core, self._store
        soonest_ms = now_ms + IDLE_WAIT_MS
        if self._shown_ms != now_ms:  # the counts of this pass are still to be shown
            soonest_ms = min(soonest_ms, self._shown_ms + SHOW_MS)
        for due_ms in (
            self._calm_due_ms,
            core.replication.due_ms,
            core.fetches.next_deadline_ms,
            store.flushes.next_due_ms,
            store.upkeep.due_ms,
            core.groups.next_due_ms,
        ):
            if due_ms is not None and due_ms < soonest_ms:
                soonest_ms = due_ms
        self._due_ms = soonest_ms
        if soonest_ms <= now_ms:
            return 0.0
        return (soonest_ms - now_ms) / 1000 if room else FULL_RING_WAIT_S

    def _run_disk(self, now_ms: int, wait_s: float) -> None:
        """Let the log work, and wait for the disk or a doorbell."""
        if wait_s:
            self._clock.rest(time.monotonic_ns() // 1000)
        events = self._store.run(now_ms=now_ms, wait_s=wait_s)
        if events:
            woken_us = time.monotonic_ns() // 1000
            self.core.at(now_ms=self._started_ms + woken_us // 1000, now_us=woken_us)
            self.core.progress(events)
            self._spins_until_us = woken_us + self._spin_us
        self._links.end_wait(rung=self._rung)
        self._rung = False

    def _note_ring(self, _events: int) -> None:
        self._rung = True

    def _take_requests(self, now_us: int) -> None:
        for peer, end in self._links.ends.items():
            if peer == Topology.CONTROLLER:
                continue
            try:
                reader = end.reader
                rows = reader.drain_rows()
                if rows:
                    self._spins_until_us = now_us + self._spin_us
                    self._stats.counts["requests"] += len(rows)
                    self.core.take(end, rows, reader.memory)
                reader.release()
            except (RingStale, RingClosed, RingCorrupt):
                continue  # its process is gone or mad: the supervisor will make a new one

    def _take_deltas(self, now_ms: int) -> bool:
        end = self._links.ends.get(Topology.CONTROLLER)
        if end is None:
            return False
        try:
            messages = end.reader.read_all()
            for message in messages:
                if message.body[1] == NodeApi.DELTA:
                    self.core.take_delta(message.body[32:])
                elif message.body[1] == NodeApi.ALTER_ISR:
                    number = int.from_bytes(message.body[8:16], "little")
                    reply = decode_body(message.body[32:], AlterIsrReply)
                    self.core.replication.altered(number, reply, now_ms)
            end.reader.release()
        except (RingStale, RingClosed, RingCorrupt):
            return False  # its process is gone or mad: the supervisor will make a new one
        return bool(messages)

    def _report_applied(self) -> bool:
        """Tell the controller once a version is served (`Hosting.settled`); whether it knows of the present one."""
        version = self.core.hosting.image.version
        if version == 0:
            return False  # the controller has not told what there is
        if version == self._applied_version:
            return True
        end = self._links.ends.get(Topology.CONTROLLER)
        if end is None or not self.core.hosting.settled:
            return False
        end.send(node_frame(NodeApi.APPLIED, pack_u64(version)))
        self._applied_version = version
        self._board.set_state(self._process, ProcessState.READY)
        return True

    def _follow_links(self, now_ms: int) -> None:
        for change in self._links.refresh():
            if change.old is not None:
                self.core.forget(change.old)
                change.old.close()
            self.core.is_stirred = True
            role, _ = self._board.topology.role(change.peer)
            if role == "controller":
                self._applied_version = -1
                self.core.replication.controller = change.new
            elif role == "peer":
                self.core.replication.connect(change.new, now_ms)

    def _show(self, now_ms: int) -> None:
        if now_ms - self._shown_ms >= SHOW_MS:
            self._shown_ms = now_ms
            counts, space = self._stats.counts, self._store.space
            counts["memory_free_bytes"] = self._store.memory_free_bytes
            counts["disk_free_bytes"], counts["disk_full"] = space.free_bytes or 0, int(space.is_full)
            self._stats.partitions.look(now_ms)
            self._stats.show()
