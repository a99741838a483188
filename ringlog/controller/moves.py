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

NAMED_MAX = 5
"""Partitions that a message names."""


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
    judge = (_stay if request.undo else _away)(image, request.node_id, topic_defaults)
    results: list[MoveResult] = []
    for partition in image.partitions.values():
        if request.node_id not in partition.replicas:
            continue
        try:
            made = judge(partition)
        except RinglogError as error:
            name = image.name_of(partition.partition)
            replicas = list(partition.replicas)
            results.append(MoveResult(name.topic, name.partition, replicas, error.code, str(error)))
            continue
        records += made
        if made:
            results.append(_result(image, partition.partition, made))
        elif not request.undo:
            results.append(_result(image, partition.partition, [partition]))  # it is on its way already
    return Outcome(records, _reply(results))


def _removed(image: MetadataImage, broker: Broker) -> Outcome:
    """The end of a node that is drained and stopped."""
    number = broker.node_id
    if not broker.draining:
        raise InvalidRequest(f"node {number} is not drained: use `ringlog cluster drain {number}` first")
    kept = [one for one in image.partitions.values() if number in one.replicas]
    stuck = [one for one in kept if number not in one.removing]
    if stuck:
        raise InvalidRequest(
            f"node {number} still has replicas of {_names(image, stuck)}, and nothing moves them. "
            + (_want_of_nodes(image, stuck, number) or f"Use `ringlog cluster drain {number}` again")
        )
    if kept:
        raise PartitionBusy(
            f"node {number} still has replicas of {_names(image, kept)}, which are being moved: "
            "wait until `ringlog cluster moves` shows nothing"
        )
    if not broker.fenced:
        raise InvalidRequest(f"node {number} is running: stop it first")
    return Outcome([BrokerRemoved(number)], _reply([]))


def _away(
    image: MetadataImage, node_id: int, topic_defaults: Mapping[str, str]
) -> Callable[[Partition], list[MetadataRecord]]:
    """Judges each partition of a node that is drained: with one count of who has how much."""
    placement = Placement(image, _takers(image, node_id))

    def judge(partition: Partition) -> list[MetadataRecord]:
        if node_id in partition.removing:
            return []
        stay = [one for one in partition.replicas if one not in partition.removing]
        heir = placement.instead_of(node_id, stay)
        if heir is None:
            raise NotEnoughBrokers(_want_of_nodes(image, [partition], node_id))
        target = tuple(heir if one == node_id else one for one in stay)
        return isr.reassign(image, partition.partition, target, topic_defaults)

    return judge


def _takers(image: MetadataImage, node_id: int) -> list[Broker]:
    """Nodes that replicas of a node could go to."""
    return [
        broker
        for broker in image.brokers.values()
        if broker.node_id != node_id and not (broker.fenced or broker.leaving or broker.draining)
    ]


def _want_of_nodes(image: MetadataImage, kept: Sequence[Partition], node_id: int) -> str:
    """Why the first of these partitions that cannot leave a node has nowhere to go, and what to do; "" if all could."""
    ready = {broker.node_id for broker in _takers(image, node_id)}
    for partition in kept:
        stay = [one for one in partition.replicas if one not in partition.removing]
        if ready - set(stay):
            continue
        others = [broker for broker in image.brokers.values() if broker.node_id not in stay]
        drained = [broker.node_id for broker in others if broker.draining]
        away = [broker.node_id for broker in others if not broker.draining]
        why = [f"node {one} is drained" for one in drained] + [f"node {one} is away" for one in away]
        ways = [f"start node {one}" for one in away[:1]]
        ways += [f"`ringlog cluster drain {one} --undo`" for one in drained[:1]]
        left = ",".join(str(one) for one in stay if one != node_id)
        name = image.name_of(partition.partition)
        if left:
            fewer = f"ringlog cluster reassign {name.topic} --partition {name.partition} --replicas {left}"
            ways.append(f"keep fewer replicas: `{fewer}`")
        return (
            f"{name} has replicas on {', '.join(map(str, stay))}, and no other node could take that of node "
            f"{node_id}: {', '.join(why) or 'there is none'}. {', or '.join(['Add a node', *ways])}"
        )
    return ""


def _names(image: MetadataImage, partitions: Sequence[Partition]) -> str:
    named = ", ".join(str(image.name_of(one.partition)) for one in partitions[:NAMED_MAX])
    more = len(partitions) - NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named


def _stay(
    image: MetadataImage, node_id: int, topic_defaults: Mapping[str, str]
) -> Callable[[Partition], list[MetadataRecord]]:
    """Judges each partition of a node whose drain is taken back."""

    def judge(partition: Partition) -> list[MetadataRecord]:
        if node_id not in partition.removing:
            return []
        return isr.cancel_reassignment(image, partition.partition, topic_defaults)

    return judge


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
    made = isr.cancel_reassignment(image, number, topic_defaults)
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
