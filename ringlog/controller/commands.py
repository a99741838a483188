"""What can be asked of the controller: each command looks at the image and returns records and a reply. Pure.

The records take effect, and the reply goes out, when the metadata log has them flushed: `(image, request) →
(records, reply)`, and nothing is changed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from ringlog.controller.image import MetadataImage, TopicState
from ringlog.controller.placement import Placement
from ringlog.controller.records import (
    MetadataRecord,
    Partition,
    ProducerIds,
    Topic,
    TopicConfig,
    TopicRemoved,
)
from ringlog.controller.topic_config import (
    INTERNAL_PREFIX,
    MESSAGE_BYTES_MAX,
    MIN_INSYNC,
    SETTINGS,
    check_config,
    require_setting,
)
from ringlog.errors import InvalidRequest, LimitExceeded, NotEnoughBrokers, TopicExists, UnknownTopic
from ringlog.limits import (
    MIB,
    OFFSETS_PARTITIONS,
    PARTITIONS_MAX,
    PARTITIONS_PER_TOPIC_MAX,
    REPLICATION_FACTOR_DEFAULT,
    REPLICATION_FACTOR_MAX,
    SHARDS_MAX,
    TOPIC_NAME_CHARS_MAX,
    TOPICS_MAX,
)
from ringlog.net.group_messages import OFFSETS_TOPIC
from ringlog.net.messages import (
    AddPartitionsRequest,
    AlterTopicRequest,
    BrokerMetadata,
    CreateTopicRequest,
    DeleteTopicRequest,
    InitProducerReply,
    PartitionMetadata,
    TopicMetadata,
    TopicReply,
)

METADATA_TOPIC = "__cluster_metadata"
"""The log that the controller writes itself; a shard must never open its directory."""
PRODUCER_ID_BLOCK = 1000
"""Producer ids that one record gives out: the rest of a block is skipped after a crash."""

_TOPIC_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{TOPIC_NAME_CHARS_MAX}}}")


class Outcome(NamedTuple):
    """Records to append, and what to answer, made from the image as it is after them."""

    records: list[MetadataRecord]
    reply: Callable[[MetadataImage], msgspec.Struct]


def topic_metadata(image: MetadataImage, topic: TopicState) -> TopicMetadata:
    """A topic as clients see it."""
    partitions = [
        PartitionMetadata(
            found.index,
            found.partition,
            _lane(found),
            found.leader_on(image.node_id),
            found.leader_epoch,
            list(found.replicas),
            list(found.isr),
            [_lane_on(node, shard) for node, shard in zip(found.replicas, found.shards, strict=True)],
            list(found.adding),
            list(found.removing),
            found.unclean_epoch,
        )
        for found in (image.partitions[partition] for partition in topic.partitions)
    ]
    return TopicMetadata(topic.name, "", topic.topic_id, partitions, topic.config)


def broker_metadata(image: MetadataImage) -> list[BrokerMetadata]:
    """The nodes of a cluster as clients see them; none of a node by itself."""
    return [
        BrokerMetadata(
            broker.node_id,
            list(broker.endpoints),
            broker.host_id,
            broker.rack,
            broker.fenced,
            broker.draining,
        )
        for broker in image.brokers.values()
    ]


def _lane(partition: Partition) -> int:
    """The shard of the leader, as a number of its own in the cluster; of the preferred one while there is none."""
    if not partition.replicas:
        return partition.shard
    shard = partition.shard_on(partition.leader)
    node = partition.leader
    if shard is None:
        node, shard = partition.replicas[0], partition.shards[0]
    return _lane_on(node, shard)


def _lane_on(node: int, shard: int) -> int:
    return node * SHARDS_MAX + shard


def create_topic(
    image: MetadataImage,
    request: CreateTopicRequest,
    *,
    shards: int,
    default_partitions: int,
    internal: bool = False,
    nodes: int | None = None,
    absent: Collection[int] = (),
) -> Outcome:
    """A new topic, its partitions spread over the shards that have the fewest; in a cluster of so many `nodes`, over
    those that are ready, and where these are too few, over those that are `absent` for long. Only the node itself makes
    `internal` ones, when they are first needed."""
    name = request.name
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidRequest(
            f"topic {name[:300]!r}: use 1 to {TOPIC_NAME_CHARS_MAX} of the letters a-z A-Z 0-9 . _ -"
        )
    if name == METADATA_TOPIC:
        raise InvalidRequest(f"topic {name!r} is the node's own: its log has another owner. Use another name")
    if name.startswith(INTERNAL_PREFIX) and not internal:
        raise InvalidRequest(
            f"topic {name!r}: names that begin with {INTERNAL_PREFIX} are the node's own. Use another name"
        )
    if name in image.topics:
        raise TopicExists(f"topic {name!r} is there already")
    check_config(request.config)
    factor = _require_factor(image, request, nodes)
    count = default_partitions if request.partitions == -1 else request.partitions
    _require_count(image, name, count, count)
    if len(image.topics) >= TOPICS_MAX:
        raise LimitExceeded(f"the node has {len(image.topics)} topics, and takes no more than {TOPICS_MAX}")
    topic = Topic(image.next_topic_id, name, dict(request.config))
    made = _new_partitions(image, topic, range(count), shards, factor, absent)
    records: list[MetadataRecord] = [topic, *made]
    if request.validate_only:
        preview = TopicMetadata(name, "", -1, [], dict(request.config))
        return Outcome([], lambda after: TopicReply(preview, after.version))
    return Outcome(records, _reply_topic(name))


def create_offsets_topic(
    image: MetadataImage, *, shards: int, nodes: int | None = None, absent: Collection[int] = ()
) -> Outcome:
    """The topic that groups are kept in, as the node needs it."""
    wanted = {
        "cleanup.policy": "compact",
        "segment.bytes": str(100 * MIB),
        "max.message.bytes": str(MESSAGE_BYTES_MAX),
    }
    config = {name: value for name, value in wanted.items() if name in SETTINGS}
    request = CreateTopicRequest(OFFSETS_TOPIC, OFFSETS_PARTITIONS, replication_factor=-1, config=config)
    return create_topic(
        image, request, shards=shards, default_partitions=1, internal=True, nodes=nodes, absent=absent
    )


def add_partitions(
    image: MetadataImage,
    request: AddPartitionsRequest,
    *,
    shards: int,
    nodes: int | None = None,
    absent: Collection[int] = (),
) -> Outcome:
    """More partitions for a topic; `nodes` and `absent` as of `create_topic`. Keys move: a key's partition depends on
    how many there are."""
    topic = find_topic(image, request.name)
    if topic.name == OFFSETS_TOPIC:
        raise InvalidRequest(f"topic {topic.name!r} is the node's own: groups would not be found again")
    have = len(topic.partitions)
    if request.partitions <= have:
        raise InvalidRequest(
            f"topic {topic.name!r} has {have} partitions: a number can only grow, so use more than {have}"
        )
    _require_count(image, topic.name, request.partitions, request.partitions - have)
    factor = len(image.partitions[topic.partitions[0]].replicas)
    if nodes is not None:
        _require_takers(image, factor, nodes)
    more = range(have, request.partitions)
    added = _new_partitions(
        image, Topic(topic.topic_id, topic.name, topic.config), more, shards, factor, absent
    )
    return Outcome(list(added), _reply_topic(topic.name))


def alter_topic(image: MetadataImage, request: AlterTopicRequest) -> Outcome:
    """Other settings for a topic."""
    topic = find_topic(image, request.name)
    config = dict(topic.config)
    for name, value in request.config.items():
        if value is None:
            config.pop(require_setting(name), None)
        else:
            config[name] = value
    check_config(config)
    factor = len(image.partitions[topic.partitions[0]].replicas)
    if request.config.get(MIN_INSYNC) is not None:
        require_min_insync(config, max(factor, 1))
    return Outcome([TopicConfig(topic.topic_id, config)], _reply_topic(topic.name))


def delete_topic(image: MetadataImage, request: DeleteTopicRequest) -> Outcome:
    """A topic's end."""
    topic = find_topic(image, request.name)
    if topic.name.startswith(INTERNAL_PREFIX):
        raise InvalidRequest(f"topic {topic.name!r} is the node's own, and cannot be deleted")
    gone = TopicMetadata(topic.name, "", topic.topic_id, [], {})
    return Outcome([TopicRemoved(topic.topic_id)], lambda after: TopicReply(gone, after.version))


class ProducerIdSource:
    """Gives out producer ids from a block that the log has already given away as a whole."""

    def __init__(self) -> None:
        self._next = 0
        self._end = 0

    def init_producer(self, image: MetadataImage) -> Outcome:
        """An id that no producer has, or had."""
        records: list[MetadataRecord] = []
        if self._next >= self._end or image.next_producer_id < self._end:
            # None is left, or the record of the block was never appended: then it gave nothing away.
            self._next = image.next_producer_id
            self._end = self._next + PRODUCER_ID_BLOCK
            records.append(ProducerIds(self._end))
        given, self._next = self._next, self._next + 1
        return Outcome(records, lambda after: InitProducerReply(given, 0))


def rebalance(image: MetadataImage, shards: int) -> list[MetadataRecord]:
    """Records that move partitions off shards that there are no more, and onto new ones, as few as possible."""
    loads = image.shard_loads(shards)
    share, over = divmod(len(image.partitions), shards)
    quotas = [share] * shards
    for shard in sorted(range(shards), key=lambda shard: -loads[shard])[:over]:
        quotas[shard] += 1  # those that have the most may keep the most
    room = list(quotas)
    homeless: list[Partition] = []
    for partition in image.partitions.values():
        if partition.shard < shards and room[partition.shard]:
            room[partition.shard] -= 1
        else:
            homeless.append(partition)
    moved: list[MetadataRecord] = []
    for partition in homeless:
        to = room.index(max(room))
        room[to] -= 1
        moved.append(msgspec.structs.replace(partition, shard=to))
    return moved


def find_topic(image: MetadataImage, name: str) -> TopicState:
    """A topic that must be there."""
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopic(f"there is no topic {name[:300]!r}")
    return topic


def _require_count(image: MetadataImage, name: str, count: int, added: int) -> None:
    if not 1 <= count <= PARTITIONS_PER_TOPIC_MAX:
        raise InvalidRequest(f"topic {name!r}: {count} partitions; use 1 to {PARTITIONS_PER_TOPIC_MAX}")
    if len(image.partitions) + added > PARTITIONS_MAX:
        raise LimitExceeded(
            f"the node has {len(image.partitions)} partitions, and takes no more than {PARTITIONS_MAX}"
        )


def _require_factor(image: MetadataImage, request: CreateTopicRequest, nodes: int | None) -> int:
    """How many replicas the partitions get; 0: none but the only node's."""
    factor = request.replication_factor
    if nodes is None:
        if factor not in (1, -1):
            raise InvalidRequest(f"replication_factor={factor}: this cluster has 1 node, so use 1")
        require_min_insync(request.config, 1)
        return 0
    if factor == -1:
        factor = max(1, min(REPLICATION_FACTOR_DEFAULT, nodes - len(_drained(image))))
    elif not 1 <= factor <= REPLICATION_FACTOR_MAX:
        raise InvalidRequest(f"replication_factor={factor}: use 1 to {REPLICATION_FACTOR_MAX}")
    if factor > max(nodes, 1):
        raise InvalidRequest(f"replication_factor={factor}: this cluster has {nodes} nodes, so use no more")
    _require_takers(image, factor, nodes)
    require_min_insync(request.config, factor)
    return factor


def _require_takers(image: MetadataImage, factor: int, nodes: int) -> None:
    """InvalidRequest when so many replicas find no nodes, though all of the cluster be there, since some are drained:
    nobody need wait for it."""
    drained = _drained(image)
    takers = nodes - len(drained)
    if drained and factor > takers:
        raise InvalidRequest(
            f"replication factor {factor}, and {takers} nodes take replicas: node {drained[0]} is drained. "
            f"Use a smaller factor, add a node, or `ringlog cluster drain {drained[0]} --undo`"
        )


def _drained(image: MetadataImage) -> list[int]:
    return [broker.node_id for broker in image.brokers.values() if broker.draining]


def require_min_insync(config: Mapping[str, str], factor: int) -> None:
    """InvalidRequest when so many replicas can never be as many in sync as a topic asks for. A node by itself has one:
    an acknowledgement of it would promise what nobody keeps."""
    if int(config.get(MIN_INSYNC, "1")) > factor:
        replicas = "1 replica" if factor == 1 else f"{factor} replicas"
        raise InvalidRequest(
            f"{MIN_INSYNC}={config[MIN_INSYNC]} with {replicas}: nothing could ever be written. Use a smaller "
            "number, or more replicas"
        )


def _new_partitions(
    image: MetadataImage,
    topic: Topic,
    indexes: Iterable[int],
    shards: int,
    factor: int,
    absent: Collection[int],
) -> list[Partition]:
    """Partitions with so many replicas; 0: of a node on its own."""
    if factor:
        return _new_replicated(image, topic, indexes, factor, absent)
    loads = image.shard_loads(shards)
    made: list[Partition] = []
    for at, index in enumerate(indexes):
        shard = loads.index(min(loads))
        loads[shard] += 1
        made.append(Partition(image.next_partition + at, topic.topic_id, index, shard))
    return made


def _new_replicated(
    image: MetadataImage, topic: Topic, indexes: Iterable[int], factor: int, absent: Collection[int]
) -> list[Partition]:
    """Partitions on nodes that are ready: all in sync, the first one leading. A replica on an absent node is not
    in sync: it is made when the node is back."""
    brokers = [broker for broker in image.brokers.values() if not broker.draining]
    ready = [broker for broker in brokers if not broker.fenced and not broker.leaving]
    placement = Placement(image, ready, [broker for broker in brokers if broker.node_id in absent])
    needed = max(1, min(factor, int(topic.config.get(MIN_INSYNC, "1"))))
    if len(ready) < needed:
        raise NotEnoughBrokers(
            f"topic {topic.name!r} needs {needed} nodes that are ready, and {len(ready)} are. Start more"
        )
    made: list[Partition] = []
    for at, index in enumerate(indexes):
        replicas = placement.choose(factor)
        on_shards = tuple(
            placement.shard_on(node_id, leads=not place) for place, node_id in enumerate(replicas)
        )
        made.append(
            Partition(
                image.next_partition + at,
                topic.topic_id,
                index,
                on_shards[0],
                replicas=replicas,
                shards=on_shards,
                leader=replicas[0],
                isr=tuple(node_id for node_id in replicas if node_id not in absent),
            )
        )
    return made


def _reply_topic(name: str) -> Callable[[MetadataImage], msgspec.Struct]:
    return lambda after: TopicReply(topic_metadata(after, after.topics[name]), after.version)
