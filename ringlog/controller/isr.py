"""Changes of in-sync replicas, and moves of replicas: compared with the partition epoch, then made.

Of two changes that were judged by the same state, only one is made: the other one's partition epoch is over. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ringlog.controller import leaders
from ringlog.controller.brokers import require_broker
from ringlog.controller.commands import Outcome, require_min_insync
from ringlog.controller.image import MetadataImage
from ringlog.controller.placement import Placement
from ringlog.controller.records import MetadataRecord, Partition
from ringlog.controller.topic_config import MIN_INSYNC, NOTHING, settings_in
from ringlog.errors import InvalidRequest, PartitionBusy, RinglogError, StaleMetadata
from ringlog.model import NO_LEADER
from ringlog.net.cluster_messages import AlterIsrReply, AlterIsrRequest, IsrChange, IsrState
from ringlog.net.wire_errors import number_of


def alter_isr(
    image: MetadataImage, request: AlterIsrRequest, topic_defaults: Mapping[str, str] = NOTHING
) -> Outcome:
    """Each change on its own: one that is refused does not stop the others."""
    require_broker(image, request.node_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    errors: dict[int, int] = {}
    for change in request.changes:
        try:
            partition = _judge(image, request.node_id, change, topic_defaults)
        except RinglogError as error:
            errors[change.partition] = number_of(error)
        else:
            records.append(partition)

    def reply(after: MetadataImage) -> AlterIsrReply:
        return AlterIsrReply([_state(after, change.partition, errors) for change in request.changes])

    return Outcome(records, reply)


def _judge(
    image: MetadataImage, node_id: int, change: IsrChange, topic_defaults: Mapping[str, str]
) -> Partition:
    """The partition as it is from now on. What is raised is true for ever: no copy of the change is ever taken."""
    partition = image.partitions.get(change.partition)
    if partition is None:
        raise StaleMetadata(f"there is no partition {change.partition}")
    speaks = node_id in partition.replicas if change.renews else node_id == partition.leader
    if not speaks or change.leader_epoch != partition.leader_epoch:
        raise StaleMetadata(
            f"partition {change.partition} is led by node {partition.leader} in epoch {partition.leader_epoch}"
        )
    if change.partition_epoch != partition.partition_epoch:
        raise StaleMetadata(
            f"partition {change.partition} is at partition epoch {partition.partition_epoch}, "
            f"not {change.partition_epoch}"
        )
    if change.renews:
        return leaders.relieved(image, partition, node_id)
    members = {member for member, _ in change.isr}
    if node_id not in members or len(members) != len(change.isr) or not members <= set(partition.replicas):
        raise InvalidRequest(
            f"in-sync replicas {change.isr}: use replicas, each once, and the leader with them"
        )
    for member, broker_epoch in change.isr:
        require_broker(image, member, broker_epoch)
    # Who is fenced, or leaving, does not come into sync now, and the partition epoch moves all the same: a refusal that
    # ends with the fence would let a late copy of the proposal in, when its leader no longer counts on that node.
    isr = tuple(
        member
        for member in partition.replicas
        if member in members and (member in partition.isr or leaders.may_lead(image, member))
    )
    return finished(image, leaders.changed(partition, leader=node_id, isr=isr), topic_defaults)


def _state(image: MetadataImage, number: int, errors: dict[int, int]) -> IsrState:
    error = errors.get(number, 0)
    partition = image.partitions.get(number)
    if partition is None:
        return IsrState(number, error or number_of(StaleMetadata("")), -1, -1, -1, [])
    return IsrState(
        number,
        error,
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        list(partition.isr),
    )


# -- reassignment -------------------------------------------------------------------------------------------


def reassign(
    image: MetadataImage,
    number: int,
    target: tuple[int, ...],
    topic_defaults: Mapping[str, str] = NOTHING,
) -> list[MetadataRecord]:
    """Begin to move a partition: the new replicas are added, and the old ones go when the new ones are in sync, and as
    many as acknowledgements need."""
    partition = image.partitions.get(number)
    if partition is None:
        raise StaleMetadata(f"there is no partition {number}")
    missing = [node_id for node_id in target if node_id not in image.brokers]
    if not target or len(set(target)) != len(target) or missing:
        raise InvalidRequest(
            f"replicas {list(target)}: use nodes of the cluster, each once; unknown: {missing}"
        )
    before = tuple(node_id for node_id in partition.replicas if node_id not in partition.adding)
    if len(target) < len(before):
        require_min_insync(settings_in(image, partition, topic_defaults), len(target))
    adding = tuple(node_id for node_id in target if node_id not in before)
    removing = tuple(node_id for node_id in before if node_id not in target)
    placement = Placement(image, image.brokers.values())
    replicas = (*target, *removing)
    # A replica that an earlier move was making, and this one does not want, goes at once.
    isr = tuple(member for member in partition.isr if member in replicas)
    if partition.isr and not isr:
        raise PartitionBusy(f"of partition {number} only replicas that would go are in sync: wait for others")
    _require_enough(image, partition, isr, len(replicas), topic_defaults)
    shards = []
    for node_id in replicas:
        shard = partition.shard_on(node_id)
        shards.append(placement.shard_on(node_id) if shard is None else shard)
    moves_on = partition.adding or partition.removing
    former = (partition.former if moves_on else partition.replicas) if adding or removing else ()
    moved = msgspec.structs.replace(
        partition,
        replicas=replicas,
        shards=tuple(shards),
        adding=adding,
        removing=removing,
        former=former,
    )
    leader = partition.leader
    if leader != NO_LEADER and leader not in isr:
        leader = leaders.choose_leader(image, moved, isr)
    return [finished(image, leaders.changed(moved, leader=leader, isr=isr), topic_defaults)]


def cancel_reassignment(
    image: MetadataImage, number: int, topic_defaults: Mapping[str, str] = NOTHING
) -> list[MetadataRecord]:
    """Let the replicas be as they were before, in the order that they had. PartitionBusy while new ones are in sync
    that acknowledgements need: they would go at once."""
    partition = image.partitions.get(number)
    if partition is None or not (partition.adding or partition.removing):
        return []
    isr = tuple(member for member in partition.isr if member not in partition.adding)
    if not isr:
        raise PartitionBusy(f"of partition {number} only new replicas are in sync: it cannot go back")
    before = len(partition.replicas) - len(partition.adding)
    _require_enough(image, partition, isr, before, topic_defaults)
    back = msgspec.structs.replace(partition, adding=(), removing=partition.adding)
    leader = partition.leader if partition.leader in isr else leaders.choose_leader(image, back, isr)
    return [_in_order(_drop_removed(leaders.changed(back, leader=leader, isr=isr)), partition.former)]


def _require_enough(
    image: MetadataImage,
    partition: Partition,
    isr: tuple[int, ...],
    replicas: int,
    topic_defaults: Mapping[str, str],
) -> None:
    """PartitionBusy when replicas that are in sync would go at once, and those that are left are fewer than
    acknowledgements need: what is committed would be on fewer disks than was promised, and nothing could be written."""
    if len(isr) == len(partition.isr):
        return
    needed = min(int(settings_in(image, partition, topic_defaults)[MIN_INSYNC]), replicas)
    if len(isr) < needed:
        name = image.name_of(partition.partition)
        raise PartitionBusy(
            f"of {name} only {len(isr)} in sync would be left, and {MIN_INSYNC} asks for {needed}: wait until more of "
            "those that stay are in sync, or let the move that is under way end"
        )


def _in_order(partition: Partition, order: tuple[int, ...]) -> Partition:
    """The partition with its replicas in an order that names them; those that it does not name stand behind."""
    replicas = tuple(
        sorted(partition.replicas, key=lambda one: order.index(one) if one in order else len(order))
    )
    places = dict(zip(partition.replicas, partition.shards, strict=True))
    return msgspec.structs.replace(
        partition, replicas=replicas, shards=tuple(places[node_id] for node_id in replicas)
    )


def finished(
    image: MetadataImage, partition: Partition, topic_defaults: Mapping[str, str] = NOTHING
) -> Partition:
    """The partition without the replicas that were to go, if all that were to come are in sync, and those that are left
    are enough for acknowledgements."""
    target = tuple(node_id for node_id in partition.replicas if node_id not in partition.removing)
    if not (partition.adding or partition.removing) or not set(partition.adding) <= set(partition.isr):
        return partition
    isr = tuple(member for member in partition.isr if member in target)
    needed = int(settings_in(image, partition, topic_defaults)[MIN_INSYNC])
    if not isr or len(isr) < min(needed, len(target)):
        return partition
    leader = partition.leader
    if leader not in isr:
        leader = leaders.choose_leader(image, partition, isr)
    moved = msgspec.structs.replace(
        partition, leader=leader, isr=isr, leader_epoch=partition.leader_epoch + (leader != partition.leader)
    )
    return _drop_removed(msgspec.structs.replace(moved, adding=()))


def ended_moves(image: MetadataImage, topic_defaults: Mapping[str, str] = NOTHING) -> list[MetadataRecord]:
    """Moves that waited for more in sync than are needed by now: the setting was lowered meanwhile."""
    made: list[MetadataRecord] = []
    for partition in image.partitions.values():
        moved = finished(image, partition, topic_defaults)
        if moved is not partition:
            made.append(msgspec.structs.replace(moved, partition_epoch=partition.partition_epoch + 1))
    return made


def _drop_removed(partition: Partition) -> Partition:
    kept = [at for at, node_id in enumerate(partition.replicas) if node_id not in partition.removing]
    return msgspec.structs.replace(
        partition,
        replicas=tuple(partition.replicas[at] for at in kept),
        shards=tuple(partition.shards[at] for at in kept),
        adding=(),
        removing=(),
        former=(),
    )
