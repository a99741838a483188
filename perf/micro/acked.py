"""Opens and drives a LogStore as its owner does: memory that is mapped, append, run, and count what became durable."""

from __future__ import annotations

import time

from perf.micro.payload import Group
from ringlog.disk.api import Disk
from ringlog.errors import PartitionBusy
from ringlog.limits import TAIL_BYTES_PER_SHARD
from ringlog.log.events import Event, Fenced, Progress, Quarantined
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition
from ringlog.ring.shm import SharedMemory

BUSY_MAX_S = 10.0
"""A log that refuses appends for longer than this does not recover by itself."""


def store_of_a_shard(disk: Disk, root: str) -> LogStore:
    """A store whose memory is mapped before it begins, as a shard's is: on a virtual machine the first touch of a
    page can cost more than the write of its bytes, and it happens once in a shard's life."""
    region = SharedMemory.create("perf", TAIL_BYTES_PER_SHARD, is_for_disk=True)
    region.unlink()
    region.populate()
    return LogStore(disk, root, memory=memoryview(region.memory))


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def append(store: LogStore, name: TopicPartition, group: Group) -> int:
    """Append a group; the offset behind it. When the log is busy, wait for the disk and try again, for a while."""
    deadline = time.monotonic() + BUSY_MAX_S
    while True:
        try:
            return store.append(name, group.data, group.batches, now_ms=wall_ms()).last_offset + 1
        except PartitionBusy:
            if time.monotonic() > deadline:
                raise
            _require_progress(store.run(now_ms=wall_ms(), wait_s=None))


def run_until(store: LogStore, wanted: dict[TopicPartition, int]) -> None:
    """Run cycles until each partition has flushed all below its offset."""
    missing = {name for name, offset in wanted.items() if store.logs[name].flushed_offset < offset}
    while missing:
        for event in _require_progress(store.run(now_ms=wall_ms(), wait_s=None)):
            name = event.log.name
            # It may tell of more than was asked for: groups join while they wait.
            if name in missing and event.offset >= wanted[name]:
                missing.remove(name)


def _require_progress(events: list[Event]) -> list[Progress]:
    """A partition that was fenced would wait for ever."""
    found: list[Progress] = []
    for event in events:
        if isinstance(event, Fenced | Quarantined):
            raise event.error
        if isinstance(event, Progress):
            found.append(event)
    return found
