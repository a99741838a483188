"""A small world around a LogStore: makes batches, remembers what was acknowledged, reads everything back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ringlog.disk.api import Disk
from ringlog.limits import MIB
from ringlog.log.batch import batch_infos
from ringlog.log.events import Appended, Event, Progress
from ringlog.log.settings import LogSettings
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition
from ringlog.records.decode import Record, decode
from ringlog.records.encode import encode
from ringlog.records.scan import check
from tests.support.fake_disk import FakeDisk

PARTITION = TopicPartition("events", 0)
SMALL_SEGMENTS = LogSettings(segment_bytes=1 * MIB)


def aligned_memory(nbytes: int) -> memoryview:
    import mmap

    return memoryview(mmap.mmap(-1, nbytes))


def batch_of(*values: bytes, timestamp: int = 0, producer: tuple[int, int, int] | None = None) -> bytearray:
    """One batch; `producer` is (id, epoch, base sequence)."""
    if producer is None:
        return encode(list(values), timestamps=timestamp)
    producer_id, epoch, sequence = producer
    return encode(
        list(values),
        timestamps=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


class LogWorld:
    """One shard's store over a disk, with a clock that tests move by hand."""

    root = "/data"

    def __init__(
        self,
        disk: Disk | None = None,
        settings: LogSettings = SMALL_SEGMENTS,
        *,
        root: str | None = None,
        memory_bytes: int = 64 * MIB,
        partition: TopicPartition = PARTITION,
        open_now: bool = True,
    ) -> None:
        self.disk = disk if disk is not None else FakeDisk(seed=1)
        self.root = root or self.root
        self.settings = settings
        self.partition = partition
        self.now_ms = 1_000_000
        self.disk.make_dir(self.root)
        self.store = LogStore(self.disk, self.root, memory=aligned_memory(memory_bytes))
        self.events: list[Event] = []
        if open_now:
            self.open()

    @property
    def path(self) -> str:
        return f"{self.root}/{self.partition}"

    @property
    def log(self):
        return self.store.logs[self.partition]

    @property
    def report(self):
        return self.store.reports[self.partition]

    @property
    def fake(self) -> FakeDisk:
        assert isinstance(self.disk, FakeDisk)
        return self.disk

    def open(self) -> None:
        self.store.open(self.partition, self.settings, now_ms=self.now_ms)

    def append(
        self, *values: bytes, timestamp: int | None = None, producer=None, leader_epoch: int = 0
    ) -> Appended:
        stamp = self.now_ms if timestamp is None else timestamp
        return self.append_raw(batch_of(*values, timestamp=stamp, producer=producer), leader_epoch)

    def append_raw(self, data: bytearray, leader_epoch: int = 0) -> Appended:
        infos = batch_infos(check(data))
        return self.store.append(
            self.partition, memoryview(data), infos, now_ms=self.now_ms, leader_epoch=leader_epoch
        )

    def run(self, wait_s: float | None = 0.0) -> list[Event]:
        events = self.store.run(now_ms=self.now_ms, wait_s=wait_s)
        self.events += events
        return events

    def settle(self) -> list[Event]:
        events = self.store.drain(now_ms=self.now_ms)
        self.events += events
        return events

    def acked_offset(self) -> int:
        """The offset below which everything was reported as acknowledged."""
        wanted = self.settings.flush.acks_at
        return max(
            (e.offset for e in self.events if isinstance(e, Progress) and e.durability >= wanted), default=0
        )

    def evict_all(self) -> None:
        """Leave nothing in memory, so that reads come from disk."""
        while self.store._tail.evict_oldest():
            pass

    def close(self) -> None:
        self.events += self.store.close(now_ms=self.now_ms)

    def reopened(self, disk: Disk | None = None) -> LogWorld:
        """A new store over the same (or another) disk, as after a restart."""
        world = LogWorld(
            disk or self.disk, self.settings, root=self.root, partition=self.partition, open_now=False
        )
        world.now_ms = self.now_ms
        world.open()
        return world

    def records(self, offset: int | None = None, bytes_max: int = 64 * 1024) -> Iterator[Record]:
        """Everything from an offset (default: the start of the log) to the end, by reads of some bytes each."""
        at = self.log.log_start_offset if offset is None else offset
        while at < self.log.readable_offset:
            with self.store.read_now(self.partition, at, bytes_max) as slices:
                data = slices.tobytes()
                assert slices.next_offset > at, "a read makes progress"
                start, at = at, slices.next_offset
            yield from (record for record in decode(data) if record.offset >= start)

    def values(self, offset: int | None = None) -> list[bytes | None]:
        return [record.value for record in self.records(offset)]


def filled(count: int = 60, size: int = 50_000, **kwargs: Any) -> LogWorld:
    """A log with so many batches of one producer, each durable."""
    world = LogWorld(**kwargs)
    for number in range(count):
        world.append(b"%04d" % number + bytes(size), producer=(6, 0, number), timestamp=number)
        world.settle()
    return world
