"""Promises of checkpoints between two saves of the state."""

from __future__ import annotations

import json
import random

import pytest

from cli.dump_json import json_line
from cli.dump_text import TextLines
from ringlog.limits import MIB
from ringlog.log.batch import BatchInfo
from ringlog.log.dump import dump_file
from ringlog.log.names import POINT_NAME
from ringlog.log.point import SLOT_BYTES, MovedPoint, newest_point, read_slots
from ringlog.log.producers import ProducerTable
from ringlog.log.settings import LogSettings
from ringlog.log.state import PartitionState
from ringlog.log.verify import verify_partition
from tests.support.logs import LogWorld


def checkpointed(count=20, rounds=3):
    """A log of one segment whose recovery point was moved several times."""
    world = LogWorld(settings=LogSettings())
    for number in range(rounds * count):
        world.append(b"%04d" % number + bytes(9_000), producer=(6, 0, number), timestamp=number)
        world.settle()
        if number % count == count - 1:
            world.store.checkpoint()
            world.run()
            world.settle()
    return world


def state_and_point(disk, path):
    state = PartitionState.decode(disk.content(f"{path}/partition.state"))
    return state, newest_point(disk.content(f"{path}/{POINT_NAME}"), state)


def test_a_checkpoint_is_one_small_durable_write():
    world = checkpointed()
    before = len(world.fake.calls)
    world.append(b"x")
    world.settle()
    world.store.checkpoint()
    world.run()
    world.settle()
    calls = [call for call in world.fake.calls[before:] if not call.path.endswith(".log")]
    assert [call.kind for call in calls] == ["open", "write"]
    assert calls[1].length < 1_000


def test_a_crash_scans_from_the_moved_point_and_knows_the_producers():
    world = checkpointed()
    world.append(b"after", producer=(6, 0, 60))
    world.settle()
    _, point = state_and_point(world.fake, world.path)
    after = world.reopened(world.fake.crash(random.Random(1)))
    assert after.report.scanned_bytes == world.log.active.position - point.active.position < 1_000
    assert after.append(b"after", producer=(6, 0, 60)).repeated
    assert [value[:4] for value in after.values()[:60]] == [b"%04d" % number for number in range(60)]


def test_reads_below_the_moved_point_find_their_batch_though_the_index_was_lost():
    world = checkpointed()
    after = world.reopened(world.fake.crash(random.Random(1)))
    assert after.log.active.index_gap_end > 0
    for offset in (0, 7, 31, 59):
        assert next(iter(after.records(offset))).offset == offset
    assert after.log.active.index_gap_end == 0
    assert after.store.find_time_now(after.partition, 33).offset == 33


def test_an_index_with_a_gap_is_whole_when_its_segment_is_sealed():
    world = LogWorld(settings=LogSettings(segment_bytes=1 * MIB))
    twin = LogWorld(settings=LogSettings(segment_bytes=1 * MIB))
    for number in range(130):
        for each in (world, twin):
            each.append(b"%04d" % number + bytes(9_000), timestamp=number)
            each.settle()
        if number == 60:
            world.store.checkpoint()
            world.run()
            world.settle()
            world = world.reopened(world.fake.crash(random.Random(1)))
            assert world.log.active.index_gap_end > 0
    for suffix in (".index", ".timeindex"):
        name = f"{world.path}/{0:020d}{suffix}"
        assert world.fake.content(name) == twin.fake.content(name)


def test_a_clean_stop_with_a_gap_in_the_index_is_still_clean():
    world = checkpointed()
    after = world.reopened(world.fake.crash(random.Random(1)))
    after.close()
    again = after.reopened()
    assert again.report.clean and not again.report.problems
    assert [value[:4] for value in again.values()] == [b"%04d" % number for number in range(60)]


@pytest.mark.parametrize("slot", [0, 1])
def test_a_torn_point_leaves_the_one_before_it(slot):
    world = checkpointed()
    data = bytearray(world.fake.content(f"{world.path}/{POINT_NAME}"))
    data[slot * SLOT_BYTES + 20] ^= 1
    world.fake.put(f"{world.path}/{POINT_NAME}", bytes(data))
    _, point = state_and_point(world.fake, world.path)
    assert point is not None and point.number == (3 if slot == 0 else 2)
    assert len(world.reopened().values()) == 60


def test_points_of_an_older_state_are_void():
    world = checkpointed()
    old_points = world.fake.content(f"{world.path}/{POINT_NAME}")
    world.store.truncate(world.partition, 10, now_ms=world.now_ms)
    world.fake.put(f"{world.path}/{POINT_NAME}", old_points)
    after = world.reopened(world.fake.crash(random.Random(1)))
    assert after.log.next_offset == 10
    assert not after.report.problems


def test_points_of_a_state_that_was_lost_never_come_into_force_again():
    world = checkpointed()
    for cut in range(59, 54, -1):  # each saves the state once more
        world.store.truncate(world.partition, cut, now_ms=world.now_ms)
    world.append(b"x")
    world.settle()
    world.store.checkpoint()
    world.run()
    world.settle()
    old = [slot.generation for slot in read_slots(world.fake.content(f"{world.path}/{POINT_NAME}"))]
    disk = world.fake.crash(random.Random(1))
    disk.remove(f"{world.path}/partition.state")
    after = world.reopened(disk)
    after.store.truncate(after.partition, 10, now_ms=after.now_ms)
    state, point = state_and_point(after.fake, after.path)
    assert state.generation > max(old) and point is None


def test_a_point_too_large_for_its_slot_saves_the_state_instead():
    world = LogWorld(settings=LogSettings())
    for producer in range(9_000):
        world.log.producers.note(BatchInfo(100, 1, 0, producer, 0, 0), 0, world.now_ms)
    world.append(b"x")
    world.settle()
    world.store.checkpoint()
    world.run()
    world.settle()
    assert not world.disk.exists(f"{world.path}/{POINT_NAME}")
    state = PartitionState.decode(world.fake.content(f"{world.path}/partition.state"))
    assert state.active.next_offset == 1 and state.has_producers


def test_any_bytes_in_the_file_are_passed_over():
    world = checkpointed()
    state, _ = state_and_point(world.fake, world.path)
    rng = random.Random(5)
    for length in (0, 1, 11, 12, 100, SLOT_BYTES, 2 * SLOT_BYTES, 3 * SLOT_BYTES):
        assert newest_point(rng.randbytes(length), state) is None
        assert newest_point(bytes(length), state) is None


def test_a_log_with_a_moved_point_is_sound_to_the_checker():
    world = checkpointed()
    crashed = world.fake.crash(random.Random(1), survival=1.0)
    assert not [finding for finding in verify_partition(crashed, world.path) if finding.is_violation]


def test_a_dump_shows_the_points_of_both_slots():
    world = checkpointed()
    lines = list(dump_file(world.disk, f"{world.path}/{POINT_NAME}"))
    assert [line.number for line in lines] == [2, 3]
    assert "recovery point at offset 60" in TextLines(utc=True).line(lines[1])
    shown = json.loads(json_line("partition.point", lines[1]))
    assert (shown["type"], shown["active"]["next_offset"]) == ("point", 60)


def test_a_point_reads_back_as_it_was():
    world = checkpointed()
    state, point = state_and_point(world.fake, world.path)
    assert isinstance(point, MovedPoint)
    table = ProducerTable.decode(point.producers, point.active.next_offset)
    assert [entry.producer_id for entry in table.entries] == [6]
    assert point.generation == state.generation
