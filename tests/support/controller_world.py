"""A cluster as its controller sees it: nodes that register and beat, a topic, requests of leaders."""

from __future__ import annotations

from ringlog.controller import brokers, isr
from ringlog.controller.commands import Outcome, create_topic
from ringlog.controller.image import MetadataImage
from ringlog.controller.records import (
    MetadataRecord,
    Partition,
    decode_record,
    encode_record,
)
from ringlog.net.cluster_messages import (
    AlterIsrReply,
    AlterIsrRequest,
    BrokerHeartbeatReply,
    BrokerHeartbeatRequest,
    IsrChange,
    RegisterBrokerReply,
    RegisterBrokerRequest,
)
from ringlog.net.messages import CreateTopicRequest


def replay(image: MetadataImage, records: list[MetadataRecord]) -> None:
    for record in records:
        image.replay(decode_record(encode_record(record)))


def done(image: MetadataImage, outcome: Outcome):
    replay(image, outcome.records)
    return outcome.reply(image)


def join(
    image: MetadataImage, node_id: int, life: str = "a", *, disk: str = "", rack: str = "", shards: int = 2
) -> int:
    """A node registers and is let in; its broker epoch."""
    request = RegisterBrokerRequest(
        node_id,
        f"{node_id}{life}",
        disk or f"d{node_id}",
        [f"tcp://h{node_id}:1"],
        f"tcp://h{node_id}:2",
        rack,
        shards,
    )
    registered = done(image, brokers.register(image, request))
    assert isinstance(registered, RegisterBrokerReply)
    beat = BrokerHeartbeatRequest(node_id, registered.broker_epoch, metadata_version=9)
    assert done(image, brokers.heartbeat(image, beat, committed_version=9)) == BrokerHeartbeatReply(
        fenced=False
    )
    return registered.broker_epoch


def cluster(nodes: int = 3, partitions: int = 6, factor: int = 3, racks: int = 0) -> MetadataImage:
    image = MetadataImage()
    for node_id in range(1, nodes + 1):
        join(image, node_id, rack=f"r{node_id % racks}" if racks else "")
    request = CreateTopicRequest("t", partitions, factor)
    done(image, create_topic(image, request, shards=1, default_partitions=1, nodes=6))
    return image


def everything(image: MetadataImage) -> list[Partition]:
    return list(image.partitions.values())


def led_by(image: MetadataImage, node_id: int) -> Partition:
    return next(partition for partition in everything(image) if partition.leader == node_id)


def members(image: MetadataImage, *node_ids: int) -> list[tuple[int, int]]:
    """In-sync replicas, each with the epoch of its present life."""
    return [(n, image.brokers[n].broker_epoch if n in image.brokers else 1) for n in node_ids]


def alter(image: MetadataImage, node_id: int, *changes: IsrChange) -> AlterIsrReply:
    request = AlterIsrRequest(node_id, image.brokers[node_id].broker_epoch, list(changes))
    reply = done(image, isr.alter_isr(image, request))
    assert isinstance(reply, AlterIsrReply)
    return reply
