"""A seeded random workload on one partition's log, with a memory of all that was acknowledged."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from ringlog.disk.api import Disk
from ringlog.errors import PartitionBusy, PartitionFenced, RinglogError
from ringlog.limits import KIB, MIB
from ringlog.log.events import Fenced, Progress
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.model import Durability
from tests.support.logs import LogWorld


@dataclass
class History:
    """What a client knows: each value that it sent, at which offset, and how far acks went."""

    sent: dict[int, bytes] = field(default_factory=dict)
    flushed_offset: int = 0
    """Everything below it was acknowledged as flushed."""
    errors: list[RinglogError] = field(default_factory=list)
    sequence: int = 0

    def note(self, events) -> None:
        for event in events:
            if isinstance(event, Progress) and event.durability >= Durability.FLUSHED:
                self.flushed_offset = max(self.flushed_offset, event.offset)
            elif isinstance(event, Fenced):
                self.errors.append(event.error)


def settings_for(rng: random.Random) -> LogSettings:
    """Small segments, so that rolls and seals happen often; every flush policy."""
    flush = rng.choice(["ack", "ack", "interval:20", "os"])
    return LogSettings(
        segment_bytes=1 * MIB, segment_ms=rng.choice([300, 10**9]), flush=FlushPolicy.parse(flush)
    )


def run_workload(world: LogWorld, rng: random.Random, history: History, cycles: int) -> None:
    """Append, run, read, checkpoint, truncate at random. Raises PowerLoss from the disk when that is planned."""
    for _ in range(cycles):
        world.now_ms += rng.randint(0, 60)
        for _ in range(rng.randint(0, 3)):
            _append(world, rng, history)
        events = world.run()
        history.note(events)
        if any(isinstance(event, Fenced) for event in events):
            return
        if rng.random() < 0.05:
            world.store.checkpoint()
        if rng.random() < 0.05 and history.flushed_offset:
            _read_some(world, rng, history)
        if rng.random() < 0.02:
            world.evict_all()


def _append(world: LogWorld, rng: random.Random, history: History) -> None:
    size = rng.choice([5, 100, 5_000, 60_000, 300 * KIB])
    values = [rng.randbytes(8) + bytes(size) for _ in range(rng.randint(1, 4) if size < 60_000 else 1)]
    try:
        appended = world.append(*values, producer=(77, 0, history.sequence))
    except (PartitionBusy, PartitionFenced):
        return
    history.sequence += len(values)
    for number, value in enumerate(values):
        history.sent[appended.base_offset + number] = value


def _read_some(world: LogWorld, rng: random.Random, history: History) -> None:
    start = rng.randrange(world.log.log_start_offset, world.log.readable_offset + 1)
    for record in world.records(start):
        assert record.value == history.sent[record.offset]


def check_recovered(disk: Disk, world: LogWorld, history: History) -> LogWorld:
    """Open what a crash left: all that was acknowledged as flushed is there, nothing else than what was sent, dense."""
    after = world.reopened(disk)
    offset = 0
    for record in after.records(0):
        assert record.offset == offset, "offsets are dense"
        assert record.value == history.sent[offset], f"offset {offset} holds what was sent"
        offset += 1
    assert offset == after.log.next_offset
    assert offset >= history.flushed_offset, (
        f"{history.flushed_offset} records were acknowledged as flushed, {offset} are left: {after.report}"
    )
    return after
