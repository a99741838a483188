"""A torn tail is cut to the last whole batch, and nothing before it is touched."""

from __future__ import annotations

import random

import pytest

from ringlog.limits import BLOCK_BYTES, MIB, SECTOR_BYTES
from ringlog.log.settings import FlushPolicy, LogSettings
from tests.support.fake_disk import FakeDisk
from tests.support.logs import LogWorld, batch_of

LOG = "/data/events-0/00000000000000000000.log"


def written_log(*sizes: int, seed: int = 1) -> tuple[LogWorld, list[int]]:
    """A log whose batches were written and flushed, and the byte where each ends. Its writer is gone."""
    world, ends = LogWorld(FakeDisk(seed)), []
    for number, size in enumerate(sizes):
        world.append(bytes([number + 1]) * size)
        world.settle()
        ends.append(world.log.active.position)
    return world, ends


def test_a_last_batch_cut_at_every_byte_leaves_exactly_the_valid_prefix():
    world, ends = written_log(700, 900, 300)
    whole = world.fake.content(LOG)
    for cut in range(ends[1], ends[2] - 1):  # a batch ends in a zero byte: without that one it is still whole
        disk = world.fake.crash(random.Random(0), survival=1.0)
        disk.put(LOG, whole[:cut] + bytes(len(whole) - cut))
        after = world.reopened(disk)
        assert after.log.next_offset == 2
        assert disk.content(LOG) == whole[: ends[1]]
        assert (after.report.cut_bytes > 0) == any(whole[ends[1] : cut])


def test_a_file_that_ends_inside_the_last_batch_is_cut_too():
    world, ends = written_log(700, 900, 300)
    whole = world.fake.content(LOG)
    for length in range(ends[1], ends[2], 13):
        disk = world.fake.crash(random.Random(0), survival=1.0)
        disk.put(LOG, whole[:length])
        assert world.reopened(disk).log.next_offset == 2


def test_cut_bytes_are_saved_and_never_come_back():
    world, ends = written_log(700, 900, 300)
    whole = bytearray(world.fake.content(LOG))
    torn = ends[1] + 100
    whole[torn : torn + 10] = bytes(10)
    world.fake.put(LOG, bytes(whole))
    after = world.reopened()
    saved = [name for name, _ in after.disk.list_dir(after.path) if name.endswith(".cut")]
    assert saved == [f"00000000000000000000.log.{ends[1]}.cut"]
    assert after.fake.content(f"{after.path}/{saved[0]}") == bytes(whole[ends[1] : BLOCK_BYTES])
    # The same offset again, with a shorter batch: whatever lay behind it must not be valid after a crash.
    after.append(b"short")
    after.settle()
    again = after.reopened(after.fake.crash(random.Random(3)))
    assert again.values()[2:] == [b"short"]


@pytest.mark.parametrize("seed", range(20))
def test_a_write_torn_at_sectors_leaves_a_prefix_of_its_batches(seed):
    rng = random.Random(seed)
    world, _ = written_log(rng.randint(1, 3000))
    world.fake.hold_all("write", ".log")
    values = [rng.randbytes(rng.randint(1, 2000)) for _ in range(12)]
    for value in values:
        world.append(value)
    world.run()
    after = world.reopened(world.fake.crash(rng, survival=0.7))
    world.fake.lose_power()
    found = after.values()[1:]
    assert found == values[: len(found)]


def test_a_whole_batch_behind_a_torn_one_of_the_same_write_is_not_believed():
    world, ends = written_log(500)
    world.fake.hold_all("write", ".log")
    for _ in range(3):
        world.append(bytes(SECTOR_BYTES * 2))
    world.run()
    world.fake.release_all()
    world.settle()
    data = bytearray(world.fake.content(LOG))
    data[ends[0] + 50] ^= 1  # the first of the three is bad, the two behind it are whole
    world.fake.put(LOG, bytes(data))
    after = world.reopened()
    assert after.log.next_offset == 1
    assert after.report.cut_bytes > 0


def test_a_batch_beyond_the_reach_of_one_write_proves_corruption_and_nothing_is_cut():
    settings = LogSettings(segment_bytes=16 * MIB)
    world = LogWorld(FakeDisk(1), settings, memory_bytes=32 * MIB)
    for number in range(12):
        world.append(bytes([number + 1]) * 500_000)
        world.settle()
    before = bytearray(world.fake.content(LOG))
    before[1000] ^= 4
    world.fake.put(LOG, bytes(before))
    after = world.reopened()
    assert after.fake.content(LOG) == bytes(before)
    assert after.log.segments[0].quarantined
    assert after.log.next_offset == 12, "offsets that were acknowledged are never given again"
    assert any("corrupt" in problem for problem in after.report.problems)
    assert after.append(b"goes on").base_offset == 12
    after.settle()
    assert after.values(12) == [b"goes on"]


def test_without_flushed_acks_any_number_of_lost_writes_is_a_torn_tail():
    settings = LogSettings(segment_bytes=16 * MIB, flush=FlushPolicy.parse("os"))
    world = LogWorld(FakeDisk(1), settings, memory_bytes=32 * MIB)
    for number in range(12):
        world.append(bytes([number + 1]) * 500_000)
        for _ in range(4):
            world.run()
    data = bytearray(world.fake.content(LOG))
    data[600_000:700_000] = bytes(100_000)
    disk = world.fake.crash(random.Random(1), survival=1.0)
    world.fake.lose_power()
    disk.put(LOG, bytes(data))
    after = world.reopened(disk)
    assert after.log.next_offset == 1
    assert after.report.cut_bytes > 4_000_000


def test_a_batch_at_a_wrong_offset_ends_the_log():
    world, ends = written_log(100, 100)
    data = bytearray(world.fake.content(LOG))
    data[ends[0] : ends[0] + 8] = (7).to_bytes(8, "big")  # outside of the CRC
    world.fake.put(LOG, bytes(data))
    assert world.reopened().log.next_offset == 1


def test_a_batch_of_a_lower_epoch_ends_the_log():
    world = LogWorld()
    world.append(b"a", leader_epoch=5)
    world.settle()
    end = world.log.active.position
    world.append(b"b", leader_epoch=5)
    world.settle()
    data = bytearray(world.fake.content(LOG))
    data[end + 12 : end + 16] = (4).to_bytes(4, "big")  # outside of the CRC
    world.fake.put(LOG, bytes(data))
    assert world.reopened().log.next_offset == 1


def test_garbage_behind_the_end_is_cut_and_saved():
    world, ends = written_log(100)
    data = bytearray(world.fake.content(LOG))
    garbage = random.Random(1).randbytes(3 * BLOCK_BYTES)
    data[ends[0] : ends[0] + len(garbage)] = garbage
    world.fake.put(LOG, bytes(data))
    after = world.reopened()
    assert after.log.next_offset == 1
    assert after.report.cut_bytes == 4 * BLOCK_BYTES - ends[0]


def test_an_old_batch_of_another_log_is_not_taken_for_ours():
    world, ends = written_log(100)
    data = bytearray(world.fake.content(LOG))
    foreign = batch_of(b"from elsewhere")  # valid, but at offset 0
    data[ends[0] : ends[0] + len(foreign)] = foreign
    world.fake.put(LOG, bytes(data))
    assert world.reopened().values() == [b"\x01" * 100]
