"""Free space: records are refused before the disk is full, the node's own work goes on, and all by itself again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.disk.api import Space
from ringlog.errors import DiskFull
from ringlog.limits import BLOCK_BYTES, GIB, KIB, MIB, PREALLOCATE_BYTES_MAX, PREALLOCATE_BYTES_MIN
from ringlog.log.disk_space import DiskSpace
from ringlog.log.partition import LogStatus
from ringlog.log.segment import Preallocation
from ringlog.log.settings import LogSettings
from ringlog.model import TopicPartition
from tests.support.fake_disk import FakeDisk
from tests.support.logs import LogWorld

TOPIC = TopicPartition("events", 0)
INTERNAL = TopicPartition("__consumer_offsets", 0)


def space_with(free_bytes, total_bytes=100 * GIB):
    space = DiskSpace(FakeDisk(), "/data")
    space.judge(free_bytes, total_bytes)
    return space


@pytest.mark.parametrize(("total_bytes", "reserve_bytes"), [(100 * GIB, 256 * MIB), (200 * MIB, 10 * MIB)])
def test_a_twentieth_of_the_disk_is_kept_but_no_more_than_is_of_use(total_bytes, reserve_bytes):
    assert space_with(total_bytes, total_bytes).reserve_bytes == reserve_bytes


def test_records_are_refused_below_the_reserve_and_taken_above_it():
    space_with(256 * MIB).admit(TOPIC, 1)
    with pytest.raises(DiskFull, match="255 MiB free") as refused:
        space_with(256 * MIB - 1).admit(TOPIC, 1)
    assert refused.value.retriable


def test_full_ends_a_quarter_above_where_it_began():
    space = space_with(100 * MIB)
    space.judge(300 * MIB, 100 * GIB)
    assert space.is_full
    space.judge(320 * MIB, 100 * GIB)
    assert not space.is_full


def test_internal_topics_may_use_the_reserve_but_not_all_of_it():
    space_with(8 * MIB).admit(INTERNAL, 1)
    with pytest.raises(DiskFull):
        space_with(7 * MIB).admit(INTERNAL, 1)


def test_many_bytes_make_it_look_again_before_the_clock_does(monkeypatch):
    disk = FakeDisk()
    space = DiskSpace(disk, "/data")
    space.judge(40 * GIB, 100 * GIB)
    monkeypatch.setattr(disk, "space", lambda path: Space(0, 100 * GIB))
    space.admit(TOPIC, 1 * MIB)
    with pytest.raises(DiskFull):
        space.admit(TOPIC, 10 * GIB)


def test_what_others_take_between_two_looks_is_noticed_before_the_reserve_is_used_up(monkeypatch):
    disk, total = FakeDisk(), 192 * MIB
    space = DiskSpace(disk, "/data")
    space.judge(170 * MIB, total)
    monkeypatch.setattr(disk, "space", lambda path: Space(4 * MIB, total))  # somebody has filled it
    taken = 0
    with pytest.raises(DiskFull):
        while taken < 100 * MIB:
            space.admit(TOPIC, 200 * KIB)
            taken += 200 * KIB
    assert taken < 2 * MIB


def test_space_that_is_not_known_refuses_nobody():
    space = DiskSpace(FakeDisk(), "/nowhere")
    space.tick(10_000)
    space.admit(TOPIC, 1 * GIB)
    assert space.step_bytes_max() == PREALLOCATE_BYTES_MAX


def test_less_is_reserved_ahead_as_space_ends():
    assert space_with(90 * GIB).step_bytes_max() == PREALLOCATE_BYTES_MAX
    assert space_with(2 * GIB).step_bytes_max() < 4 * MIB
    assert space_with(0).step_bytes_max() == PREALLOCATE_BYTES_MIN


@given(st.integers(PREALLOCATE_BYTES_MIN, 8 * MIB), st.lists(st.integers(1, 300_000), max_size=40))
def test_what_is_reserved_is_whole_blocks_whatever_room_there_is(step_max, appends):
    plan, end, allocated = Preallocation(), 0, 0
    for now_ms, nbytes in enumerate(appends):
        end += nbytes
        wanted = plan.next_range(end, allocated, 4 * MIB, now_ms, step_max)
        if wanted is not None:
            position, length = wanted
            assert position % BLOCK_BYTES == length % BLOCK_BYTES == 0
            allocated = position + length
        assert allocated >= end


@pytest.mark.parametrize("space_bytes", [24 * MIB, 100 * MIB + 12_345])
def test_a_filling_disk_refuses_appends_before_any_partition_is_fenced_and_recovers(space_bytes):
    disk = FakeDisk(seed=2)
    disk.faults.space_bytes = space_bytes
    world = LogWorld(disk, LogSettings(segment_bytes=4 * MIB, retention_bytes=200 * MIB))
    taken = 0
    with pytest.raises(DiskFull):
        for _ in range(1_000):
            world.append(bytes(100 * KIB))
            world.settle()
            world.now_ms += 10
            taken += 1
    assert 0.6 < taken * 100 * KIB / space_bytes < 0.97
    assert world.log.status is LogStatus.OPEN
    # Reads go on, and so does retention, which makes room.
    assert len(world.values()) == taken
    world.store.reconfigure(
        world.partition, LogSettings(segment_bytes=4 * MIB, retention_bytes=8 * MIB), now_ms=world.now_ms
    )
    for _ in range(4):
        world.now_ms += 1_000
        world.settle()
    world.append(b"there is room again")
    world.settle()
    assert world.values()[-1] == b"there is room again"
    assert world.log.status is LogStatus.OPEN
