"""A shard on a full disk: appends are refused by name, what is there can be read, and it opens when there is room."""

from __future__ import annotations

import errno

import pytest

from ringlog.limits import MIB
from ringlog.log.disk_space import DiskSpace, floor_of, resume_of
from ringlog.model import TopicPartition
from ringlog.records.decode import decode
from ringlog.shard.hosting import Hosting, reopen_room
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults
from tests.support.shard_world import ShardWorld


@pytest.fixture
def has_room(monkeypatch) -> list[bool]:
    answer = [False]
    monkeypatch.setattr(Hosting, "_has_room", lambda *_: answer[0])
    return answer


@pytest.fixture
def world(has_room) -> ShardWorld:
    """One record is there; the write of another found the disk full."""
    faults = Faults()
    world = ShardWorld(disk=FakeDisk(seed=1, faults=faults))
    world.create(1)
    world.fill(b"before")
    faults.fail("write", nth=world.disk._kinds["write"], errno=errno.ENOSPC)
    faults.fail("write", nth=world.disk._kinds["write"] + 1, errno=errno.ENOSPC)
    world.produce(b"too much")
    world.settle()
    faults._by_kind.clear()
    (reply,) = world.net.take()
    assert (reply.error.code, reply.error.retriable) == ("DISK_FULL", True)
    return world


def values(world: ShardWorld) -> list[bytes | None]:
    world.fetch((1, 0))
    world.settle()
    (reply,) = world.net.take()
    return [record.value for record in decode(world.fetched(reply)[1][1].data)]


def test_while_the_disk_is_full_appends_are_refused_and_reads_are_served(world):
    for _ in range(5):
        world.at(1000)
        world.core.hosting.work(world.now_ms)
        world.produce(b"more")
        (reply,) = world.net.take()
        assert (reply.error.code, reply.error.retriable) == ("DISK_FULL", True)
        assert values(world) == [b"before"]


def test_when_there_is_room_again_appends_are_taken(world, has_room):
    has_room[0] = True
    world.at(1000)
    world.core.hosting.work(world.now_ms)
    world.fill(b"after")
    assert values(world)[0] == b"before"
    assert values(world)[-1] == b"after"


@pytest.mark.parametrize("disk_mib", [16, 128, 300, 10_000, 1_000_000])
def test_a_partition_is_reopened_at_the_latest_when_others_take_records_again(disk_mib):
    space = DiskSpace(FakeDisk(), "/data")
    space.judge(0, disk_mib * MIB)
    free_bytes = resume_of(space.reserve_bytes)
    space.judge(free_bytes, disk_mib * MIB)
    assert not space.is_full
    assert reopen_room(TopicPartition("t", 0), disk_mib * MIB) <= free_bytes
    assert reopen_room(TopicPartition("__groups", 0), disk_mib * MIB) <= floor_of(space.reserve_bytes)
