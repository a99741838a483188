"""Promises of the removal of a partition: gone or whole after a crash, deleted in the end, nobody held up."""

from __future__ import annotations

import errno
import random

import pytest

from ringlog.disk.plain import PlainDisk
from ringlog.errors import PartitionFenced
from ringlog.limits import MIB
from ringlog.log.jobs import run_now
from ringlog.log.names import parse_partition_dir
from ringlog.log.removal import SET_ASIDE_TOGETHER, delete_dir, is_deleted_dir, set_dir_aside, sweep_deleted
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults, PowerLoss
from tests.support.logs import SMALL_SEGMENTS, LogWorld

OTHER = TopicPartition("other", 0)


def world_with_records(disk=None, *, records=60):
    world = LogWorld(disk)
    for number in range(records):
        world.append(b"%d" % number + bytes(50_000), producer=(5, 0, number))
        world.settle()
    return world


def run_until_done(world):
    while world.disk.in_flight or world.store._removals.waiting:
        world.run()


def test_a_removed_partition_leaves_nothing_behind():
    world, told = world_with_records(), []
    world.store.remove(world.partition, done=lambda: told.append("done"), failed=told.append)
    run_until_done(world)
    assert told == ["done"]
    assert (world.fake.used_bytes, world.fake.open_paths, world.disk.list_dirs("/data")) == (0, [], [])
    assert world.store._context.arena.free_bytes == world.store._context.arena.total_bytes


def test_a_removed_partition_refuses_appends_at_once():
    world = world_with_records(records=1)
    world.store.remove(world.partition)
    with pytest.raises(PartitionFenced, match="not open"):
        world.append(b"late")


def test_many_partitions_are_removed_in_slices():
    world = LogWorld()
    doomed = [TopicPartition("many", number) for number in range(200)]
    for name in doomed:
        world.store.open(name, SMALL_SEGMENTS, now_ms=world.now_ms)
    calls: dict[str, int] = {"rename": 0, "remove": 0, "remove_dir": 0}
    counting(world, calls)
    gone: list[int] = []
    for name in doomed:
        world.store.remove(name, done=lambda: gone.append(1))
    passes: list[dict[str, int]] = []
    while world.disk.in_flight or world.store._removals.waiting:
        before = dict(calls)
        world.run()
        passes.append({kind: calls[kind] - before[kind] for kind in calls})
    assert (len(gone), world.disk.list_dirs("/data")) == (200, ["events-0"])
    assert max(one["rename"] for one in passes) <= SET_ASIDE_TOGETHER
    assert max(one["remove"] + one["remove_dir"] for one in passes) <= 64, "a slice, or two"


def test_to_open_another_partition_does_not_set_all_aside_at_once(monkeypatch):
    world, renamed = LogWorld(), []
    names = [TopicPartition("gone", number) for number in range(2 * SET_ASIDE_TOGETHER)]
    world.store.open_together([(name, SMALL_SEGMENTS, None) for name in names], now_ms=0)
    world.settle()
    for name in names:
        world.store.remove(name)
    rename = world.fake.rename
    monkeypatch.setattr(world.fake, "rename", lambda old, new: (renamed.append(old), rename(old, new)))
    world.store.open(OTHER, now_ms=0)
    assert sum("gone" in path for path in renamed) <= SET_ASIDE_TOGETHER


def test_a_clean_stop_waits_for_all_partitions_that_are_being_removed(tmp_path):
    store = LogStore(PlainDisk(), str(tmp_path))  # each call is done as soon as it is submitted
    doomed = [TopicPartition("many", number) for number in range(3 * SET_ASIDE_TOGETHER)]
    store.open_together([(name, SMALL_SEGMENTS, None) for name in doomed], now_ms=0)
    for name in doomed:
        store.remove(name)
    store.close(now_ms=0)
    assert list(tmp_path.iterdir()) == []


def counting(world: LogWorld, calls: dict[str, int]) -> None:
    """Count calls of the disk, by kind."""
    for kind in calls:
        call = getattr(world.disk, kind)

        def counted(*args, kind=kind, call=call):
            calls[kind] += 1
            return call(*args)

        setattr(world.disk, kind, counted)


def test_a_partition_that_was_never_opened_is_removed_too_and_a_missing_one_is_no_error():
    world, told = world_with_records(), []
    world.close()
    for name in (world.partition, OTHER):
        world.store.remove(name, done=lambda: told.append("done"), failed=told.append)
    run_until_done(world)
    assert told == ["done", "done"]
    assert world.disk.list_dirs("/data") == []


def test_a_removal_waits_for_the_calls_under_way_and_holds_up_nobody_else():
    world = world_with_records(records=2)
    world.store.open(OTHER, SMALL_SEGMENTS, now_ms=world.now_ms)
    read = []
    world.evict_all()
    world.append(b"never acknowledged")
    world.fake.hold_all("", "/events-0/")
    world.store.read(world.partition, 0, 1, done=read.append, failed=read.append)
    world.run()
    world.store.remove(world.partition)
    world.partition = OTHER
    world.append(b"goes on")
    while world.log.flushed_offset < 1:
        world.run()
    assert world.disk.list_dirs("/data") == ["events-0", "other-0"]
    world.fake.release_all()
    run_until_done(world)
    assert world.disk.list_dirs("/data") == ["other-0"]
    assert read[0].next_offset == 1
    read[0].release()


def test_a_partition_of_the_same_name_begins_empty_however_soon_it_is_made():
    world = world_with_records()
    world.append(b"in flight")
    world.run()
    world.store.remove(world.partition)
    world.open()
    assert (world.log.next_offset, world.log.log_bytes) == (0, 0)
    world.append(b"new", producer=(5, 0, 0))
    world.settle()
    run_until_done(world)
    assert world.values() == [b"new"]
    assert world.reopened(world.fake.crash(random.Random(1))).values() == [b"new"]


def test_a_store_that_is_closed_during_a_removal_finishes_it():
    world = world_with_records()
    world.store.remove(world.partition)
    world.close()
    assert (world.fake.used_bytes, world.fake.in_flight) == (0, 0)


@pytest.mark.parametrize("kind", ["rename", "flush_dir"])
def test_a_removal_that_fails_says_so_and_is_done_before_the_name_is_opened_again(kind):
    world, told = world_with_records(), []
    nth = sum(call.kind == kind for call in world.fake.calls)
    world.fake.faults.fail(kind, nth=nth)
    world.store.remove(world.partition, done=lambda: told.append("done"), failed=told.append)
    run_until_done(world)
    assert [error.errno for error in told] == [errno.EIO]
    world.open()
    assert world.log.next_offset == 0


def test_power_loss_leaves_the_partition_whole_or_gone_and_the_rest_is_swept():
    world = world_with_records()
    before = world.fake.steps
    world.store.remove(world.partition)
    run_until_done(world)
    outcomes = set()
    for at in range(before, world.fake.steps):
        world, told = world_with_records(FakeDisk(3)), []
        world.fake.faults = Faults(power_loss_at_step=at)
        with pytest.raises(PowerLoss):
            world.store.remove(world.partition, done=lambda told=told: told.append("done"))
            run_until_done(world)
        for seed in range(3):
            disk = world.fake.crash(random.Random(seed))
            sweep_deleted(disk, "/data")
            left = disk.list_dirs("/data")
            assert left in ([], ["events-0"])
            count = world.reopened(disk).log.next_offset
            assert count in ((0,) if told else (0, 60)), "whole, or gone; gone once that was said"
            outcomes.add((bool(told), count))
    assert outcomes == {(False, 60), (False, 0), (True, 0)}


def test_what_cannot_be_swept_is_left_for_the_next_start():
    world = world_with_records()
    world.close()
    aside = run_now(world.disk, set_dir_aside(world.disk, world.path))
    world.fake.faults.fail("remove", nth=sum(call.kind == "remove" for call in world.fake.calls))
    assert sweep_deleted(world.disk, "/data") == []
    assert sweep_deleted(world.disk, "/data") == [aside.rpartition("/")[2]]
    assert world.disk.list_dirs("/data") == []


def test_a_directory_set_aside_is_no_partition_and_its_name_is_free_and_not_too_long():
    disk = FakeDisk()
    for name in ("events-0", "x" * 249 + "-123"):
        for _ in range(2):
            disk.make_dir(f"/data/{name}")
            aside = run_now(disk, set_dir_aside(disk, f"/data/{name}")).rpartition("/")[2]
            assert is_deleted_dir(aside)
            assert parse_partition_dir(aside) is None
            assert len(aside) <= 255
    assert len(disk.list_dirs("/data")) == 4


def test_a_large_file_is_given_back_in_slices():
    disk = FakeDisk()
    disk.put("/data/events-0.0-delete/00000000000000000000.log", bytes(200 * MIB))
    run_now(disk, delete_dir(disk, "/data/events-0.0-delete"))
    lengths = [call.position for call in disk.calls if call.kind == "truncate"]
    assert [length // MIB for length in lengths] == [136, 72, 8]


def test_every_request_for_a_partition_that_is_not_open_gets_a_typed_error():
    world, failures = world_with_records(records=1), []
    store, name = world.store, world.partition
    store.remove(name)
    store.read(name, 0, 1, done=failures.append, failed=failures.append)
    store.search(name, lambda reader: reader.find_time(0), done=failures.append, failed=failures.append)
    assert [type(failure) for failure in failures] == [PartitionFenced] * 2
    for request in (
        lambda: store.read_tail(name, 0, 1),
        lambda: store.read_now(name, 0, 1),
        lambda: store.find_time_now(name, 0),
        lambda: store.move_start(name, 0),
        lambda: store.truncate(name, 0, now_ms=0),
    ):
        with pytest.raises(PartitionFenced, match="not open"):
            request()
