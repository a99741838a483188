"""A world of consumers, a network and a coordinator, in which all goes wrong that can.

Members send heartbeats and commits through a network which delays, repeats, reorders and loses them, to a
coordinator that crashes and is made anew from its log. Members behave as the client does: they take an answer only for
the life that asked for it and never an older epoch, give up before they say so, and drop all when nobody has answered
them for a session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ringlog.coordination.catalogue import TopicInfo
from ringlog.coordination.coordinator import GroupCoordinator, Outcome
from ringlog.coordination.records import decode_record, encode_record
from ringlog.errors import InstanceFenced, MemberFenced, RinglogError
from ringlog.model import TopicPartition
from ringlog.net.group_messages import (
    JOIN,
    LEAVE,
    GroupHeartbeatRequest,
    OffsetCommitRequest,
    OffsetToCommit,
    TopicPartitions,
)

SESSION_MS = 10_000
GROUP = "g"
HOW = ("now", "late", "twice")
SUBSCRIPTIONS = (("a",), ("a", "b"), ("b",), ("a", "b", "c"))
Pick = Callable[[Sequence[Any]], Any]


@dataclass
class Client:
    """A member, as its own process sees it."""

    member_id: str
    topics: tuple[str, ...]
    instance_id: str = ""
    alive: bool = True
    epoch: int = JOIN
    life: int = 0
    """Grows when it drops everything: answers to questions from before count no more."""
    using: dict[TopicPartition, int] = field(default_factory=dict)
    """What it works on, and how far it is."""
    told: frozenset[TopicPartition] = frozenset()
    acknowledged_ms: int = 0
    """When it sent the last heartbeat that was answered."""
    sequence: int = 0
    stopped_by: RinglogError | None = None

    def drop_all(self) -> None:
        self.epoch, self.using, self.told = JOIN, {}, frozenset()
        self.life += 1


@dataclass(eq=False)
class Sent:
    """A heartbeat on its way, there or back."""

    client: Client
    life: int
    sent_ms: int
    request: GroupHeartbeatRequest


def grouped(tps) -> list[TopicPartitions]:
    topics = sorted({tp.topic for tp in tps})
    return [TopicPartitions(t, sorted(tp.partition for tp in tps if tp.topic == t)) for t in topics]


class GroupWorld:
    """Each public method is something that happens; `pick` decides what is left open."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self.now_ms = 1_000
        self.catalogue = {"a": TopicInfo(1, 3), "b": TopicInfo(2, 2)}
        self.durable: list[tuple[bytes, bytes | None]] = []
        self.appended: list[tuple[bytes, bytes | None]] = []
        self.held_back: list = []
        """Replies that wait until what was appended is durable."""
        self.to_node: list = []
        self.to_client: list = []
        self.all: list[Client] = []
        self.committed: dict[TopicPartition, int] = {}
        self.coordinator = GroupCoordinator(self.catalogue)
        self.coordinator.loaded(self.now_ms)

    # -- the node ------------------------------------------------------------------------------------------------

    def do(self, call, *, rejoins: str = "") -> None:
        """Let the coordinator work, and look that nobody loses what they keep."""
        group = self.coordinator.image.groups.get(GROUP)
        before = {
            (m.member_id, tp): held.since
            for m in (group.members.values() if group else ())
            for tp, held in m.holdings.items()
            if not held.revoking and m.member_id != rejoins
        }
        outcome: Outcome = call()
        self.appended += [encode_record(record) for record in outcome.records]
        self.held_back += outcome.replies
        group = self.coordinator.image.groups.get(GROUP)
        for (member_id, tp), since in before.items():
            member = group.members.get(member_id)
            if member is not None and tp in member.target:
                assert not member.holdings[tp].revoking, f"{member_id} is revoked of {tp}, which it keeps"
                assert member.holdings[tp].since == since

    def receive(self, message) -> None:
        if isinstance(message, Sent):
            request = message.request
            rejoins = request.member_id if request.member_epoch == JOIN else ""
            try:
                self.do(lambda: self.coordinator.heartbeat(message, request, self.now_ms), rejoins=rejoins)
            except (MemberFenced, InstanceFenced) as error:
                self.to_client.append((message, error))
            return
        try:
            self.do(lambda: self.coordinator.commit(None, message, self.now_ms))
        except MemberFenced:
            return
        group = self.coordinator.image.groups[GROUP]
        for tp, value in group.offsets.items():
            assert value.offset >= self.committed.get(tp, 0), f"the offset of {tp} went back"
            self.committed[tp] = value.offset

    def flush(self) -> None:
        self.durable += self.appended
        self.appended.clear()
        self.to_client += [(r.ticket, r.body) for r in self.held_back if r.ticket is not None]
        self.held_back.clear()

    def crash(self, compacted: bool) -> None:
        """What was not durable is gone, with the answers that waited for it, and the heartbeats that waited."""
        self.appended.clear()
        self.held_back.clear()
        if compacted:
            latest = {key: at for at, (key, _) in enumerate(self.durable)}
            self.durable = [self.durable[at] for at in sorted(latest.values())]
            self.durable = [(key, value) for key, value in self.durable if value is not None]
        self.coordinator = GroupCoordinator(self.catalogue)
        for key, value in self.durable:
            self.coordinator.image.replay(decode_record(key, value))
        self.coordinator.loaded(self.now_ms)
        group = self.coordinator.image.groups.get(GROUP)
        self.committed = {tp: v.offset for tp, v in group.offsets.items()} if group else {}
        self.do(lambda: self.coordinator.follow(self.catalogue, self.now_ms))

    def grow(self, topic: str) -> None:
        """A topic gets a partition, or comes to be."""
        known = self.catalogue.get(topic, TopicInfo(3, 0))
        if known.partitions < 6:
            self.catalogue = self.catalogue | {topic: TopicInfo(known.topic_id, known.partitions + 1)}
            self.do(lambda: self.coordinator.follow(self.catalogue, self.now_ms))

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        for client in self.all:
            if client.alive and self.now_ms - client.acknowledged_ms >= SESSION_MS:
                client.drop_all()
                client.acknowledged_ms = self.now_ms
        self.do(lambda: self.coordinator.tick(self.now_ms))

    # -- the network ---------------------------------------------------------------------------------------------

    def deliver_to_node(self, repeat: bool) -> None:
        if self.to_node:
            at = self.pick(range(len(self.to_node)))
            message = self.to_node[at] if repeat else self.to_node.pop(at)
            self.receive(message)

    def deliver_to_client(self) -> None:
        if self.to_client:
            at = self.pick(range(len(self.to_client)))
            self.hear(*self.to_client.pop(at))

    def lose(self) -> None:
        bag = self.pick([self.to_node, self.to_client])
        if bag:
            bag.pop(self.pick(range(len(bag))))

    # -- members -------------------------------------------------------------------------------------------------

    def living(self) -> list[Client]:
        return [client for client in self.all if client.alive]

    def start(self, topics: tuple[str, ...], instance: str, late: bool) -> None:
        if len(self.living()) >= 4:
            return
        if instance and any(client.instance_id == instance for client in self.living()):
            instance = ""  # two living processes of one name are a mistake of their owner
        client = Client(f"m{len(self.all)}", topics, instance, acknowledged_ms=self.now_ms)
        self.all.append(client)
        self.send(self.heartbeat(client), "late" if late else "now")

    def heartbeat(self, client: Client, wait_ms: int = 0) -> Sent:
        request = GroupHeartbeatRequest(
            GROUP,
            client.member_id,
            client.epoch,
            grouped(client.using),
            wait_ms,
            list(client.topics),
            session_timeout_ms=SESSION_MS,
            instance_id=client.instance_id,
        )
        return Sent(client, client.life, self.now_ms, request)

    def send(self, message, how: str) -> None:
        """Now, late, or now with a copy that comes late."""
        if how in ("late", "twice"):
            self.to_node.append(message)
        if how in ("now", "twice"):
            self.receive(message)

    def beat(self, wait_ms: int, how: str) -> None:
        if self.living():
            self.send(self.heartbeat(self.pick(self.living()), wait_ms), how)

    def beat_all(self, give_up: bool, how: str) -> None:
        """Everybody sends a heartbeat, and has the answer at once unless it is late."""
        for client in self.living():
            if give_up:
                self.give_up(client)
            self.send(self.heartbeat(client), how)
        self.flush()
        while self.to_client:
            self.hear(*self.to_client.pop(0))

    def hear(self, sent: Sent, answer) -> None:
        client = sent.client
        if not client.alive or sent.life != client.life:
            return
        if isinstance(answer, RinglogError):
            client.drop_all()
            if isinstance(answer, InstanceFenced):
                client.alive, client.stopped_by = False, answer
            return
        if answer.member_epoch == LEAVE or answer.member_epoch < client.epoch:
            return
        client.acknowledged_ms = max(client.acknowledged_ms, sent.sent_ms)
        if answer.assigned is None:
            return
        if sent.request.member_epoch == JOIN and client.epoch != JOIN:
            return  # an older answer to a question that was answered since
        client.epoch = answer.member_epoch
        client.told = frozenset(TopicPartition(t.topic, p) for t in answer.assigned for p in t.partitions)
        for tp in client.told - client.using.keys():
            client.using[tp] = self.committed.get(tp, 0)

    def give_up(self, client: Client) -> None:
        """The member's work on what it was told to give up has ended."""
        for tp in client.using.keys() - client.told:
            del client.using[tp]

    def commit(self, how: str) -> None:
        living = [client for client in self.living() if client.using]
        if not living:
            return
        client = self.pick(living)
        for tp in client.using:
            client.using[tp] += self.pick((1, 2, 3))
        client.sequence += 1
        offsets = [OffsetToCommit(tp.topic, tp.partition, at) for tp, at in client.using.items()]
        self.send(OffsetCommitRequest(GROUP, client.member_id, client.epoch, client.sequence, offsets), how)

    def go(self, how: str) -> None:
        if not self.living():
            return
        client = self.pick(self.living())
        client.drop_all()
        if how == "loses all":
            return  # and will rejoin
        client.alive = False
        if how == "leaves":
            request = GroupHeartbeatRequest(GROUP, client.member_id, LEAVE)
            self.send(Sent(client, client.life, self.now_ms, request), "now")

    def rest(self) -> None:
        """Nothing more happens but heartbeats: soon every partition has its reader."""
        self.to_node.clear()
        for _ in range(8):
            self.beat_all(give_up=True, how="now")
            self.wait(SESSION_MS // 4)
        living = self.living()
        wanted = {topic for client in living for topic in client.topics} & self.catalogue.keys()
        partitions = {TopicPartition(t, p) for t in wanted for p in range(self.catalogue[t].partitions)}
        held = [tp for client in living for tp in client.using]
        assert sorted(held) == sorted(partitions), "at rest every partition has exactly one reader"
        for client in living:
            assert all(tp.topic in client.topics for tp in client.using)

    def one_reader(self) -> None:
        held = [tp for client in self.all if client.alive for tp in client.using]
        assert len(held) == len(set(held)), "a partition has one reader at most"
