"""Promises of opening: clean stops cost no scan, crashes a bounded one."""

from __future__ import annotations

import random

import pytest

from ringlog.errors import OffsetOutOfRange
from ringlog.limits import CHECKPOINT_BYTES, MIB
from ringlog.log.names import POINT_NAME
from ringlog.log.point import newest_point
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.log.state import PartitionState
from ringlog.log.verify import verify_partition
from ringlog.records.checksum import crc32c
from tests.support.fake_disk import FakeDisk
from tests.support.logs import LogWorld, filled


def test_after_a_clean_stop_opening_reads_no_segment():
    world = filled()
    world.close()
    calls = len(world.fake.calls)
    again = world.reopened()
    assert again.report.clean and again.report.scanned_bytes == 0
    assert not [c for c in again.fake.calls[calls:] if c.kind == "read" and c.path.endswith(".log")]
    assert again.log.next_offset == 60


def test_a_clean_stop_truncates_every_file_to_its_content():
    world = filled()
    positions = {segment.base_offset: segment.position for segment in world.log.segments}
    world.close()
    sizes = {int(n[:20]): s for n, s in world.disk.list_dir(world.path) if n.endswith(".log")}
    assert sizes == positions
    assert not world.fake.open_paths, "no file is left open"


def test_a_reopened_log_goes_on_as_if_it_had_never_stopped():
    world = filled(20)
    for number in range(20, 40):
        world.close()
        world = world.reopened()
        assert world.append(b"%04d" % (number - 1), producer=(6, 0, number - 1)).repeated
        world.append(b"%04d" % number, producer=(6, 0, number), timestamp=number)
        world.settle()
    assert [value[:4] for value in world.values()] == [b"%04d" % number for number in range(40)]
    assert world.store.find_time_now(world.partition, 35).offset == 35


def test_an_empty_log_opens_and_closes():
    world = LogWorld()
    world.close()
    again = world.reopened()
    assert (again.log.next_offset, again.report.clean) == (0, True)
    again.append(b"first")
    again.settle()
    assert again.values() == [b"first"]


def test_a_directory_that_was_never_written_to_opens_empty():
    world = LogWorld()
    again = world.reopened(world.fake.crash(random.Random(1), survival=0.0))
    assert again.log.next_offset == 0


def test_after_a_crash_only_what_lies_above_the_recovery_point_is_scanned():
    world = filled(10)
    world.store.checkpoint()
    world.run()
    world.settle()
    point = world.log.active.position
    world.append(b"after the checkpoint")
    world.settle()
    end = world.log.active.position
    after = world.reopened(world.fake.crash(random.Random(1)))
    assert after.report.scanned_bytes == end - point
    assert len(after.values()) == 11


@pytest.fixture
def checkpoint_bytes(monkeypatch):
    """As in production, but for a sixteenth of the bytes."""
    monkeypatch.setattr("ringlog.log.checkpoints.CHECKPOINT_BYTES", CHECKPOINT_BYTES // 16)
    return CHECKPOINT_BYTES // 16


def test_checkpoints_follow_the_bytes_that_were_appended(checkpoint_bytes):
    world = LogWorld(settings=LogSettings())
    chunk = bytes(100_000)
    for _ in range(checkpoint_bytes // len(chunk) + 3):
        world.append(chunk)
        world.run()
    world.settle()
    world.run()
    world.settle()
    state = PartitionState.decode(world.fake.content(f"{world.path}/partition.state"))
    point = newest_point(world.fake.content(f"{world.path}/{POINT_NAME}"), state)
    assert point is not None and point.active.position > checkpoint_bytes // 2


def test_what_a_crash_would_scan_stays_bounded_however_much_is_appended(checkpoint_bytes):
    world = LogWorld(settings=LogSettings())
    chunk = bytes(100_000)
    highest = 0
    for _ in range(5 * checkpoint_bytes // len(chunk)):
        world.append(chunk)
        world.run()
        highest = max(highest, world.store._checkpoints.unscanned_bytes())
    assert highest < 2 * checkpoint_bytes
    world.settle()


def test_a_second_crash_right_after_recovery_scans_nothing_again():
    world = filled(10)
    after = world.reopened(world.fake.crash(random.Random(1)))
    again = after.reopened(after.fake.crash(random.Random(2)))
    assert again.report.scanned_bytes == 0
    assert len(again.values()) == 10


def test_leftovers_of_an_unfinished_replacement_are_removed():
    world = filled(3)
    world.close()
    world.fake.put(f"{world.path}/partition.state.tmp", b"half")
    world.reopened()
    assert not world.disk.exists(f"{world.path}/partition.state.tmp")


def test_records_found_by_recovery_are_flushed_before_they_are_served():
    world = LogWorld(settings=LogSettings(flush=FlushPolicy.parse("os")))
    world.append(b"written, not flushed")
    for _ in range(6):
        world.run()
    after = world.reopened()  # the process died, the machine did not: the record is in the file
    assert after.values() == [b"written, not flushed"]
    assert after.reopened(after.fake.crash(random.Random(1), survival=0.0)).values() == [
        b"written, not flushed"
    ]


def test_leader_epochs_survive_a_crash():
    world = LogWorld()
    for epoch in (1, 1, 4, 7):
        world.append(b"x", leader_epoch=epoch)
        world.settle()
    after = world.reopened(world.fake.crash(random.Random(1)))
    assert after.log.epochs.starts == world.log.epochs.starts


def test_a_sealed_segment_is_exactly_as_long_as_its_batches():
    world = filled()
    world.settle()
    for segment in world.log.segments[:-1]:
        name = f"{world.path}/{segment.base_offset:020d}.log"
        assert len(world.fake.content(name)) == segment.position == len(world.fake.durable_content(name))


@pytest.mark.parametrize("seed", range(8))
def test_slow_completions_change_nothing(seed):
    world = filled(30, disk=FakeDisk(seed, delays=True))
    after = world.reopened(world.fake.crash(random.Random(seed)))
    assert [value[:4] for value in after.values()] == [b"%04d" % number for number in range(30)]


def test_a_log_is_judged_by_the_policy_it_was_written_under():
    lax = LogSettings(segment_bytes=16 * MIB, flush=FlushPolicy.parse("os"))
    world = LogWorld(settings=lax, memory_bytes=32 * MIB)
    for number in range(12):
        world.append(bytes([number + 1]) * 500_000)
        for _ in range(4):
            world.run()
    disk = world.fake.crash(random.Random(1), survival=1.0)
    world.fake.lose_power()
    name = f"{world.path}/00000000000000000000.log"
    data = bytearray(disk.content(name))
    data[600_000:700_000] = bytes(100_000)
    disk.put(name, bytes(data))
    world.settings = LogSettings(segment_bytes=16 * MIB)
    after = world.reopened(disk)
    assert after.log.next_offset == 1, "lost writes of a lax policy are a torn tail, not corruption"
    after.close()
    state = PartitionState.decode(disk.content(f"{world.path}/partition.state"))
    assert state.reach_bytes == world.settings.reach_bytes


def test_a_snapshot_that_the_state_names_is_never_removed():
    world = LogWorld()
    for number in range(120):
        world.append(b"%d" % number + bytes(50_000), producer=(6, 0, number))
        for _ in range(6):
            world.run()
            state = PartitionState.decode(world.fake.content(f"{world.path}/partition.state"))
            if state.has_producers:
                assert world.disk.exists(f"{world.path}/{state.active.next_offset:020d}.snapshot")
    assert len(world.log.segments) > 4
    assert len([name for name, _ in world.disk.list_dir(world.path) if name.endswith(".snapshot")]) == 2


def test_indexes_without_a_segment_are_removed():
    world = filled(3)
    world.close()
    world.fake.put(f"{world.path}/00000000000000009999.index", b"")
    world.reopened()
    assert not world.disk.exists(f"{world.path}/00000000000000009999.index")


def test_the_start_of_a_log_moves_and_survives_a_crash():
    world = filled(20)
    world.store.move_start(world.partition, 12)
    with pytest.raises(OffsetOutOfRange, match=r"outside of \[12, 20\]"):
        list(world.records(11))
    world.run()
    world.settle()
    after = world.reopened(world.fake.crash(random.Random(1), survival=0.0))
    assert after.log.log_start_offset == 12
    assert [value[:4] for value in after.values()] == [b"%04d" % number for number in range(12, 20)]
    with pytest.raises(OffsetOutOfRange):
        after.store.move_start(after.partition, 11)
    with pytest.raises(OffsetOutOfRange):
        after.store.move_start(after.partition, 21)


def test_idle_producers_are_forgotten_by_the_store():
    world = filled(3)
    assert len(world.log.producers) == 1
    world.now_ms += 24 * 3600 * 1000
    world.run()
    assert len(world.log.producers) == 0


def test_filling_a_gap_in_an_index_leaves_the_entries_alone_that_are_in_its_file():
    def append_some():
        for _ in range(rng.randrange(3, 30)):
            world.append(bytes(rng.choice([50, 700, 1500, 3000, 5000])), timestamp=rng.randrange(10**6))
        world.settle()

    for seed in range(30):
        rng = random.Random(seed)
        world = LogWorld(FakeDisk(seed), LogSettings(segment_bytes=8 * MIB))
        for _ in range(2):
            append_some()
            world.store.checkpoint()
            for _ in range(5):
                world.run()
            world = world.reopened(world.fake.crash(rng))
            assert world.log.active.index_gap_end
            append_some()
            world.evict_all()
            world.values()
            active, saved = world.log.active, world.log.active.saved
            assert not active.index_gap_end
            assert crc32c(active.index.offsets.encode(0, saved.index_entries)) == saved.index_crc
            assert crc32c(active.index.times.encode(0, saved.time_index_entries)) == saved.time_index_crc
            world.close()
            world = world.reopened()


def test_a_log_that_starts_at_its_end_takes_a_new_leader_also_after_a_crash():
    world = LogWorld()
    world.append(b"a", leader_epoch=3)
    world.settle()
    world.store.move_start(world.partition, 1)
    world.settle()
    world.append(b"b", leader_epoch=4)
    world.settle()
    after = world.reopened(world.fake.crash(random.Random(1)))
    assert after.values() == [b"b"]
    assert after.log.epochs.starts == ((4, 1),)
    for disk in (after.fake, closed(after)):
        findings = verify_partition(disk, after.path)
        assert [str(finding) for finding in findings if finding.is_violation] == []


def test_a_closed_log_that_starts_at_its_end_is_good():
    world = LogWorld()
    world.append(b"a", leader_epoch=3)
    world.settle()
    world.store.move_start(world.partition, 1)
    findings = verify_partition(closed(world), world.path)
    assert [str(finding) for finding in findings if finding.is_violation] == []


def closed(world):
    world.close()
    return world.fake


def test_a_start_among_records_that_power_loss_took_is_taken_back_to_the_end():
    world = LogWorld(settings=LogSettings(flush=FlushPolicy.parse("os")))
    world.append(b"flushed")
    world.settle()
    world.store.checkpoint()
    for number in range(5):
        world.append(b"%d" % number)
        world.run()
    world.store.move_start(world.partition, world.log.readable_offset)
    for _ in range(20):
        world.run()
    for seed in range(20):
        after = world.reopened(world.fake.crash(random.Random(seed)))
        assert after.log.log_start_offset <= after.log.next_offset
        end = after.append(b"next", leader_epoch=1).base_offset
        after.settle()
        assert after.values(end) == [b"next"]


def test_a_clean_stop_before_the_first_append_to_a_segment_needs_no_scan_either():
    world = filled(count=3)
    world.log.roll(world.now_ms)
    world.settle()
    world.close()
    world.disk.remove(
        f"{world.path}/00000000000000000003.log"
    )  # as where the opening found the segment before it sealed
    after = world.reopened()
    assert after.report.clean
    assert len(after.values()) == 3
    after.append(b"more", producer=(6, 0, 3))
    after.settle()
    assert len(after.reopened(after.fake.crash(random.Random(1))).values()) == 4
