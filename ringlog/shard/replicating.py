"""Replication in a shard: which partitions it leads and follows, and the fetches to and from other nodes.

No socket here: fetches to other nodes leave through the reply ring of the process that speaks with them, their answers
and the fetches of others arrive through its request ring. A frame's session names the other node (`commands.place`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from ringlog.controller.cluster_settings import move_bytes_per_s
from ringlog.controller.records import Partition
from ringlog.errors import CorruptSegment, NotLeader, PartitionBusy, ReplicaHalted, RinglogError
from ringlog.limits import REPLICA_FETCH_BYTES, REPLICA_LULL_MS, REPLICA_MARK_MS
from ringlog.log.replicated import append_as_they_are
from ringlog.log.store import LogStore
from ringlog.net.cluster_messages import AlterIsrReply
from ringlog.net.framing import Flag
from ringlog.net.wire_errors import number_of
from ringlog.records.scan import Level, check_rows
from ringlog.replication.fetcher import Fetcher
from ringlog.replication.follower import Append, BatchSpan, BeginAt, Truncate
from ringlog.replication.messages import Part, decode_fetch, decode_fetched, decode_held, encode_ask
from ringlog.replication.replica import Replica
from ringlog.replication.serving import Plan, ServingDesk
from ringlog.replication.throttle import Throttle
from ringlog.ring.frame import frame_header
from ringlog.shard.asker import Asker, Outlet
from ringlog.shard.commands import NodeApi, place, place_of
from ringlog.shard.hosting import HostedPartition, Hosting
from ringlog.shard.proposing import ProposalDesk
from ringlog.shard.replica_answers import ReplicaAnswers
from ringlog.shard.replica_log import HostedLog

LOOK_MS = 250
"""How often leaders look whether a follower lags."""
FOLLOW_MEMORY_SHARE = 4
"""An answer to a follower takes no more than one in so many bytes of its shard's memory."""

_ERROR = int(Flag.ERROR)
_CORRUPT_SEGMENT = number_of(CorruptSegment(""))
_log = logging.getLogger(__name__)
Lane = tuple[int, int]
"""A node, and a shard of it."""


class ReplicationDesk:
    """All replicated partitions of a shard."""

    def __init__(
        self,
        shard: int,
        store: LogStore,
        hosting: Hosting,
        answers: ReplicaAnswers,
        *,
        committed: Callable[[HostedPartition], None],
        role_changed: Callable[[HostedPartition], None],
        incarnation: int,
        lag_ms_max: int,
    ) -> None:
        """`committed`: readers may see more of a partition; `role_changed`: it is led here now, or no longer;
        `incarnation`: counts the processes that served this shard since the node's start."""
        self._shard = shard
        self._store = store
        self._hosting = hosting
        self._answers = answers
        self._committed = committed
        self._role_changed = role_changed
        self._first_session = incarnation << 32
        self._opened: set[int] | None = set() if incarnation <= 1 else None
        """Partitions whose logs were open here before, since this node was registered, also by former processes: opened
        anew, they may lack what they held. None until the metadata say which a former process had."""
        self._desk = ServingDesk(self._find)
        self._fetchers: dict[Lane, Fetcher] = {}
        self._throttle = Throttle()
        """Of all replicas that are being moved to this shard."""
        self._lane_of: dict[int, Lane] = {}
        """Where each followed partition is followed."""
        self._told: dict[int, str] = {}
        """Why partitions cannot follow, as it was logged."""
        self._leading: dict[int, HostedPartition] = {}
        self._proposals = ProposalDesk(hosting, self._leading, lag_ms_max, incarnation << 32)
        self._look_ms = 0
        self.due_ms: int | None = None
        """When `work` is to be called at the latest, should nothing happen before. Perhaps sooner than needed: it is
        reckoned anew there, and only brought forward by what comes in between."""
        self._node_epoch = -1
        """Of this node's registration, as the fetchers know it."""
        self.peers: Outlet | None = None
        """Takes frames to other nodes."""
        self.controller: Outlet | None = None

    # -- metadata ------------------------------------------------------------------------------------------------

    def follow(self, now_ms: int) -> None:
        """The metadata changed: every replica takes its view."""
        broker = self._hosting.image.brokers.get(self._hosting.image.node_id)
        if broker is not None and broker.broker_epoch != self._node_epoch:
            self._node_epoch = broker.broker_epoch
            for fetcher in self._fetchers.values():
                fetcher.registered(broker.broker_epoch)
        if self._opened is None:
            self._opened = set(self._hosting.image.partitions)
        self._follow_rate(now_ms)
        for hosted in list(self._hosting.hosted.values()):
            if hosted.replica is not None:
                self._take_view(hosted, now_ms)

    def _follow_rate(self, now_ms: int) -> None:
        """Moves to this node share what the cluster's settings allow; each shard has an equal part."""
        image = self._hosting.image
        broker, node_rate = image.brokers.get(image.node_id), move_bytes_per_s(image.settings)
        rate = node_rate // broker.shards if node_rate is not None and broker is not None else None
        if rate != self._throttle.bytes_per_s:
            self._throttle.set(rate, now_ms)
            for fetcher in self._fetchers.values():
                fetcher.hurry(now_ms)

    def opened(self, hosted: HostedPartition, now_ms: int) -> None:
        """A partition is open: it may begin to lead or to follow."""
        if hosted.replica is not None:
            hosted.log.committed_offset = hosted.log.log_start_offset
            self._take_view(hosted, now_ms)

    def gone(self, hosted: HostedPartition) -> None:
        """A partition is closed here."""
        self._leading.pop(hosted.partition, None)
        self._proposals.gone(hosted.partition)
        self._unfollow(hosted.partition)

    def _take_view(self, hosted: HostedPartition, now_ms: int) -> None:
        replica, image = hosted.replica, self._hosting.image
        record, broker = image.partitions.get(hosted.partition), image.brokers.get(image.node_id)
        if replica is None or record is None or broker is None:
            return
        before, is_new = replica.view, replica.view is None
        resumed = self._opened is None or hosted.partition in self._opened
        view, log = self._hosting.view_of(hosted.partition, record), HostedLog(hosted.log)
        changed = replica.follow(view, log, broker.broker_epoch, now_ms, resumed=is_new and resumed)
        if self._opened is not None:
            self._opened.add(hosted.partition)
        if replica.leader is None and replica.renewal is None:
            self._leading.pop(hosted.partition, None)
        else:
            self._leading[hosted.partition] = hosted
        if replica.renewal is not None:
            self._look_ms = 0  # nobody leads, or could lead, before the controller has answered
        if hosted.log.drop_spares is not None and replica.is_whole:
            hosted.log.drop_spares()
        if changed:
            self._unfollow(hosted.partition)
            if replica.leader is None:
                why = NotLeader(f"{hosted.name} is not led by this node any more. Fetch metadata, then retry")
                hosted.acks.refuse_all(why)
                hosted.leader_acks.refuse_all(why)
            if replica.follower is not None:
                if replica.high_watermark < (hosted.log.committed_offset or 0):
                    # After an unclean election: what was committed here may not be any more.
                    hosted.log.committed_offset = replica.high_watermark
                self._follow_leader(hosted, record, is_anew=is_new and resumed)
            elif replica.halted is not None:
                _log.error("%s takes part in nothing: %s", hosted.name, replica.halted)
            self._tell_role(hosted, now_ms)
        elif hosted.log.hole_offset is not None and before is not None and before.isr != view.isr:
            self._ask_anew(hosted)
        self._advanced(hosted, now_ms)

    def holed(self, hosted: HostedPartition, now_ms: int) -> None:
        """A hole was found in a log, or its start has moved past one: it is in sync no more, or may be again."""
        replica, image = hosted.replica, self._hosting.image
        broker = image.brokers.get(image.node_id)
        if replica is None or broker is None:
            return
        leads_now = replica.look(HostedLog(hosted.log), broker.broker_epoch, now_ms)
        if replica.leader is None and replica.renewal is None:
            self._leading.pop(hosted.partition, None)
        else:
            self._leading[hosted.partition] = hosted
        if replica.renewal is not None:
            self._look_ms = 0
            self._hasten(now_ms)
        if leads_now:
            self._tell_role(hosted, now_ms)
            self._advanced(hosted, now_ms)
        self._ask_anew(hosted)

    def _tell_role(self, hosted: HostedPartition, now_ms: int) -> None:
        """A replica leads, or follows, or neither, from now on: whoever waits for it hears of that."""
        self._role_changed(hosted)
        self._send_plans(self._desk.grown(hosted.partition, now_ms), now_ms)

    def _ask_anew(self, hosted: HostedPartition) -> None:
        """A follower's log counts for less than its leader was told: it says so in a conversation of its own."""
        lane, replica = self._lane_of.get(hosted.partition), hosted.replica
        if lane is not None and replica is not None:
            self._fetchers[lane].reopened()
            self._fetchers[lane].add(replica, HostedLog(hosted.log))

    def _follow_leader(self, hosted: HostedPartition, record: Partition, *, is_anew: bool) -> None:
        """`is_anew`: with a log that the leader may know a later state of."""
        assert hosted.replica is not None
        shard = record.shard_on(record.leader)
        assert shard is not None, "who leads is a replica"
        lane = (record.leader, shard)
        fetcher = self._fetchers.get(lane)
        if fetcher is None:
            image = self._hosting.image
            epoch = image.brokers[image.node_id].broker_epoch
            fetcher = Fetcher(image.node_id, epoch, self._shard, self._first_session, throttle=self._throttle)
            self._fetchers[lane] = fetcher
        if is_anew:
            fetcher.reopened()
        fetcher.add(hosted.replica, HostedLog(hosted.log))
        self._lane_of[hosted.partition] = lane

    def _unfollow(self, partition: int) -> None:
        self._told.pop(partition, None)
        lane = self._lane_of.pop(partition, None)
        if lane is not None:
            self._fetchers[lane].remove(partition)

    def _find(self, partition: int) -> tuple[Replica, HostedLog]:
        hosted = self._hosting.find_led(partition)
        if hosted.replica is None:
            raise NotLeader(f"{hosted.name} has no replicas")
        return hosted.replica, HostedLog(hosted.log)

    # -- what other nodes send --------------------------------------------------------------------------------------

    def take(self, asker: Asker, flags: int, body: memoryview, now_ms: int) -> bool:
        """A frame of another node: a fetch, a report, or an answer to a fetch of ours. Whether there is more to do than
        to wait for a disk, or for the next frame."""
        node, _ = place_of(asker.session)
        if asker.api_key == NodeApi.REPLICA_HELD:
            self._moved(self._desk.held(decode_held(body, node), now_ms), now_ms)
        elif flags:
            return self._take_answer((node, asker.correlation), flags, body, now_ms)
        else:
            fetch = decode_fetch(body, node)
            plans, moved = self._desk.fetch(asker, fetch, now_ms)
            self._send_plans(plans, now_ms)
            self._moved(moved, now_ms)
            due_ms = self._desk.due_of(fetch)
            if due_ms is not None:
                self._hasten(due_ms)
        return False

    def _hasten(self, due_ms: int) -> None:
        if self.due_ms is None or due_ms < self.due_ms:
            self.due_ms = due_ms

    def _send_plans(self, plans: list[Plan], now_ms: int) -> None:
        for plan in plans:
            asker = plan.asker
            assert isinstance(asker, Asker)
            self._answers.begin(asker, plan, partial(self._desk.put_back, plan))
            self._moved(plan.moved, now_ms)

    def _moved(self, partitions: Iterable[int], now_ms: int) -> None:
        for partition in partitions:
            hosted = self._hosting.hosted.get(partition)
            if hosted is not None:
                self._advanced(hosted, now_ms)

    def _advanced(self, hosted: HostedPartition, now_ms: int) -> None:
        """Readers may see what the watermark says, and followers are to hear of it."""
        replica, log = hosted.replica, hosted.log
        if replica is None or log.committed_offset is None:
            return
        if replica.high_watermark > log.committed_offset:
            log.committed_offset = replica.high_watermark
            self._committed(hosted)
            if replica.leader is not None and self._desk.committed(hosted.partition, now_ms):
                self._hasten(now_ms + REPLICA_MARK_MS)

    def submitted(self, hosted: HostedPartition, now_ms: int) -> None:
        """More of a log is being written: followers that wait for it are sent it, and write it at the same time."""
        if hosted.replica is not None and hosted.replica.leader is not None:
            self._send_plans(self._desk.grown(hosted.partition, now_ms), now_ms)

    def progress(self, hosted: HostedPartition, now_ms: int) -> None:
        """More of a log is held."""
        replica = hosted.replica
        if replica is None:
            return
        if replica.leader is not None:
            if replica.leader.advance(HostedLog(hosted.log)):
                self._advanced(hosted, now_ms)
        elif replica.follower is not None:
            self._fetchers[self._lane_of[hosted.partition]].progressed(hosted.partition)
            self._follow_start(hosted)

    def _follow_start(self, hosted: HostedPartition) -> None:
        """What the leader has deleted is deleted here, too."""
        follower = hosted.replica.follower if hosted.replica is not None else None
        start = follower.start_due(HostedLog(hosted.log)) if follower is not None else None
        if start is not None:
            self._store.move_start(hosted.name, start)

    def start_moved(self, hosted: HostedPartition, now_ms: int) -> None:
        """A log begins later, durably: followers are told, or the leader is."""
        replica = hosted.replica
        if replica is None:
            return
        if replica.renewal is not None:
            self.holed(hosted, now_ms)
        if replica.leader is not None:
            self._send_plans(self._desk.grown(hosted.partition, now_ms), now_ms)
        elif replica.follower is not None:
            self._fetchers[self._lane_of[hosted.partition]].progressed(hosted.partition)

    # -- answers to our fetches ---------------------------------------------------------------------------------------

    def _take_answer(self, lane: Lane, flags: int, body: memoryview, now_ms: int) -> bool:
        fetcher = self._fetchers.get(lane)
        if fetcher is None:
            return False
        if flags & _ERROR:
            fetcher.failed(now_ms)
            return True
        head, at = decode_fetched(body)
        parts = fetcher.take(head, now_ms)
        for part in parts or ():
            data = body[at : at + part.nbytes]
            at += part.nbytes
            if self._lane_of.get(part.partition) != lane:
                continue
            try:
                if part.error:
                    fetcher.pause(part.partition, now_ms)
                    if part.error == _CORRUPT_SEGMENT:
                        self._tell_once(part.partition, self._lack_of_leader(part))
                else:
                    self._take_part(self._hosting.find(part.partition), part, data, now_ms)
                    fetcher.slow_down(part, now_ms)
            except PartitionBusy:
                fetcher.pause(part.partition, now_ms)
            except ReplicaHalted as halted:
                self._halt(part.partition, halted)
            except (RinglogError, OSError) as error:
                self._tell_once(part.partition, str(error))
                fetcher.pause(part.partition, now_ms)
            else:
                if self._told and not part.error:
                    self._told.pop(part.partition, None)
        if fetcher.waits_for_flush(now_ms):
            self._hasten(now_ms + REPLICA_LULL_MS)
            return False
        return True

    def _lack_of_leader(self, part: Part) -> str:
        """What is known of a leader that could not read what was asked for."""
        replica = self._hosting.hosted[part.partition].replica
        assert replica is not None and replica.view is not None, "who follows has a view"
        view = replica.view
        lack = f"its leader, node {view.leader}, lacks records itself at offset {part.fetch_offset}"
        # Where others are in sync, the leader is about to give way to one of them.
        return f"{lack}, and no other replica is in sync" if view.isr == (view.leader,) else lack

    def _tell_once(self, partition: int, why: str) -> None:
        """It is tried again and again: said once is enough."""
        if self._told.get(partition) != why:
            self._told[partition] = why
            _log.warning("partition id %d cannot follow: %s", partition, why)

    def _take_part(self, hosted: HostedPartition, part: Part, data: memoryview, now_ms: int) -> None:
        replica = hosted.replica
        follower = replica.follower if replica is not None else None
        if replica is None or follower is None:
            return
        log = HostedLog(hosted.log)
        # CRCs are checked with the copy of what is kept; here only where it counts that the leader has it. They prove
        # that it is what the leader has, and the leader has looked into the records when it got them.
        level: Level = "crc" if follower.is_mending(log) else "headers"
        rows = check_rows(data, level) if data.nbytes else []
        spans = [BatchSpan(row.base_offset, row.last_offset, row.leader_epoch) for row in rows]
        action = follower.take(part, spans, log)
        if isinstance(action, Truncate):
            self._truncate(hosted, action.offset, now_ms)
        elif isinstance(action, BeginAt):
            _log.warning(
                "%s begins anew at %d: its leader has nothing that would continue it at %d",
                hosted.name,
                action.offset,
                log.end_offset,
            )
            self._begin_at(hosted, action.offset, now_ms)
        elif isinstance(action, Append):
            if spans[0].base_offset < log.end_offset:
                # The leader's log begins within this batch; batches are kept whole.
                log = self._begin_at(hosted, spans[0].base_offset, now_ms)
            append_as_they_are(self._store, hosted.name, data, rows, now_ms=now_ms)
            follower.appended(part, log)
        self._advanced(hosted, now_ms)
        self._follow_start(hosted)

    def _truncate(self, hosted: HostedPartition, offset: int, now_ms: int) -> None:
        if not self._store.prepare_cut(hosted.name, offset, now_ms=now_ms):
            # The leader's next answer will say the same.
            raise PartitionBusy(f"{hosted.name} is cut to {offset} when its producers are known up to there")
        self._hosting.truncate(hosted, offset, now_ms)
        _log.info("%s is cut to %d, to be continued as its leader has it", hosted.name, offset)
        replica = hosted.replica
        assert replica is not None
        self._fetchers[self._lane_of[hosted.partition]].add(replica, HostedLog(hosted.log))

    def _begin_at(self, hosted: HostedPartition, offset: int, now_ms: int) -> HostedLog:
        self._hosting.begin_at(hosted, offset, now_ms)
        log, replica = HostedLog(hosted.log), hosted.replica
        assert replica is not None
        self._fetchers[self._lane_of[hosted.partition]].add(replica, log)
        return log

    def _halt(self, partition: int, why: ReplicaHalted) -> None:
        hosted = self._hosting.hosted.get(partition)
        if hosted is not None and hosted.replica is not None:
            _log.error("%s takes part in nothing any more: %s", hosted.name, why)
            hosted.replica.halt(why)
            self._unfollow(partition)

    # -- time ----------------------------------------------------------------------------------------------------------

    def work(self, now_ms: int) -> None:
        """Whenever something may have changed, or is due: ask, report, answer those whose time is up, propose."""
        if self._is_idle:
            self.due_ms = None
            return
        if self._fetchers:
            self.ask(now_ms)
        self._send_plans(self._desk.expire(now_ms), now_ms)
        if now_ms >= self._look_ms and (self._leading or self._hosting.closed):
            self._look_ms = now_ms + LOOK_MS
            if self.controller is not None:
                self._proposals.propose(self.controller, now_ms)
        self.due_ms = self._next_due_ms()

    def ask(self, now_ms: int) -> None:
        """Ask leaders for more, and tell them what is held here by now: acknowledgements wait for that, and for nothing
        else of a pass."""
        if self.peers is None:
            return
        # Of all memory, not of what is free: the recent tail fills it, and makes way. Where nothing can, the append
        # says so (PARTITION_BUSY), and the partition is asked for again after a pause.
        credit = min(REPLICA_FETCH_BYTES, self._store.memory_bytes // FOLLOW_MEMORY_SHARE)
        for lane, fetcher in self._fetchers.items():
            fetch = fetcher.next_fetch(now_ms, credit)
            if fetch is not None:
                self._send(self.peers, NodeApi.REPLICA_FETCH, lane, encode_ask(fetch))
            report = fetcher.report()
            if report is not None:
                self._send(self.peers, NodeApi.REPLICA_HELD, lane, encode_ask(report))

    def _send(self, peers: Outlet, api: NodeApi, lane: Lane, body: bytes) -> None:
        node, shard = lane
        header = frame_header(
            api_key=api,
            partition=0,
            correlation=shard,
            session=place(node),
            body_bytes=len(body),
        )
        peers.send(header + body)

    def altered(self, number: int, reply: AlterIsrReply, now_ms: int) -> None:
        """The controller's answer to a request of this shard."""
        for hosted in self._proposals.altered(number, reply):
            self._advanced(hosted, now_ms)

    @property
    def _is_idle(self) -> bool:
        """No replicated partition is here: a node by itself pays nothing for those that might be."""
        is_leading = self._leading or self._hosting.closed
        return not self._fetchers and not is_leading and self._desk.is_idle

    def _next_due_ms(self) -> int | None:
        due = [at for at in (self._desk.next_deadline_ms,) if at is not None]
        if self.peers is not None:
            due += [at for at in (fetcher.due_ms() for fetcher in self._fetchers.values()) if at is not None]
        if self._leading or self._hosting.closed:
            due.append(self._look_ms)
        return min(due, default=None)

    def connect(self, outlet: Outlet, now_ms: int) -> None:
        """The process that speaks with other nodes is there, or there anew: what was asked through the last one is
        asked again."""
        self.peers = outlet
        for fetcher in self._fetchers.values():
            fetcher.failed(now_ms)
        self._hasten(now_ms)

    def forget(self, outlet: object) -> None:
        """The process that speaks with other nodes died: what was asked through it is not answered any more."""
        self._desk.leave(lambda asker: isinstance(asker, Asker) and asker.outlet is outlet)
        if outlet is self.peers:
            self.peers = None
