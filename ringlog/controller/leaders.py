"""Who leads a partition, and who is in sync with it: every change of both, as records. Pure.

Every change moves the partition epoch; every change of the leader, also to none, moves the leader epoch. Only an
in-sync replica may lead: what it does not have was never committed. When the last one is gone, nobody leads until it
is back; unless the topic prefers a leader that lacks records to none (`unclean.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ringlog.controller.image import MetadataImage
from ringlog.controller.records import Broker, MetadataRecord, Partition
from ringlog.model import NO_LEADER


def may_lead(image: MetadataImage, node_id: int) -> bool:
    """Whether a node is there, and means to stay."""
    broker = image.brokers.get(node_id)
    return broker is not None and not broker.fenced and not broker.leaving


def choose_leader(image: MetadataImage, partition: Partition, isr: Iterable[int]) -> int:
    """The first replica, in the order of preference, that is in sync and may lead; NO_LEADER if there is none."""
    members = set(isr)
    for node_id in partition.replicas:
        if node_id in members and may_lead(image, node_id):
            return node_id
    return NO_LEADER


def changed(partition: Partition, *, leader: int, isr: tuple[int, ...]) -> Partition:
    """The partition with another leader, or other in-sync replicas."""
    return msgspec.structs.replace(
        partition,
        leader=leader,
        isr=isr,
        leader_epoch=partition.leader_epoch + (leader != partition.leader),
        partition_epoch=partition.partition_epoch + 1,
    )


def renewed(partition: Partition) -> Partition:
    """The partition with the same leader in another epoch: it may have lost what it has sent in this one."""
    return msgspec.structs.replace(
        partition, leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1
    )


def relieved(image: MetadataImage, partition: Partition, node_id: int) -> Partition:
    """The partition without a replica that may lack what it held: another one leads, and it is out of sync until it has
    caught up. Where no other one is in sync, it stays; if it leads, in another epoch.

    A follower's leader leads on in another epoch, too: in the old one it knows what the follower said that it holds,
    and would have it back in sync at once; and a report that is still on its way would say so again."""
    others = tuple(member for member in partition.isr if member != node_id)
    leader = partition.leader
    if leader == node_id:
        leader = choose_leader(image, partition, others)
        if leader == NO_LEADER:  # rather one that is about to leave than one that may lack records
            leader = next((node for node in others if not image.brokers[node].fenced), NO_LEADER)
        if leader == NO_LEADER:
            return renewed(partition)
    if leader == partition.leader != NO_LEADER:
        return renewed(msgspec.structs.replace(partition, isr=others or partition.isr))
    return changed(partition, leader=leader, isr=others or partition.isr)


def without(
    image: MetadataImage,
    node_id: int,
    lost: Callable[[Partition], bool] = lambda partition: False,
    lives: Callable[[int], bool] = lambda node_id: True,
) -> list[MetadataRecord]:
    """Changes of all partitions for a node that is fenced in `image`: it leads none, and is in sync with none that
    another one which `lives` is in sync with. Where there is none, it stays: it has everything, and nobody else is
    certain to come back. Where it has `lost` what it had, it does not stay, and perhaps nobody is in sync: such a
    partition stops, and says so."""
    made: list[MetadataRecord] = []
    for partition in image.partitions.values():
        if node_id not in partition.isr and partition.leader != node_id:
            continue
        isr = tuple(member for member in partition.isr if member != node_id)
        if not any(map(lives, isr)) and not lost(partition):
            isr = partition.isr
        leader = partition.leader
        if leader in (node_id, NO_LEADER):
            leader = choose_leader(image, partition, isr)
        if leader != partition.leader or isr != partition.isr:
            made.append(changed(partition, leader=leader, isr=isr))
    return made


def handed_over(image: MetadataImage, node_id: int) -> list[MetadataRecord]:
    """Changes for a node that is leaving in `image`, and still works: what another one can lead, it does, and it is not
    waited for."""
    made: list[MetadataRecord] = []
    for partition in image.partitions.values():
        if node_id not in partition.isr:
            continue
        others = tuple(member for member in partition.isr if member != node_id)
        leader = choose_leader(image, partition, others)
        if leader == NO_LEADER:
            continue  # nobody could take over: it leads until it is gone
        leader = leader if partition.leader == node_id else partition.leader
        made.append(changed(partition, leader=leader, isr=others))
    return made


def returned(image: MetadataImage, node_id: int) -> list[MetadataRecord]:
    """Changes for a node that is no longer fenced in `image`: it leads what waited for it."""
    made: list[MetadataRecord] = []
    for partition in image.partitions.values():
        if partition.leader == NO_LEADER and node_id in partition.isr:
            leader = choose_leader(image, partition, partition.isr)
            if leader != NO_LEADER:
                made.append(changed(partition, leader=leader, isr=partition.isr))
    return made


def preferred(image: MetadataImage) -> list[MetadataRecord]:
    """Changes that give leadership back to the preferred replicas, where they are in sync."""
    made: list[MetadataRecord] = []
    for partition in image.partitions.values():
        if not partition.replicas or partition.leader in (NO_LEADER, partition.replicas[0]):
            continue
        first = partition.replicas[0]
        if first in partition.isr and may_lead(image, first):
            made.append(changed(partition, leader=first, isr=partition.isr))
    return made


def with_broker(image: MetadataImage, broker: Broker) -> MetadataImage:
    """The image as it will be when this is known of a broker: what the changes above are made by."""
    after = MetadataImage()
    after.__dict__.update(image.__dict__)
    after.brokers = image.brokers | {broker.node_id: broker}
    return after
