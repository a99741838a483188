"""Drives a LogStore as its owner does: append, run, and count what became durable."""

from __future__ import annotations

import time

from perf.micro.payload import Group
from ringlog.log.partition import Fenced, Progress, Quarantined
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def append(store: LogStore, name: TopicPartition, group: Group) -> int:
    """Append a group; the offset behind it."""
    return store.append(name, group.data, group.batches, now_ms=wall_ms()).last_offset + 1


def run_until(store: LogStore, wanted: dict[TopicPartition, int]) -> None:
    """Run cycles until each partition has flushed all below its offset. What is reached is taken out of `wanted`."""
    while wanted:
        for event in store.run(now_ms=wall_ms(), wait_s=None):
            if isinstance(event, Progress):
                name = event.log.name
                if event.offset >= wanted.get(name, event.offset + 1):
                    del wanted[name]
            elif isinstance(event, Fenced | Quarantined):
                raise event.error
