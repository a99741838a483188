"""An imitation of a node and its clients in memory, for tests of what stands on the client library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ringlog.client.admin import PartitionInfo, TopicInfo
from ringlog.client.futures import BatchState, ManyFuture, Part, RecordFuture
from ringlog.client.offsets import OffsetAndTimestamp
from ringlog.client.records import ConsumerRecord
from ringlog.errors import InvalidRequest, RinglogError, TopicExists, UnknownTopic
from ringlog.model import TopicPartition


@dataclass
class FakeTopic:
    """A topic's records, by partition."""

    partitions: list[list[ConsumerRecord]]
    config: dict[str, str] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)
    """Partitions whose leader does not answer."""


@dataclass
class FakeNode:
    """All topics; what clients were opened with; and an error that produce gives up with after some records."""

    topics: dict[str, FakeTopic] = field(default_factory=dict)
    topic_defaults: dict[str, str] = field(default_factory=dict)
    opened: list[dict[str, Any]] = field(default_factory=list)
    fails_after: int | None = None
    failure: RinglogError | None = None
    interrupt_when_empty: bool = False
    create_missing: bool = False
    """Whether a topic that is produced to is made, as a real node does."""
    durability: str = "flushed"

    def create(self, name: str, partitions: int = 1) -> FakeTopic:
        self.topics[name] = FakeTopic([[] for _ in range(partitions)])
        return self.topics[name]

    def topic(self, name: str) -> FakeTopic:
        if name not in self.topics:
            raise UnknownTopic(f"no topic is named '{name}'")
        return self.topics[name]

    def append(self, topic: str, partition: int, value: bytes | None, **fields: Any) -> ConsumerRecord:
        log = self.topic(topic).partitions[partition]
        record = ConsumerRecord.of(
            topic,
            partition,
            len(log),
            fields.get("timestamp", 1_000 + len(log)),
            fields.get("key"),
            value,
            fields.get("headers"),
        )
        log.append(record)
        return record

    def admin(self, bootstrap: str) -> FakeAdmin:
        self.opened.append({"bootstrap": bootstrap})
        return FakeAdmin(self)

    def producer(self, bootstrap: str, **settings: Any) -> FakeProducer:
        self.opened.append({"bootstrap": bootstrap, **settings})
        return FakeProducer(self)

    def consumer(self, bootstrap: str, **settings: Any) -> FakeConsumer:
        self.opened.append({"bootstrap": bootstrap, **settings})
        return FakeConsumer(self)


class _Client:
    def __init__(self, node: FakeNode) -> None:
        self._node = node

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FakeAdmin(_Client):
    """Answers from the topics in memory."""

    def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = 1,
        config: dict[str, str] | None = None,
    ) -> TopicInfo:
        if name in self._node.topics:
            raise TopicExists(f"topic '{name}' is there already")
        self._node.create(name, 4 if num_partitions == -1 else num_partitions).config = dict(config or {})
        return self.describe_topic(name)

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        return sorted(name for name in self._node.topics if include_internal or not name.startswith("__"))

    def describe_topics(self, *, include_internal: bool = False) -> list[TopicInfo]:
        return [self.describe_topic(name) for name in self.list_topics(include_internal=include_internal)]

    def topic_defaults(self) -> dict[str, str]:
        return self._node.topic_defaults

    def describe_topic(self, name: str) -> TopicInfo:
        topic = self._node.topic(name)
        partitions = [
            PartitionInfo(
                index=index,
                leader=0,
                log_start_offset=0,
                readable_offset=len(log),
                next_offset=len(log),
                bytes=sum(len(record.value or b"") for record in log),
                segments=1,
                status="ok",
                partition_id=index + 1,
            )
            for index, log in enumerate(topic.partitions)
        ]
        for index in topic.silent:
            partitions[index] = PartitionInfo(index, 0, -1, -1, -1, 0, 0, "no answer", index + 1)
        return TopicInfo(name, 1, dict(topic.config), partitions)

    def alter_topic(self, name: str, config: dict[str, str | None]) -> TopicInfo:
        now = self._node.topic(name).config
        for key, value in config.items():
            now.pop(key, None)
            if value is not None:
                now[key] = value
        return self.describe_topic(name)

    def delete_records(self, name: str, offsets: dict[int, int]) -> dict[int, int]:
        ends = {index: len(log) for index, log in enumerate(self._node.topic(name).partitions)}
        return {index: ends[index] if offset < 0 else offset for index, offset in offsets.items()}

    def delete_topic(self, name: str) -> None:
        self._node.topic(name)
        del self._node.topics[name]

    def add_partitions(self, name: str, count: int) -> None:
        topic = self._node.topic(name)
        topic.partitions += [[] for _ in range(count - len(topic.partitions))]


class FakeProducer(_Client):
    """Acknowledges at once; unkeyed records go to partition 0, keyed ones by the length of the key."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__(node)
        self._sent = 0

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Any = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> RecordFuture:
        fields = {"key": key, "headers": headers, "timestamp": timestamp}
        given = {name: field for name, field in fields.items() if field is not None}
        return RecordFuture((self._take(topic, [(value, given)], partition), 0))

    def produce_many(
        self,
        topic: str,
        values: list[bytes | None],
        keys: list[bytes | None] | None = None,
        timestamps: Any = None,
        partition: int | None = None,
    ) -> ManyFuture:
        rows = []
        for at, value in enumerate(values):
            fields: dict[str, Any] = {}
            if keys is not None:
                fields["key"] = keys[at]
            if timestamps is not None:
                fields["timestamp"] = timestamps[at]
            rows.append((value if value is None else bytes(value), fields))
        state = self._take(topic, rows, partition)
        return ManyFuture([Part(state, 0, len(values))])

    def _take(
        self, topic: str, rows: list[tuple[bytes | None, dict[str, Any]]], partition: int | None
    ) -> BatchState:
        node = self._node
        if node.create_missing and topic not in node.topics:
            node.create(topic)
        count = len(node.topic(topic).partitions)
        if partition is not None and partition >= count:
            raise InvalidRequest(f"partition {partition}: topic '{topic}' has 0 to {count - 1}; add more")
        state = BatchState(topic, partition or 0)
        self._sent += len(rows)
        if node.fails_after is not None and self._sent > node.fails_after:
            assert node.failure is not None
            state.fail(node.failure)
            return state
        for value, fields in rows:
            place = len(fields.get("key") or b"") % count if partition is None else partition
            node.append(topic, place, value, **fields)
        state.count = len(rows)
        state.resolve(0, node.durability)
        return state

    def flush(self, timeout: float | None = None) -> None:
        """Everything was acknowledged at once."""

    def held_up_by(self) -> RinglogError | None:
        """Nothing is ever sent again."""
        return None


class FakeConsumer(_Client):
    """Reads the topics in memory."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__(node)
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(len(self._node.topic(topic).partitions)))

    def assign(self, partitions: Any) -> None:
        ends = self.end_offsets([item[:2] for item in partitions])
        for item in partitions:
            place = TopicPartition(*item[:2])
            self._positions[place] = item[2] if len(item) == 3 else ends[place]

    def seek_to_beginning(self) -> None:
        self._positions = dict.fromkeys(self._positions, 0)

    def beginning_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        return {TopicPartition(*place): 0 for place in partitions}

    def end_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        return {TopicPartition(*place): len(self._log(TopicPartition(*place))) for place in partitions}

    def offsets_for_times(self, times: Any) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return {
            place: next(
                (OffsetAndTimestamp(r.offset, r.timestamp) for r in self._log(place) if r.timestamp >= ms),
                None,
            )
            for place, ms in times.items()
        }

    def position(self, place: TopicPartition) -> int:
        return self._positions[place]

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused |= set(partitions)

    def poll(self, timeout_ms: float = 0, max_records: int = 500) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        for place, position in self._positions.items():
            if place not in self._paused:
                taken = self._log(place)[position : position + max_records - len(found)]
                self._positions[place] += len(taken)
                found += taken
        if not found and self._node.interrupt_when_empty:
            raise KeyboardInterrupt
        return found

    def _log(self, place: TopicPartition) -> list[ConsumerRecord]:
        return self._node.topic(place.topic).partitions[place.partition]
