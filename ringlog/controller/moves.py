"""Moves of replicas, as somebody asks for them: partitions to certain nodes, or all of a node to others. Pure.

A move only begins here. The new replicas follow, come into sync, and then the old ones go (`isr.finished`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from ringlog.controller import isr
from ringlog.controller.commands import Outcome, find_topic
from ringlog.controller.image import MetadataImage
from ringlog.controller.placement import Placement
from ringlog.controller.records import Broker, BrokerRemoved, MetadataRecord, Partition
from ringlog.controller.topic_config import NOTHING
from ringlog.errors import InvalidRequest, NotEnoughBrokers, PartitionBusy, RinglogError
from ringlog.net.move_messages import (
    DrainNodeRequest,
    MoveResult,
    PartitionMove,
    ReassignReply,
    ReassignRequest,
)


def reassign(
    image: MetadataImage, request: ReassignRequest, topic_defaults: Mapping[str, str] = NOTHING
) -> Outcome:
    """Move partitions to the nodes that are named, or call moves off. Each on its own."""
    records: list[MetadataRecord] = []
    results: list[MoveResult] = []
    seen: set[int] = set()
    for move in request.moves:
        try:
            number = _number_of(image, move)
            if number in seen:
                raise InvalidRequest(
                    f"{move.topic}-{move.partition} is named twice: name each partition once"
                )
            seen.add(number)
            made = _moved(image, number, tuple(move.replicas), topic_defaults)
        except RinglogError as error:
            results.append(
                MoveResult(move.topic, move.partition, list(move.replicas), error.code, str(error))
            )
            continue
        records += made
        results.append(_result(image, number, made))
    return Outcome(records, _reply(results))


def drain(
    image: MetadataImage, request: DrainNodeRequest, topic_defaults: Mapping[str, str] = NOTHING
) -> Outcome:
    """Take all replicas off a node, and give it no new ones; or take that back; or take the node itself out."""
    broker = image.brokers.get(request.node_id)
    if broker is None:
        known = ", ".join(map(str, sorted(image.brokers)))
        raise InvalidRequest(f"node {request.node_id} is not in the cluster. There are: {known}")
    if request.remove:
        return _removed(image, broker)
    records: list[MetadataRecord] = []
    if broker.draining == request.undo:
        records.append(msgspec.structs.replace(broker, draining=not request.undo))
    judge = _stay if request.undo else _away(image, request.node_id, topic_defaults)
    results: list[MoveResult] = []
    for partition in image.partitions.values():
        if request.node_id not in partition.replicas:
            continue
        try:
            made = judge(image, partition, request.node_id)
        except RinglogError as error:
            name = image.name_of(partition.partition)
            replicas = list(partition.replicas)
            results.append(MoveResult(name.topic, name.partition, replicas, error.code, str(error)))
            continue
        if made:
            records += made
            results.append(_result(image, partition.partition, made))
    return Outcome(records, _reply(results))


def _removed(image: MetadataImage, broker: Broker) -> Outcome:
    """The end of a node that is drained and stopped."""
    number = broker.node_id
    if not broker.draining:
        raise InvalidRequest(f"node {number} is not drained: use `ringlog cluster drain {number}` first")
    kept = [image.name_of(one.partition) for one in image.partitions.values() if number in one.replicas]
    if kept:
        raise PartitionBusy(
            f"node {number} still has replicas, of {kept[0]} and {len(kept) - 1} more: wait until they have moved"
        )
    if not broker.fenced:
        raise InvalidRequest(f"node {number} is running: stop it first")
    return Outcome([BrokerRemoved(number)], _reply([]))


def _away(
    image: MetadataImage, node_id: int, topic_defaults: Mapping[str, str]
) -> Callable[[MetadataImage, Partition, int], list[MetadataRecord]]:
    """Judges each partition of a node that is drained: with one count of who has how much."""
    others = [
        broker
        for broker in image.brokers.values()
        if broker.node_id != node_id and not (broker.fenced or broker.leaving or broker.draining)
    ]
    placement = Placement(image, others)

    def judge(image: MetadataImage, partition: Partition, node_id: int) -> list[MetadataRecord]:
        if node_id in partition.removing:
            return []
        stay = [one for one in partition.replicas if one not in partition.removing]
        heir = placement.instead_of(node_id, stay)
        if heir is None:
            raise NotEnoughBrokers(
                f"{image.name_of(partition.partition)} has replicas on {stay}, and no other node that is ready could "
                f"take the place of node {node_id}. Start more nodes"
            )
        target = tuple(heir if one == node_id else one for one in stay)
        return isr.reassign(image, partition.partition, target, topic_defaults)

    return judge


def _stay(image: MetadataImage, partition: Partition, node_id: int) -> list[MetadataRecord]:
    return isr.cancel_reassignment(image, partition.partition) if node_id in partition.removing else []


def _number_of(image: MetadataImage, move: PartitionMove) -> int:
    topic = find_topic(image, move.topic)
    if not 0 <= move.partition < len(topic.partitions):
        raise InvalidRequest(f"topic {topic.name!r} has no partition {move.partition}")
    return topic.partitions[move.partition]


def _moved(
    image: MetadataImage, number: int, target: tuple[int, ...], topic_defaults: Mapping[str, str]
) -> list[MetadataRecord]:
    if target:
        return isr.reassign(image, number, target, topic_defaults)
    made = isr.cancel_reassignment(image, number)
    if not made:
        raise InvalidRequest(f"{image.name_of(number)} is not being moved")
    return made


def _result(image: MetadataImage, number: int, made: Sequence[MetadataRecord]) -> MoveResult:
    name = image.name_of(number)
    after = next(record for record in made if isinstance(record, Partition))
    target = [node_id for node_id in after.replicas if node_id not in after.removing]
    return MoveResult(name.topic, name.partition, target, "", "")


def _reply(results: list[MoveResult]) -> Callable[[MetadataImage], msgspec.Struct]:
    return lambda after: ReassignReply(results, after.version)
