"""The loop of the controller process of a node in a cluster: the quorum, this node's standing in it, and its processes.

Requests of clients and shards go to the active controller, wherever it is; what is committed goes to all processes of
this node as deltas, with this node's id in them. Nobody here is told anything before this life of the node is
registered and known: with the metadata of an earlier life, a shard would go on leading in an epoch that is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from ringlog.config import NodeConfig
from ringlog.controller.active import Request
from ringlog.controller.health import health_of
from ringlog.controller.records import NO_CONTROLLER, Delta, Identity, MetadataRecord, deltas_of
from ringlog.controller.topic_config import node_defaults
from ringlog.errors import (
    CorruptFrame,
    NotController,
    NotEnoughBrokers,
    Overloaded,
    RequestTimeout,
    RingClosed,
    RingCorrupt,
    RinglogError,
    RingStale,
    UnsupportedVersion,
)
from ringlog.limits import BROKER_BEAT_MS, CONTROLLER_PATIENCE_MS, CONTROLLER_REQUESTS_MAX
from ringlog.net.cluster_messages import AlterIsrRequest, CreateOffsetsTopicRequest
from ringlog.net.framing import Api
from ringlog.net.group_messages import OFFSETS_TOPIC
from ringlog.net.messages import (
    AddPartitionsRequest,
    AlterTopicRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    InitProducerRequest,
    TopicReply,
    decode_body,
)
from ringlog.net.move_messages import (
    AlterClusterReply,
    AlterClusterRequest,
    DrainNodeRequest,
    ReassignReply,
    ReassignRequest,
)
from ringlog.node.audience import Audience
from ringlog.node.broker_session import BrokerSession
from ringlog.node.cluster_controller import ClusterController
from ringlog.node.load_meter import LoadMeter
from ringlog.ring.board import Board, Links, ProcessState
from ringlog.ring.frame import is_overdue
from ringlog.ring.link import LinkEnd
from ringlog.ring.ring import Message
from ringlog.ring.standstill import StandstillWatch
from ringlog.ring.stats import LoopClock, Stats
from ringlog.shard.asker import NOT_BEGUN, Asker
from ringlog.shard.commands import NodeApi, unpack_u64

IDLE_WAIT_S = 0.5
WAITING_WAIT_S = 0.005
"""How long to sleep while shards are waited for, or room in a ring."""
LEAVE_MS = 3_000.0
"""A node that stops tries for so long to let another controller be the active one."""
LEAVE_SILENT_MS = 2_000.0
"""And it stops without moving anything when no controller answers for so long."""
SAY_WAITING_MS = 10_000.0
"""How often a node that waits for others of its cluster says so."""
HEALTH_MS = 250.0
"""Between two counts of what is missing in the cluster."""
RETRY_MS = 50.0
"""Between two attempts of a request that waits for a controller, or for nodes."""

_log = logging.getLogger(__name__)


class _Pending(msgspec.Struct):
    """A client's request that is not answered yet."""

    request: Request
    asker: Asker
    due_ms: int
    """When its client gives up, as the frame said it."""
    until_ms: float
    again_ms: float = 0.0


class _Office(NamedTuple):
    """Who decides for the cluster, as the processes of this node are told beside the metadata."""

    controller_id: int
    unheard: tuple[int, ...]
    """While nobody does: the nodes that are not heard."""


class ClusterAgent:
    """The controller process's work, on a node of a cluster."""

    def __init__(
        self,
        process: int,
        config: NodeConfig,
        board: Board,
        links: Links,
        controller: ClusterController,
        session: BrokerSession,
        stats: Stats,
        stopping: Callable[[], bool],
    ) -> None:
        self._process = process
        self._board = board
        self._links = links
        self._controller = controller
        self._session = session
        self._stats = stats
        self._stopping = stopping
        self._audience = Audience(board, links)
        self._clock = LoopClock(stats)
        self._meter = LoadMeter(stats.page.served)
        topology = board.topology
        self._standstill = StandstillWatch(
            lambda: stats.page.passes(topology.shard(0), topology.shards), look_ms=BROKER_BEAT_MS
        )
        self._still: list[int] = []
        """Shards that stood still at the last look."""
        self._told = False
        """The processes of this node have been told what there is."""
        self._told_office = _Office(NO_CONTROLLER, ())
        self._led_ms = _now_ms()
        """When somebody was last known to lead the metadata."""
        self._said_ms = self._led_ms
        self._asked = 0
        """Requests of clients that are with the active controller."""
        self._again: list[_Pending] = []
        """Those that wait for a controller, or for nodes."""
        self._topic_defaults = node_defaults(config.topic_defaults)
        self._seen: tuple[int, tuple[int, ...]] = (-1, ())
        """The version of the metadata whose health was counted, and who was not heard then."""
        self._health_at_ms = 0.0
        self._leave_ms: float | None = None
        """Since when the node is to stop."""
        controller.watch(links.bell.fd)

    def run(self) -> None:
        """Work until told to stop."""
        busy = True
        while not self._stopping():
            busy = self.cycle(busy)
        self._controller.close()
        self._stats.show()

    def cycle(self, busy: bool = False) -> bool:
        """One pass; whether there was something to do. After a busy one it does not sleep."""
        quiet = self._links.announce_wait()
        room = self._links.pump()
        self._clock.rest(time.monotonic_ns() // 1000)
        self._controller.run(0.0 if busy or not quiet else self._patience_s(room))
        self._clock.work(time.monotonic_ns() // 1000)
        self._links.end_wait()
        self._publish()
        self._audience.welcome(self._whole)
        self._keep_standing()
        self._leave()
        found = self._take_requests()
        self._ask_again()
        self._audience.answer_served(self._controller.image.version)
        self._links.pump()
        self._show()
        return found

    def _show(self) -> None:
        """Bring the stats page up to date; what takes a look at every partition, not at every pass."""
        now_ms = _now_ms()
        image, office, counts = self._controller.image, self._office, self._stats.counts
        seen = (image.version, office.unheard)
        if self._health_at_ms <= now_ms and self._seen != seen:
            self._health_at_ms, self._seen = now_ms + HEALTH_MS, seen
            counts.update(health_of(image, self._topic_defaults, office.unheard)._asdict())
        if office.controller_id != NO_CONTROLLER:
            self._led_ms = self._said_ms = now_ms
        elif now_ms - self._said_ms >= SAY_WAITING_MS:
            self._said_ms = now_ms
            _log.warning("nobody leads the metadata: %s", self._controller.missing_majority())
        counts["no_controller_ms"] = int(now_ms - self._led_ms)
        counts["unclean_elections"] = self._controller.unclean_elections
        counts["active_controller"] = int(office.controller_id == self._controller.node_id)
        self._stats.show()

    def _patience_s(self, room: bool) -> float:
        """How long nothing is due; the quorum knows its own times."""
        if self._audience.has_waiting or not room:
            return WAITING_WAIT_S
        due_ms = min((one.again_ms for one in self._again), default=self._session.due_ms)
        due_s = (min(due_ms, self._session.due_ms) - _now_ms()) / 1000
        return max(0.0, min(IDLE_WAIT_S, due_s))

    # -- what this node is told ----------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Tell the processes of this node what was committed, and who is the active controller."""
        news, self._controller.published = self._controller.published, []
        office = self._office
        if not self._told:
            if self._knows_this_life():
                self._told, self._told_office = True, office
                self._audience.tell(self._whole())
            return
        if any(one.full for one in news):
            self._audience.tell(self._whole())
        elif news or office != self._told_office:
            records = [record for one in news for record in one.records]
            version = self._controller.image.version
            self._audience.tell(deltas_of(version, self._ours(records), full=False, **office._asdict()))
        self._told_office = office

    @property
    def _office(self) -> _Office:
        controller = self._controller
        return _Office(controller.active_id or NO_CONTROLLER, controller.unheard)

    def _knows_this_life(self) -> bool:
        """Whether the metadata here is as new as this node's registration. Then it is also newer than anything that
        an earlier controller process of the same life has told: that was committed before."""
        image, session = self._controller.image, self._session
        broker = image.brokers.get(self._controller.node_id)
        return (
            bool(image.cluster_id)
            and session.broker_epoch is not None
            and image.version >= session.registered_version
            and broker is not None
            and broker.broker_epoch == session.broker_epoch
        )

    def _whole(self) -> Sequence[Delta]:
        """All that there is; nothing while this node must not know."""
        if not self._told:
            return []
        image = self._controller.image
        return deltas_of(image.version, self._ours(image.records()), full=True, **self._office._asdict())

    def _ours(self, records: Sequence[MetadataRecord]) -> list[MetadataRecord]:
        """Records as this node's processes shall know them: it is this node that they are of."""
        me = self._controller.node_id
        return [Identity(one.cluster_id, me) if isinstance(one, Identity) else one for one in records]

    # -- this node in the cluster --------------------------------------------------------------------------------

    def _keep_standing(self) -> None:
        session = self._session
        # At first all shards must be there; later, one that is being restarted does not make the node a silent one.
        is_up = self._told and (session.serving or self._audience.all_live)
        version = self._controller.image.version if is_up else 0
        request = session.next_request(
            served_version=min(self._audience.served(version), version),
            want_stop=self._board.stopping,
            now_ms=_now_ms(),
            loads=self._loads,
            still_shards=self._still_shards,
        )
        if request is not None:
            self._controller.ask(request, lambda reply: session.answered(request, reply, _now_ms()))
        if not session.serving:
            self._controller.require_company()
        if session.serving and self._board.state(self._process) is ProcessState.STARTING:
            self._board.set_state(self._process, ProcessState.READY)

    def _loads(self) -> list[tuple[int, int]]:
        return self._meter.report(self._controller.image, self._controller.node_id, _now_ms())

    def _still_shards(self) -> list[int]:
        """Shards that stand still: others are to lead what they led."""
        found = self._standstill.look(_now_ms())
        for shard in set(found) - set(self._still):
            _log.warning(
                "shard-%d stands still: others lead its partitions where they can, until it moves again",
                shard,
            )
        self._still = found
        return found

    def _leave(self) -> None:
        """The node is to stop: what it leads moves first, then the quorum's leadership. Then the supervisor is told.
        Without a controller to ask there is nothing to wait for."""
        if not self._board.stopping or self._board.state(self._process) is ProcessState.LEFT:
            return
        now_ms = _now_ms()
        if self._leave_ms is None:
            self._leave_ms = now_ms
        silent_ms = now_ms - max(self._leave_ms, self._session.heard_ms)
        if not self._session.may_stop and silent_ms < LEAVE_SILENT_MS:
            return
        if now_ms - self._leave_ms >= LEAVE_MS or not self._controller.step_aside():
            self._board.set_state(self._process, ProcessState.LEFT)

    # -- requests ------------------------------------------------------------------------------------------------

    def _take_requests(self) -> bool:
        found = False
        for peer, end in self._links.ends.items():
            try:
                messages = end.reader.read_all()
                for message in messages:
                    self._take(peer, end, message)
                found = found or bool(messages)
                end.reader.release()
            except (RingStale, RingClosed, RingCorrupt):
                continue  # its process is gone or mad: the supervisor will make a new one
        return found

    def _take(self, peer: int, end: LinkEnd, message: Message) -> None:
        body = bytes(message.body)  # who waits for other nodes must hold no view of the ring
        api_key, partition = body[1], int.from_bytes(body[4:8], "little")
        if api_key == NodeApi.APPLIED:
            self._audience.applied(peer, unpack_u64(memoryview(body)[32:])[0])
            return
        correlation = int.from_bytes(body[8:16], "little")
        asker = Asker(end, int.from_bytes(body[16:24], "little"), correlation, api_key, partition)
        if api_key == NodeApi.ALTER_ISR:
            self._alter_isr(asker, body[32:])
            return
        self._stats.counts["requests"] += 1
        due_ms = int.from_bytes(body[24:28], "little")
        try:
            if self._asked + len(self._again) >= CONTROLLER_REQUESTS_MAX:
                raise Overloaded("too many requests wait for the controller")
            request = self._decode(asker, body[32:])
            self._ask(_Pending(request, asker, due_ms, _now_ms() + CONTROLLER_PATIENCE_MS))
        except RinglogError as error:
            self._refuse(asker, error)

    def _decode(self, asker: Asker, body: bytes) -> Request:
        match asker.api_key:
            case Api.INIT_PRODUCER:
                return decode_body(body, InitProducerRequest)
            case Api.CREATE_TOPIC:
                request = decode_body(body, CreateTopicRequest)
                if asker.session != 0:
                    return request
                # A network process asks for itself: a client needs it.
                if request.name == OFFSETS_TOPIC:
                    return CreateOffsetsTopicRequest()
                return msgspec.structs.replace(request, replication_factor=-1)
            case Api.DELETE_TOPIC:
                return decode_body(body, DeleteTopicRequest)
            case Api.ALTER_TOPIC:
                return decode_body(body, AlterTopicRequest)
            case Api.ADD_PARTITIONS:
                return decode_body(body, AddPartitionsRequest)
            case Api.REASSIGN:
                return decode_body(body, ReassignRequest)
            case Api.DRAIN_NODE:
                return decode_body(body, DrainNodeRequest)
            case Api.ALTER_CLUSTER:
                return decode_body(body, AlterClusterRequest)
        raise UnsupportedVersion(f"api {asker.api_key} is not known to this node")

    def _ask(self, pending: _Pending) -> None:
        if is_overdue(pending.due_ms, time.monotonic_ns() // 1_000_000):
            self._refuse(pending.asker, RequestTimeout(NOT_BEGUN))
            return
        self._asked += 1

        def answered(reply: msgspec.Struct | RinglogError) -> None:
            self._asked -= 1
            now_ms = _now_ms()
            if isinstance(reply, NotController | NotEnoughBrokers) and now_ms + RETRY_MS < pending.until_ms:
                pending.again_ms = now_ms + RETRY_MS  # nothing was done: it may be asked again
                self._again.append(pending)
            elif isinstance(reply, RinglogError):
                self._refuse(pending.asker, reply)
            elif isinstance(reply, TopicReply | ReassignReply | AlterClusterReply):
                self._audience.reply_when_served(reply.version, pending.asker, reply)
            else:
                pending.asker.reply_struct(reply)

        self._controller.ask(pending.request, answered)

    def _ask_again(self) -> None:
        now_ms = _now_ms()
        due = [pending for pending in self._again if pending.again_ms <= now_ms]
        if due:
            self._again = [pending for pending in self._again if pending.again_ms > now_ms]
            for pending in due:
                self._ask(pending)

    def _refuse(self, asker: Asker, error: RinglogError) -> None:
        self._stats.counts["errors"] += 1
        asker.refuse(error)

    def _alter_isr(self, asker: Asker, body: bytes) -> None:
        """A shard proposes in-sync replicas; what is not answered, it proposes again."""
        try:
            request = decode_body(body, AlterIsrRequest)
        except CorruptFrame as wrong:
            _log.error("a shard sent what is no proposal: %s", wrong)
            return

        def answered(reply: msgspec.Struct | RinglogError) -> None:
            if isinstance(reply, RinglogError):
                _log.info("a change of in-sync replicas was not made: %s", reply)
            else:
                asker.reply_struct(reply)

        self._controller.ask(request, answered)


def _now_ms() -> float:
    return time.monotonic() * 1000
