"""The controller of a node in a cluster: a voter of the quorum, the metadata on it, and the way to whoever leads.

Requests of this node go to the active controller, which may be in this process or in another; the answer comes when the
records are committed. A request whose answer does not come is refused, retriably: it may have been done or not.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ringlog.consensus.messages import Entry, Snapshot
from ringlog.consensus.timing import Timing
from ringlog.controller.active import ActiveController, Request
from ringlog.controller.brokers import removed_message
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Identity, MetadataRecord, Partition
from ringlog.controller.topic_config import NOTHING
from ringlog.errors import ClusterMismatch, CorruptFrame, NotController, RequestTimeout, RinglogError
from ringlog.limits import BROKER_ABSENT_MS, BROKER_SESSION_MS, CONTROLLER_ANSWER_MS_MAX
from ringlog.net import cluster_messages, messages, move_messages
from ringlog.net.messages import Body, ErrorReply, decode_body, encode_body
from ringlog.net.peer_links import PeerLinks, PeerMessage
from ringlog.net.wire_errors import error_reply, raised
from ringlog.node.death_watch import DeathWatch
from ringlog.node.quorum import REMOVED, Quorum
from ringlog.node.quorum_store import QuorumStore
from ringlog.node.waiting import missing_majority

STRANGERS_MS = 3_000.0
"""A node that hears only another cluster for so long gives up."""
_log = logging.getLogger(__name__)
Answered = Callable[[msgspec.Struct | RinglogError], None]
_records = msgspec.msgpack.Decoder(list[MetadataRecord])
_REPLIES: dict[type[Body], type[Body]] = {
    cluster_messages.RegisterBrokerRequest: cluster_messages.RegisterBrokerReply,
    cluster_messages.BrokerHeartbeatRequest: cluster_messages.BrokerHeartbeatReply,
    cluster_messages.AlterIsrRequest: cluster_messages.AlterIsrReply,
    messages.CreateTopicRequest: messages.TopicReply,
    cluster_messages.CreateOffsetsTopicRequest: messages.TopicReply,
    messages.DeleteTopicRequest: messages.TopicReply,
    messages.AlterTopicRequest: messages.TopicReply,
    messages.AddPartitionsRequest: messages.TopicReply,
    messages.InitProducerRequest: messages.InitProducerReply,
    move_messages.ReassignRequest: move_messages.ReassignReply,
    move_messages.DrainNodeRequest: move_messages.ReassignReply,
    move_messages.AlterClusterRequest: move_messages.AlterClusterReply,
}
_KINDS: dict[str, type[Body]] = {kind.__name__: kind for kind in _REPLIES}


class _Asked(msgspec.Struct, array_like=True, frozen=True):
    """A request on its way to the active controller."""

    kind: str
    body: bytes


_asked = msgspec.msgpack.Decoder(_Asked)


class Publication(NamedTuple):
    """Committed records that nobody outside the controller knows yet."""

    version: int
    full: bool
    """What was known before is void: a snapshot took its place."""
    records: list[MetadataRecord]


class ClusterController:
    """Runs in the controller process of every node of a cluster."""

    def __init__(
        self,
        store: QuorumStore,
        endpoints: Mapping[int, str],
        *,
        now_ms: Callable[[], float],
        timing: Timing | None = None,
        default_partitions: int = 4,
        ports: Mapping[int, Sequence[str]] | None = None,
        topic_defaults: Mapping[str, str] = NOTHING,
    ) -> None:
        """`ports`: all that each node listens at for the others: one that refuses everywhere is dead;
        `topic_defaults`: what holds for topics that do not say otherwise."""
        self.node_id = store.me.node_id
        self.image = MetadataImage()
        """What is committed, as far as this node knows."""
        self.published: list[Publication] = []
        """What was committed since somebody took it away: for the processes of this node."""
        self._alone_since_ms: float | None = None
        self._began_ms = now_ms()
        self._heard_ms: dict[int, float] = {}
        """When each node was last heard."""
        self._lost_ms: dict[int, float] = {}
        """When the connections broke that are broken now."""
        self._former_leader: int | None = None
        """Who led the quorum before this node, if it does now."""
        self._default_partitions = default_partitions
        self._topic_defaults = topic_defaults
        self.unclean_elections = 0
        """Leaders that this one has elected although they were not in sync."""
        self._endpoints = dict(endpoints)
        self._members = frozenset(endpoints)
        """The nodes that this one was told of at its start."""
        self._now_ms = now_ms
        self._active: ActiveController | None = None
        self._active_epoch = 0
        self._asked: dict[int, tuple[type[Body], float, Answered]] = {}
        self._number = secrets.randbits(48) + REMOVED + 1
        self._links = PeerLinks(self.node_id, endpoints)
        self._deaths = DeathWatch(ports or {}, self._has_left)
        self.quorum = Quorum(store, self._links, self, now_ms=now_ms, timing=timing)

    # -- the state machine -------------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        records = _records.decode(entry.data) if entry.kind == "data" else []
        for record in records:
            self.image.replay(record)
            if isinstance(record, Identity):
                self.quorum.join(record.cluster_id)
        self.image.version = entry.index
        self.published.append(Publication(entry.index, False, records))

    def restore(self, snapshot: Snapshot) -> None:
        self.image = MetadataImage()
        records = _records.decode(snapshot.data) if snapshot.data else []
        for record in records:
            self.image.replay(record)
        self.image.version = snapshot.last_index
        self.published = [Publication(snapshot.last_index, True, records)]

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.image.records())

    # -- requests ----------------------------------------------------------------------------------------------

    def ask(self, request: Request, answered: Answered) -> None:
        """Have the active controller do something, wherever it is."""
        leader_id = self.quorum.raft.leader_id
        if leader_id is None:
            answered(NotController("no controller is elected yet. Retry after a pause"))
        elif leader_id == self.node_id:
            self._judge(request, answered)
        else:
            self._number += 1
            body = msgspec.msgpack.encode(_Asked(type(request).__name__, encode_body(request)))
            if self._links.send(leader_id, "ask", body, number=self._number):
                until_ms = self._now_ms() + CONTROLLER_ANSWER_MS_MAX
                self._asked[self._number] = (_REPLIES[type(request)], until_ms, answered)
            else:
                answered(
                    NotController(f"node {leader_id}, the controller, cannot be reached. Retry after a pause")
                )

    def run(self, wait_s: float) -> None:
        """One pass."""
        now_ms = self._now_ms()
        self.quorum.removed = self.image.removed
        self.quorum.raft.wish(self._members, self.image.removed)
        self.quorum.run(max(0.0, min(wait_s, (self._deaths.next_ms(now_ms) - now_ms) / 1000)))
        if self.image.cluster_id and self._links.cluster_id != self.image.cluster_id:
            self.quorum.join(
                self.image.cluster_id
            )  # it came with a snapshot: a newcomer is sent no first record
        others, self.quorum.others = self.quorum.others, []
        for message in others:
            if message.kind == "ask":
                self._serve(message)
            else:
                self._answered(message)
        self._watch_connections()
        active = self._in_office()
        if active is not None:
            records = active.due(self._now_ms())
            if records:
                lossy = [
                    (one, active.planned.partitions[one.partition].isr)
                    for one in records
                    if isinstance(one, Partition)
                    and one.unclean_epoch > active.planned.partitions[one.partition].unclean_epoch
                ]
                self._append(active, records, lambda done: self._tell_unclean(lossy) if done else None)
        self._give_up()

    def _tell_unclean(self, lossy: Sequence[tuple[Partition, tuple[int, ...]]]) -> None:
        """Say which partitions are led by who was not in sync, and who was: nobody else would."""
        for partition, in_sync in lossy:
            self.unclean_elections += 1
            _log.error(
                "%s is led by node %d, which was not in sync: records that only %s had are lost",
                self.image.name_of(partition.partition),
                partition.leader,
                ", ".join(f"node {node_id}" for node_id in in_sync) or "a lost disk",
            )

    def _watch_connections(self) -> None:
        """A node whose connection broke, or that led the quorum and was deposed, has less time to be heard."""
        now_ms, leader_id = self._now_ms(), self.active_id
        before, self._lost_ms = self._lost_ms, {}
        for node_id in self._links.lost:
            self._lost_ms[node_id] = before.get(node_id, now_ms)
            if node_id not in before and self._active is not None:
                self._active.lost(node_id, now_ms)
        for node_id in self._links.heard_of:
            self._heard_ms[node_id] = now_ms
        self._deaths.follow(self._links, now_ms)
        if self._active is not None:
            for node_id in self._deaths.dead:
                self._active.dead(node_id)
        if leader_id is not None and leader_id != self.node_id:
            self._former_leader = leader_id

    def _has_left(self, node_id: int) -> bool:
        broker = self.image.brokers.get(node_id)
        return broker is not None and broker.leaving

    @property
    def active_id(self) -> int | None:
        """The node whose controller is the active one, as far as this one knows."""
        return self.quorum.raft.leader_id

    @property
    def unheard(self) -> tuple[int, ...]:
        """While nobody leads the metadata, which would say who is gone: the nodes that this one does not hear."""
        if self.active_id is not None:
            return ()
        now_ms = self._now_ms()
        return tuple(
            node_id
            for node_id in sorted(self.image.brokers)
            if node_id != self.node_id
            and (
                node_id in self._links.lost
                or now_ms - self._heard_ms.get(node_id, self._began_ms) > BROKER_ABSENT_MS
            )
        )

    def step_aside(self) -> bool:
        """Let the controller of another node be the active one; False when one is, or none could be."""
        under_way = self.quorum.raft.step_aside(self._now_ms())
        self.quorum.pump()
        return under_way

    def watch(self, fd: int) -> None:
        """End the sleep of `run` also when this descriptor is readable."""
        self._links.watch(fd)

    def missing_majority(self) -> str:
        """What this node waits for while nobody leads the metadata, in words."""
        now_ms, links = self._now_ms(), self._links
        heard = {one for one, at_ms in self._heard_ms.items() if now_ms - at_ms <= BROKER_ABSENT_MS}
        return missing_majority(
            self.node_id, links.cluster_id, self._endpoints, connected=links.connected, heard=heard
        )

    def require_company(self) -> None:
        """Raise ClusterMismatch when all that is heard at the others' addresses is another cluster."""
        links = self._links
        if not links.strangers or links.heard:
            self._alone_since_ms = None
            return
        now_ms = self._now_ms()
        if self._alone_since_ms is None:
            self._alone_since_ms = now_ms
        elif now_ms - self._alone_since_ms > STRANGERS_MS:
            who = ", ".join(f"node {node} to {cluster}" for node, cluster in sorted(links.strangers.items()))
            raise ClusterMismatch(
                f"this node belongs to cluster {links.cluster_id}, and at the addresses of --cluster there is another: "
                f"{who}. Check --cluster and --data-dir"
            )

    def close(self) -> None:
        self._deaths.close()
        self.quorum.close()

    def _in_office(self) -> ActiveController | None:
        raft = self.quorum.raft
        if not self.quorum.leads:
            self._active = None
            return None
        if self._active is None or self._active_epoch != raft.epoch:
            entries = raft.log.slice(raft.applied_index + 1)
            appended = [r for entry in entries if entry.kind == "data" for r in _records.decode(entry.data)]
            self._active = ActiveController(
                self.image,
                appended,
                session_ms=BROKER_SESSION_MS,
                now_ms=self._now_ms(),
                default_partitions=self._default_partitions,
                nodes=len(self._members - self.image.removed),
                topic_defaults=self._topic_defaults,
            )
            self._active_epoch = raft.epoch
            if self._former_leader is not None:
                self._active.lost(self._former_leader, self._now_ms())
            for node_id, at_ms in self._lost_ms.items():
                self._active.lost(node_id, at_ms)
            for node_id in self._deaths.dead:
                self._active.dead(node_id)
            if not self._active.planned.cluster_id:
                identity = Identity(secrets.token_hex(8), self.node_id)
                self._append(self._active, [identity], lambda done: None)
        return self._active

    def _judge(self, request: Request, answered: Answered) -> None:
        try:
            active = self._in_office()
            if active is None:
                raise NotController("another node is the controller now. Retry")
            version = self.quorum.raft.commit_index
            outcome = active.judge(request, committed_version=version, now_ms=self._now_ms())
        except RinglogError as error:
            answered(error)
            return

        def committed(done: bool) -> None:
            answered(
                outcome.reply(self.image)
                if done
                else RequestTimeout(
                    "the controller changed before the change was committed. Look, then retry"
                )
            )

        if outcome.records:
            self._append(active, outcome.records, committed)
        else:
            # It was judged by what is on its way, and may not be told before that is true.
            self.quorum.when_committed(committed)

    def _append(
        self, active: ActiveController, records: list[MetadataRecord], done: Callable[[bool], None]
    ) -> None:
        try:
            self.quorum.propose(msgspec.msgpack.encode(records), done)
        except NotController:
            done(False)  # it is handing over: nothing is taken any more
            return
        active.appended(records)
        self.quorum.pump()

    def _serve(self, message: PeerMessage) -> None:
        """Another node asks."""

        def answered(reply: msgspec.Struct | RinglogError) -> None:
            failed = isinstance(reply, RinglogError)
            body = encode_body(error_reply(reply) if isinstance(reply, RinglogError) else reply)
            self._links.send(message.source, "answer", body, number=message.number, error=failed)

        try:
            asked = _asked.decode(message.body)
            if asked.kind not in _KINDS:
                raise CorruptFrame("request", 0, f"{asked.kind[:40]!r} is none")
            request: Any = decode_body(asked.body, _KINDS[asked.kind])
        except (msgspec.DecodeError, CorruptFrame) as wrong:
            answered(wrong if isinstance(wrong, CorruptFrame) else CorruptFrame("request", 0, str(wrong)))
            return
        self._judge(request, answered)

    def _answered(self, message: PeerMessage) -> None:
        if message.number == REMOVED:
            raise ClusterMismatch(removed_message(self.node_id))
        kind, _, answered = self._asked.pop(message.number, (None, 0.0, None))
        if kind is None or answered is None:
            return
        try:
            if message.error:
                answered(raised(decode_body(message.body, ErrorReply)))
            else:
                answered(decode_body(message.body, kind))
        except CorruptFrame as wrong:
            answered(wrong)

    def _give_up(self) -> None:
        now_ms = self._now_ms()
        for number in [number for number, (_, until_ms, _) in self._asked.items() if until_ms <= now_ms]:
            _, _, answered = self._asked.pop(number)
            answered(RequestTimeout("the controller did not answer in time. Look, then retry"))
