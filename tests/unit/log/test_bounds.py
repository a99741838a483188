"""What may be chosen for all logs of a shard: how much is in flight, in one write, and reserved ahead."""

from __future__ import annotations

import pytest

from ringlog.limits import KIB, MIB
from ringlog.log.bounds import ShardBounds
from ringlog.log.settings import LogSettings
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition
from tests.support.fake_disk import FakeDisk
from tests.support.logs import LogWorld, aligned_memory

PARTITIONS = [TopicPartition("events", number) for number in range(6)]


def world_with(bounds: ShardBounds, settings: LogSettings | None = None) -> LogWorld:
    world = LogWorld(FakeDisk(seed=1), settings or LogSettings(), open_now=False)
    world.store = LogStore(world.disk, world.root, memory=aligned_memory(64 * MIB), bounds=bounds)
    return world


def open_all(world: LogWorld) -> None:
    """Partitions whose files are there, and have room for a few appends."""
    for world.partition in PARTITIONS:
        world.open()
        world.append(b"first")
    world.settle()


def writes_in_flight(world: LogWorld) -> int:
    return sum(call.kind == "write" for call in world.fake.in_flight_calls)


@pytest.mark.parametrize(("depth", "at_once"), [(0, 6), (1, 1), (2, 2), (5, 5), (100, 6)])
def test_no_more_writes_are_under_way_than_the_depth_allows_and_none_waits_for_ever(depth, at_once):
    world = world_with(ShardBounds(disk_depth=depth))
    open_all(world)
    world.fake.hold_all("write")
    for world.partition in PARTITIONS:
        world.append(b"second")
    world.run()
    assert writes_in_flight(world) == at_once
    world.run()
    assert writes_in_flight(world) == at_once, "another cycle begins no more"
    world.fake.release_all()
    world.settle()
    assert all(log.flushed_offset == 2 for log in world.store.logs.values())


def test_who_waited_goes_first_and_what_it_received_meanwhile_is_in_the_same_write():
    world = world_with(ShardBounds(disk_depth=1))
    open_all(world)
    world.fake.hold_all("write")
    for world.partition in PARTITIONS[:2]:
        world.append(b"second")
    world.run()
    world.append(b"third")  # to the one that waits
    world.partition = PARTITIONS[2]
    world.append(b"second")  # later than both
    world.fake.release_all()
    order = []
    while any(log.flushed_offset < log.next_offset for log in world.store.logs.values()):
        world.run(None)
        order += [p for p in PARTITIONS if p not in order and world.store.logs[p].flushed_offset > 1]
    assert order == PARTITIONS[:3]
    assert world.store.logs[PARTITIONS[1]].flushed_offset == 3


def test_a_partition_that_is_closed_while_it_waits_is_forgotten():
    world = world_with(ShardBounds(disk_depth=1))
    open_all(world)
    world.fake.hold_all("write")
    for world.partition in PARTITIONS[:2]:
        world.append(b"second")
    world.run()
    world.store.remove(PARTITIONS[1])
    world.fake.release_all()
    world.settle()
    assert world.store.logs[PARTITIONS[0]].flushed_offset == 2


@pytest.mark.parametrize(("group_bytes", "writes"), [(64 * KIB, 5), (2 * MIB, 1)])
def test_a_group_stops_growing_at_its_size(group_bytes, writes):
    world = world_with(ShardBounds(group_bytes=group_bytes))
    world.open()
    world.append(b"first")
    world.settle()
    world.fake.hold_all("write")
    world.append(b"under way")
    world.run()
    for _ in range(5):
        world.append(b"x" * 70 * KIB)  # all of it comes while one write is under way
    world.fake.release_all()
    before = world.log.flushed_offset
    steps = []
    while world.log.flushed_offset < world.log.next_offset:
        world.run(None)
        if world.log.flushed_offset not in (before, *steps):
            steps.append(world.log.flushed_offset)
    assert len(steps) - 1 == writes


@pytest.mark.parametrize("most", [64 * KIB, 256 * KIB])
def test_a_busy_partition_reserves_no_more_ahead_than_it_may(most):
    world = world_with(ShardBounds(preallocate_bytes_max=most))
    world.open()
    for _ in range(200):
        world.append(b"x" * 20 * KIB)
        world.settle()
        assert world.log.active.allocated - world.log.active.position <= most * 3 // 2 + 64 * KIB
    assert world.log.active.position > 3 * MIB
