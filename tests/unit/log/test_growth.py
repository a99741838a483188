"""Promises of reserved space: ahead of writes, filled with zeros where that pays, and never in anyone's way."""

from __future__ import annotations

from contextlib import suppress

import pytest

from ringlog.errors import DiskFull, PartitionFenced
from ringlog.limits import FILLED_BYTES_MAX, KIB, PREALLOCATE_BYTES_MIN
from ringlog.log.settings import LogSettings
from tests.support.logs import LogWorld


def test_writes_never_go_beyond_preallocated_space():
    world = LogWorld()
    for _ in range(40):
        world.append(bytes(50_000))
        world.run()
    world.settle()
    durable = [c for c in world.fake.calls if c.kind == "write" and c.path.endswith(".log") and c.durable]
    for write in durable:
        end = max(
            c.position + c.length
            for c in world.fake.calls[: write.number]
            if c.path == write.path and (c.kind == "preallocate" or (c.kind == "write" and not c.durable))
        )
        assert write.position + write.length <= end


def reserved(world, kind):
    """Lengths of the steps in which space was reserved, by zeros (`write`) or only allocated (`preallocate`)."""
    calls = [c for c in world.fake.calls if c.path.endswith(".log") and c.kind == kind and not c.durable]
    return [c.length for c in calls]


def test_space_is_filled_with_zeros_in_small_steps_and_only_allocated_in_large_ones():
    world = LogWorld(settings=LogSettings())
    for _ in range(200):
        world.append(bytes(10_000))
        world.settle()
    assert max(reserved(world, "write")) <= FILLED_BYTES_MAX < min(reserved(world, "preallocate"))


def test_a_write_does_not_wait_for_zeros_that_it_replaces():
    world = LogWorld(settings=LogSettings())
    for _ in range(4):
        world.append(bytes(700_000))
        world.settle()
        world.now_ms += 5_000  # slow enough for small steps
    assert len(reserved(world, "preallocate")) == 4
    assert max(reserved(world, "write")) <= 256 * KIB  # ahead of the next one, while nobody waits


@pytest.mark.parametrize("size", [1, 100, 4_035, 5_000, 40_000])
def test_filling_space_behind_a_reopened_log_touches_none_of_its_bytes(size):
    world = LogWorld()
    for number in range(8):
        world.append(b"%d" % number + bytes(size))
        world.settle()
        world.close()
        world = world.reopened()
        world.now_ms += 5_000  # slow enough for small steps
    world.evict_all()
    assert [value[:1] for value in world.values()] == [b"%d" % number for number in range(8)]


def test_zeros_that_find_no_room_are_a_full_disk():
    world = LogWorld()
    world.append(b"a")
    world.settle()
    world.fake.faults.space_bytes = world.fake.used_bytes + 10_000
    for _ in range(20):
        world.now_ms += 5_000
        with suppress(DiskFull, PartitionFenced):
            world.append(bytes(8_000))
        world.run()
    assert isinstance(world.log.fence_error, DiskFull)
    world.fake.faults.space_bytes = None
    world.now_ms += 5_000
    world.run()  # looks at the disk again
    world.store.reopen(world.partition, now_ms=world.now_ms)
    world.append(b"room again")
    world.settle()
    assert world.values()[-1] == b"room again"


def test_an_idle_partition_costs_kilobytes():
    world = LogWorld()
    world.append(b"one record")
    world.settle()
    assert world.fake.used_bytes <= PREALLOCATE_BYTES_MIN + 4096


def test_a_busy_partition_reserves_ahead_and_does_not_wait_for_it():
    world = LogWorld(settings=LogSettings())
    for _ in range(200):
        world.append(bytes(60_000))
        world.settle()
    world.fake.hold_all("preallocate")
    acked = world.log.flushed_offset
    for _ in range(3):
        world.append(bytes(60_000))
        world.run()
        world.run()
    assert world.log.flushed_offset > acked
    world.fake.release_all()
    world.settle()
