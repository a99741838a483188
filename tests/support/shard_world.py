"""One shard without its processes: a ShardCore over a fake disk, fed through a real ring, with replies in a list."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from ringlog.controller.records import Delta, MetadataRecord, Partition, Topic, TopicConfig, encode_delta
from ringlog.controller.topic_config import NOTHING
from ringlog.limits import MIB, REPLICA_LAG_MS_DEFAULT
from ringlog.log.events import Event
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition
from ringlog.net.framing import Acks, Api, Flag
from ringlog.net.messages import (
    ErrorReply,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    ProduceReply,
    decode_body,
    encode_body,
    unpack_fetch_reply,
)
from ringlog.ring.frame import FRAME_HEADER_BYTES, frame_header
from ringlog.ring.ring import Ring, ring_bytes
from ringlog.ring.stats import Stats, StatsPage
from ringlog.shard.commands import LENT, NodeApi, pack_u64, unpack_lent
from ringlog.shard.core import ShardCore
from ringlog.shard.near_batches import NearBatches
from tests.support.fake_disk import FakeDisk
from tests.support.logs import aligned_memory, batch_of

_RING_BYTES = 16 * MIB


class Reply(NamedTuple):
    """A frame that the shard sent, taken apart."""

    api_key: int
    flags: int
    partition: int
    correlation: int
    session: int
    body: bytes

    @property
    def error(self) -> ErrorReply | None:
        return decode_body(self.body, ErrorReply) if self.flags & Flag.ERROR else None

    @property
    def produced(self) -> ProduceReply:
        assert self.error is None, self.error
        return ProduceReply.unpack(self.body)


class FakeOutlet:
    """A network process, as a shard sees it."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def send(self, frame: bytes) -> None:
        _, api_key, flags, partition, correlation, session, _, body_bytes = struct.unpack_from(
            "<BBHIQQII", frame
        )
        assert body_bytes == len(frame) - FRAME_HEADER_BYTES
        self.replies.append(
            Reply(api_key, flags, partition, correlation, session, frame[FRAME_HEADER_BYTES:])
        )

    def take(self) -> list[Reply]:
        replies, self.replies = self.replies, []
        return replies


class ShardWorld:
    """A shard, its disk, its clock, and two network processes."""

    def __init__(
        self,
        *,
        disk: FakeDisk | None = None,
        memory_bytes: int = 64 * MIB,
        topic_defaults: Mapping[str, str] = NOTHING,
        lag_ms_max: int = REPLICA_LAG_MS_DEFAULT,
        incarnation: int = 1,
    ) -> None:
        self.disk = disk or FakeDisk(seed=1)
        self.disk.make_dir("/data")
        self.region = aligned_memory(memory_bytes)
        self.store = LogStore(self.disk, "/data", memory=self.region)
        self.stats = Stats(StatsPage(memoryview(bytearray(StatsPage.bytes_needed(1))), 1), 0)
        self.near: dict[tuple[int, int], memoryview] = {}
        """Memory of clients, by their process and its descriptor."""
        self.room = memoryview(bytearray(1 * MIB))
        self.core = ShardCore(
            0,
            self.store,
            self.stats,
            self.region,
            NearBatches(
                lambda process, descriptor, nbytes: self.near[process, descriptor][:nbytes], self.room
            ),
            incarnation=incarnation,
            topic_defaults=topic_defaults,
            lag_ms_max=lag_ms_max,
        )
        self.net = FakeOutlet()
        self.other_net = FakeOutlet()
        ring = Ring.create(bytearray(ring_bytes(_RING_BYTES)), capacity_bytes=_RING_BYTES)
        self._writer, self._reader = ring.writer(), ring.reader()
        self.now_ms = 1_000_000
        self.version = 0
        self._correlation = 0
        self.at(0)

    def at(self, after_ms: int) -> None:
        """Let time pass."""
        self.now_ms += after_ms
        self.core.at(now_ms=self.now_ms, now_us=self.now_ms * 1000)

    # -- metadata ----------------------------------------------------------------------------------------------

    def delta(self, *records: MetadataRecord, full: bool = False) -> None:
        self.version += 1
        self.core.take_delta(memoryview(encode_delta(Delta(self.version, full, False, list(records)))))

    def create(self, *partitions: int, topic_id: int = 1, name: str = "events", **config: str) -> None:
        """A topic with partitions of these ids, opened."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        made = [Partition(partition, topic_id, index, 0) for index, partition in enumerate(partitions)]
        self.delta(Topic(topic_id, name, settings), *made)
        self.work()

    def work(self) -> None:
        """Open and reconfigure what is to be: a slow machine does fewer at a time."""
        while self.core.hosting.has_work:
            self.core.hosting.work(self.now_ms)

    def configure(self, topic_id: int = 1, **config: str) -> None:
        self.delta(TopicConfig(topic_id, {key.replace("_", "."): value for key, value in config.items()}))
        self.work()

    def name(self, index: int = 0, topic: str = "events") -> TopicPartition:
        return TopicPartition(topic, index)

    def log(self, partition: int = 1):
        return self.core.hosting.hosted[partition].log

    # -- requests ----------------------------------------------------------------------------------------------

    def send(
        self,
        api: int,
        body: bytes | msgspec.Struct,
        *,
        partition: int = 1,
        session: int = 7,
        flags: int = 0,
        due_ms: int = 0,
        outlet: FakeOutlet | None = None,
    ) -> int:
        """Give the shard one frame; its correlation."""
        data = encode_body(body) if isinstance(body, msgspec.Struct) else bytes(body)
        self._correlation += 1
        header = frame_header(
            api_key=api,
            partition=partition,
            correlation=self._correlation,
            session=session,
            flags=flags,
            deadline_ms=due_ms,
            body_bytes=len(data),
        )
        self.send_together(header + data, outlet=outlet)
        return self._correlation

    def send_together(self, *frames: bytes, outlet: FakeOutlet | None = None) -> None:
        """Give the shard frames of one drain."""
        for frame in frames:
            assert self._writer.write(frame)
        rows = self._reader.drain_rows()
        self.core.take(outlet or self.net, rows, self._reader.memory)
        self._reader.release()

    def produce(
        self, *values: bytes, partition: int = 1, acks: Acks = Acks.ALL, producer=None, outlet=None
    ) -> int:
        batch = batch_of(*values, timestamp=self.now_ms, producer=producer)
        return self.send(Api.PRODUCE, bytes(batch), partition=partition, flags=acks, outlet=outlet)

    def fetch(
        self,
        *wants: tuple[int, int] | tuple[int, int, int],
        session: int = 0,
        wait_ms: int = 0,
        bytes_min: int = 1,
        bytes_max: int = 8 * MIB,
        forget: tuple[int, ...] = (),
        follower: bool = False,
        client: int = 7,
        outlet: FakeOutlet | None = None,
    ) -> int:
        partitions = [FetchPartition(want[0], want[1], want[2] if len(want) > 2 else MIB) for want in wants]
        request = FetchRequest(session, wait_ms, bytes_min, bytes_max, partitions, list(forget), follower)
        return self.send(Api.FETCH, request, session=client, outlet=outlet)

    # -- what happens ------------------------------------------------------------------------------------------

    def run(self) -> list[Event]:
        """One pass over the disk."""
        events = self.store.run(now_ms=self.now_ms, wait_s=0.0)
        self.core.progress(events)
        return events

    def settle(self, passes: int = 20) -> None:
        """Let the disk do all that it is asked for."""
        for _ in range(passes):
            self.run()

    def fill(self, *values: bytes, partition: int = 1) -> None:
        """Append, one batch for each value, and have it acknowledged."""
        for value in values:
            self.produce(value, partition=partition)
        self.settle()
        for reply in self.net.take():
            assert reply.error is None, reply.error

    def fetched(self, reply: Reply) -> tuple[int, dict[int, FetchedPartition]]:
        """The session and the rows of a fetch reply, inline or lent; what was lent is given back."""
        assert reply.error is None, reply.error
        body = reply.body
        if reply.flags & LENT:
            lent = unpack_lent(memoryview(body))
            body = lent.head + b"".join(bytes(self.region[at : at + n]) for at, n in lent.ranges)
            self.send(NodeApi.RELEASE, pack_u64(lent.token))
        session, rows = unpack_fetch_reply(memoryview(body))
        return session, {row.partition: row for row in rows}

    def only_fetched(self) -> tuple[int, dict[int, FetchedPartition]]:
        """The only reply that there is, a fetch's."""
        (reply,) = self.net.take()
        return self.fetched(reply)

    def evict_all(self) -> None:
        while self.store._tail.evict_oldest():
            continue

    def free_bytes(self) -> int:
        """Memory that is free when nothing of the tail is kept."""
        self.settle()
        self.evict_all()
        return self.store.memory_free_bytes
