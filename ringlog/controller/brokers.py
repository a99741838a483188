"""Nodes come, say that they live, fall silent, and leave: what the controller makes of it, as records. Pure.

A node registers at every start and gets an epoch that is never given again; until it has caught up with the metadata it
is fenced. Who lives is not in the log: the active controller counts from what it hears, and a new one gives everybody a
whole session to be heard.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ringlog.controller import leaders
from ringlog.controller.commands import Outcome
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Broker, MetadataRecord, Partition
from ringlog.controller.topic_config import settings_of
from ringlog.errors import ClusterMismatch, InvalidRequest, StaleBroker
from ringlog.limits import BROKER_ABSENT_MS, BROKER_LOST_MS, SHARDS_MAX
from ringlog.net.cluster_messages import (
    BrokerHeartbeatReply,
    BrokerHeartbeatRequest,
    RegisterBrokerReply,
    RegisterBrokerRequest,
)


def register(
    image: MetadataImage,
    request: RegisterBrokerRequest,
    lives: Callable[[int], bool] = lambda node_id: True,
) -> Outcome:
    """A node started. A registration that comes a second time is answered as the first one.

    `lives`: whether a node is certain to be there. When all have crashed together, the first ones that are back must
    not leave their partitions to one that may never be."""
    if request.node_id < 1 or not 1 <= request.shards <= SHARDS_MAX or not request.disk_id:
        raise InvalidRequest(f"node {request.node_id} with {request.shards} shards cannot be registered")
    if request.node_id in image.removed:
        raise ClusterMismatch(removed_message(request.node_id))
    known = image.brokers.get(request.node_id)
    if known is not None and known.incarnation == request.incarnation:
        epoch = known.broker_epoch
        return Outcome([], lambda after: RegisterBrokerReply(epoch, after.version))
    epoch = image.next_broker_epoch
    broker = Broker(
        request.node_id,
        epoch,
        request.incarnation,
        request.disk_id,
        tuple(request.endpoints),
        request.peer_endpoint,
        request.rack,
        request.shards,
        host_id=request.host_id,
        draining=known is not None and known.draining,
    )
    replaced = known is not None and known.disk_id != request.disk_id

    def lost(partition: Partition) -> bool:
        """Whether it may lack what it acknowledged: on another disk, or after a crash where acks do not wait for the
        disk. A partition of one replica has promised no more than that."""
        topic = image.topics_by_id[partition.topic_id]
        waits = settings_of(topic.name, topic.config, {"flush": request.flush})["flush"] == "ack"
        return replaced or (not waits and not request.clean_stop and len(partition.replicas) > 1)

    changes = leaders.without(leaders.with_broker(image, broker), request.node_id, lost, lives)
    moved = _onto_shards(image, changes, broker)
    return Outcome([broker, *changes, *moved], lambda after: RegisterBrokerReply(epoch, after.version))


def heartbeat(image: MetadataImage, request: BrokerHeartbeatRequest, *, committed_version: int) -> Outcome:
    """A node lives. It may serve once it knows the metadata that was committed when it was heard."""
    broker = require_broker(image, request.node_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    if request.want_stop:
        if not broker.leaving:
            broker = msgspec.structs.replace(broker, leaving=True)
            records = [broker]
        # Every time: who could not take over when it asked to leave may have come into sync since.
        records += leaders.handed_over(leaders.with_broker(image, broker), broker.node_id)
    elif broker.fenced and request.metadata_version >= committed_version:
        broker = msgspec.structs.replace(broker, fenced=False)
        records = [broker, *leaders.returned(leaders.with_broker(image, broker), broker.node_id)]

    def reply(after: MetadataImage) -> BrokerHeartbeatReply:
        now = after.brokers[request.node_id]
        return BrokerHeartbeatReply(now.fenced, now.leaving and not _could_move(after, request.node_id))

    return Outcome(records, reply)


def fence(image: MetadataImage, node_id: int) -> list[MetadataRecord]:
    """A node fell silent: it leads nothing from now on."""
    broker = image.brokers.get(node_id)
    if broker is None or broker.fenced:
        return []
    fenced = msgspec.structs.replace(broker, fenced=True)
    return [fenced, *leaders.without(leaders.with_broker(image, fenced), node_id)]


def left_behind(image: MetadataImage, lives: Callable[[int], bool]) -> list[MetadataRecord]:
    """One node that is fenced leaves the in-sync replicas of partitions in which another one lives by now."""
    for node_id, broker in image.brokers.items():
        changes = leaders.without(image, node_id, lives=lives) if broker.fenced else []
        if changes:
            return changes
    return []


def require_broker(image: MetadataImage, node_id: int, broker_epoch: int) -> Broker:
    """The broker that speaks, if it is the one that registered last."""
    broker = image.brokers.get(node_id)
    if broker is None or broker.broker_epoch != broker_epoch:
        raise StaleBroker(f"node {node_id} with epoch {broker_epoch} is not registered: register again")
    return broker


def removed_message(node_id: int) -> str:
    """What is said to a node that was taken out for good."""
    return f"node {node_id} was removed from this cluster. Give a new one another --node-id and an empty --data-dir"


def _could_move(image: MetadataImage, node_id: int) -> bool:
    """Whether the node still leads something that another one could."""
    return any(
        partition.leader == node_id
        and any(leaders.may_lead(image, member) for member in partition.isr if member != node_id)
        for partition in image.partitions.values()
    )


def _onto_shards(image: MetadataImage, changes: list[MetadataRecord], broker: Broker) -> list[MetadataRecord]:
    """Changes for partitions on shards that the node no longer has."""
    latest = dict(image.partitions)
    latest |= {change.partition: change for change in changes if isinstance(change, Partition)}
    loads = [0] * broker.shards
    homeless: list[Partition] = []
    for partition in latest.values():
        shard = partition.shard_on(broker.node_id) if partition.replicas else None
        if shard is not None and shard < broker.shards:
            loads[shard] += 1
        elif shard is not None:
            homeless.append(partition)
    moved: list[MetadataRecord] = []
    for partition in homeless:
        shard = loads.index(min(loads))
        loads[shard] += 1
        shards = list(partition.shards)
        shards[partition.replicas.index(broker.node_id)] = shard
        moved.append(msgspec.structs.replace(partition, shards=tuple(shards)))
    return moved


class Liveness:
    """Whom the active controller heard of, and when. Not in the log: another controller begins with a clean slate."""

    def __init__(self, session_ms: float, absent_ms: float = BROKER_ABSENT_MS) -> None:
        self._session_ms = session_ms
        self._absent_ms = absent_ms
        self._heard_ms: dict[int, float] = {}
        self._since_ms: float | None = None

    def take_office(self, now_ms: float) -> None:
        """This controller is the active one from now on: everybody has a session's time to be heard."""
        self._heard_ms.clear()
        self._since_ms = now_ms

    def leave_office(self) -> None:
        """Another one is: nobody is silent here."""
        self._since_ms = None

    def heard(self, node_id: int, now_ms: float) -> None:
        """A sign of life."""
        self._heard_ms[node_id] = now_ms

    def lost(self, node_id: int, now_ms: float) -> None:
        """The connection to a node broke: it is heard of again soon, or not at all. Not at once fenced: it may be its
        controller process alone that died, and is started anew."""
        if self._since_ms is not None:
            heard_ms = self._heard_ms.get(node_id, self._since_ms)
            self._heard_ms[node_id] = min(heard_ms, now_ms - self._session_ms + BROKER_LOST_MS)

    def dead(self, node_id: int) -> None:
        """A node is gone, until it is heard again."""
        self._heard_ms[node_id] = float("-inf")

    def stood_still(self, gap_ms: float, now_ms: float) -> None:
        """Nobody could be heard for a while: it does not count against them."""
        for node_id, heard_ms in self._heard_ms.items():
            self._heard_ms[node_id] = min(heard_ms + gap_ms, now_ms)
        if self._since_ms is not None:
            self._since_ms = min(self._since_ms + gap_ms, now_ms)

    def lives(self, image: MetadataImage, node_id: int) -> bool:
        """Whether a node was heard in this term, and serves."""
        broker = image.brokers.get(node_id)
        heard_ms = self._heard_ms.get(node_id, float("-inf"))
        return broker is not None and not broker.fenced and heard_ms > float("-inf")

    def absent(self, image: MetadataImage, now_ms: float) -> list[int]:
        """Nodes that are fenced, and were not heard of for so long that nobody need wait for them."""
        since_ms = self._since_ms
        if since_ms is None:
            return []
        return [
            node_id
            for node_id, broker in image.brokers.items()
            if broker.fenced and now_ms - self._heard_ms.get(node_id, since_ms) > self._absent_ms
        ]

    def silent(self, image: MetadataImage, now_ms: float) -> list[int]:
        """Nodes that should be fenced."""
        since_ms = self._since_ms
        if since_ms is None:
            return []
        return [
            node_id
            for node_id, broker in image.brokers.items()
            if not broker.fenced and now_ms - self._heard_ms.get(node_id, since_ms) > self._session_ms
        ]
