"""Promises of opening: clean stops cost no scan, crashes a bounded one."""

from __future__ import annotations

import random

import pytest

from ringlog.errors import OffsetOutOfRange
from ringlog.limits import CHECKPOINT_BYTES, KIB, MIB
from ringlog.log.batch import batch_infos
from ringlog.log.events import Progress
from ringlog.log.names import POINT_NAME
from ringlog.log.point import newest_point
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.log.state import PartitionState
from ringlog.log.verify import Severity, verify_partition
from ringlog.model import Durability, TopicPartition
from ringlog.records.checksum import crc32c
from ringlog.records.scan import check
from tests.support.fake_disk import FakeDisk
from tests.support.logs import LogWorld, batch_of


def filled(count=60, size=50_000, **kwargs):
    world = LogWorld(**kwargs)
    for number in range(count):
        world.append(b"%04d" % number + bytes(size), producer=(6, 0, number), timestamp=number)
        world.settle()
    return world


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


@pytest.mark.parametrize("offset", [0, 1, 24, 25, 59, 60])
def test_truncation_leaves_exactly_the_records_below_the_offset(offset):
    world = filled()
    world.store.truncate(world.partition, offset, now_ms=world.now_ms)
    assert [value[:4] for value in world.values()] == [b"%04d" % number for number in range(offset)]
    assert world.append(b"new", producer=(6, 0, offset)).base_offset == offset
    world.settle()
    after = world.reopened(world.fake.crash(random.Random(1)))
    assert after.values()[offset:] == [b"new"]


def test_truncation_inside_a_batch_removes_the_whole_batch():
    world = LogWorld()
    world.append(b"a", b"b")
    world.append(b"c", b"d")
    world.settle()
    world.store.truncate(world.partition, 3, now_ms=0)
    assert world.values() == [b"a", b"b"]


def test_truncated_bytes_are_saved():
    world = filled()
    before = {n: s for n, s in world.disk.list_dir(world.path) if n.endswith(".log")}
    world.store.truncate(world.partition, 10, now_ms=0)
    saved = sum(size for name, size in world.disk.list_dir(world.path) if name.endswith(".cut"))
    kept = sum(size for name, size in world.disk.list_dir(world.path) if name.endswith(".log"))
    assert saved + kept >= sum(before.values()) - 64 * KIB
    assert len([n for n, _ in world.disk.list_dir(world.path) if n.endswith(".cut")]) == len(before)


def test_what_became_durable_while_a_truncation_waited_is_still_told():
    world, other = LogWorld(), TopicPartition("other", 0)
    world.store.open(other, now_ms=0)
    append_to(world, other)
    world.settle()
    append_to(world, other)
    world.append(b"a")  # takes longer: its file is to be opened, and space to be reserved
    world.store.truncate(world.partition, 0, now_ms=0)
    assert world.store.logs[other].flushed_offset == 2
    assert (other, 2) in [(event.log.name, event.offset) for event in world.run()]


def append_to(world: LogWorld, name: TopicPartition) -> None:
    data = batch_of(b"b")
    world.store.append(name, memoryview(data), batch_infos(check(data)), now_ms=world.now_ms)


def test_a_truncation_waits_for_no_other_log():
    world, other = filled(10), TopicPartition("other", 0)
    world.store.open(other, now_ms=0)
    append_to(world, other)
    world.settle()
    world.fake.hold_all("write", str(other))
    append_to(world, other)
    world.append(b"is settled first")
    world.run()
    world.store.truncate(world.partition, 4, now_ms=world.now_ms)
    assert world.log.next_offset == 4
    assert [call.kind for call in world.fake.in_flight_calls] == ["write"], "of the other one, still"
    assert world.store.logs[other].flushed_offset == 1
    world.fake.release_all()
    told = [event for event in world.settle() if isinstance(event, Progress)]
    assert {(event.log.name, event.offset) for event in told} == {(other, 2)}


def test_a_truncation_takes_nothing_from_a_read_of_another_log():
    world, other = filled(10), TopicPartition("other", 0)
    world.store.open(other, now_ms=0)
    append_to(world, other)
    world.settle()
    world.evict_all()
    world.fake.hold_all("read", str(other))
    found: list[int] = []
    world.store.read(
        other, 0, MIB, done=lambda slices: found.append(slices.next_offset), failed=lambda error: None
    )
    world.store.truncate(world.partition, 4, now_ms=world.now_ms)
    assert found == []
    world.fake.release_all()
    world.settle()
    assert found == [1]


@pytest.mark.parametrize("seed", range(12))
def test_events_of_other_logs_come_in_order_and_none_is_lost_while_logs_are_truncated(seed):
    world, rng = LogWorld(FakeDisk(seed=seed, delays=True)), random.Random(seed)
    others = [TopicPartition("other", number) for number in range(3)]
    for name in others:
        world.store.open(name, now_ms=world.now_ms)
    appended = dict.fromkeys(others, 0)
    for number in range(40):
        world.append(b"%d" % number)
        for name in rng.sample(others, rng.randint(0, 3)):
            append_to(world, name)
            appended[name] += 1
        if rng.random() < 0.7:
            world.run()
        if rng.random() < 0.2:
            at = rng.randint(0, world.log.next_offset)
            world.store.truncate(world.partition, at, now_ms=world.now_ms)
    world.settle()
    for name in others:
        told = [e for e in world.events if isinstance(e, Progress) and e.log.name == name]
        flushed = [e.offset for e in told if e.durability is Durability.FLUSHED]
        assert flushed == sorted(set(flushed)) and flushed[-1] == appended[name]


def test_a_truncation_leaves_indexes_that_fit():
    world = filled(40)
    world.settle()
    active = world.log.active.base_offset
    for offset in (world.log.next_offset - 1, active + 1, active, 3, 0):
        world.store.truncate(world.partition, offset, now_ms=0)
        assert not [problem for problem in world.report.problems if "index" in problem]
        assert len(world.values()) == offset
        world.close()
        found = verify_partition(world.disk, world.path)
        assert not [finding for finding in found if finding.severity is Severity.VIOLATION]
        world = world.reopened()


def bytes_read(world: LogWorld, since: int) -> int:
    calls = world.fake.calls[since:]
    return sum(call.length for call in calls if call.kind == "read" and call.path.endswith(".log"))


def one_segment(count: int) -> LogWorld:
    """A hundred kilobytes in each batch, and timestamps that go up and down."""
    world = LogWorld(settings=LogSettings(segment_bytes=32 * MIB))
    for number in range(count):
        world.append(bytes(100_000), timestamp=1_000 + number * 37 % 100)
    world.settle()
    return world


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("offset", [0, 1, 3, 70, 197, 199])
def test_a_truncation_reads_where_it_cuts_and_not_all_of_the_segment(offset, is_sealed):
    world, alone = one_segment(200), one_segment(offset)
    if is_sealed:
        world.log.roll(world.now_ms)
        world.settle()
    before, nbytes = len(world.fake.calls), world.log.segments[0].position
    world.store.truncate(world.partition, offset, now_ms=world.now_ms)
    active, expected = world.log.active, alone.log.active
    saved_bytes = nbytes - active.position
    assert bytes_read(world, before) <= saved_bytes + 7 * MIB
    assert (active.position, active.next_offset) == (expected.position, expected.next_offset)
    assert active.max_timestamp == expected.max_timestamp
    assert len(world.values()) == offset


def test_truncation_outside_of_the_log_is_refused():
    world = filled(3)
    with pytest.raises(OffsetOutOfRange):
        world.store.truncate(world.partition, 4, now_ms=0)


def test_truncation_forgets_later_epochs():
    world = LogWorld()
    world.append(b"a", leader_epoch=1)
    world.append(b"b", leader_epoch=5)
    world.settle()
    world.store.truncate(world.partition, 1, now_ms=0)
    assert world.log.epochs.latest == 1


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


def test_truncation_keeps_a_snapshot_of_what_is_left():
    world = filled()
    world.store.truncate(world.partition, 25, now_ms=world.now_ms)
    after = world.reopened(world.fake.crash(random.Random(1)))
    assert not [problem for problem in after.report.problems if "snapshot" in problem]
    assert after.append(b"x", producer=(6, 0, 24)).repeated


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


def test_a_truncation_below_the_start_within_a_batch_leaves_an_empty_log_that_takes_appends():
    world = LogWorld()
    for _ in range(3):
        world.append(b"a", b"b", b"c", b"d", leader_epoch=1)
        world.settle()
    world.store.move_start(world.partition, 6)
    world.store.truncate(world.partition, 7, now_ms=world.now_ms)
    assert (world.log.log_start_offset, world.log.next_offset) == (4, 4)
    world.append(b"e", leader_epoch=2)
    world.settle()
    after = world.reopened(world.fake.crash(random.Random(1)))
    assert after.values() == [b"e"]


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
