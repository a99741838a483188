"""Promises of truncation: exactly what is below remains, and nobody else waits for it."""

from __future__ import annotations

import random

import pytest

from ringlog.errors import OffsetOutOfRange
from ringlog.limits import KIB, MIB
from ringlog.log.batch import batch_infos
from ringlog.log.events import Progress
from ringlog.log.settings import LogSettings
from ringlog.log.verify import Severity, verify_partition
from ringlog.model import Durability, TopicPartition
from ringlog.records.scan import check
from tests.support.fake_disk import FakeDisk
from tests.support.logs import LogWorld, batch_of, filled


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


def test_truncation_keeps_a_snapshot_of_what_is_left():
    world = filled()
    world.store.truncate(world.partition, 25, now_ms=world.now_ms)
    after = world.reopened(world.fake.crash(random.Random(1)))
    assert not [problem for problem in after.report.problems if "snapshot" in problem]
    assert after.append(b"x", producer=(6, 0, 24)).repeated


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
