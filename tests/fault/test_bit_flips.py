"""One bit flipped in a segment, an index, a snapshot or the state: no corrupt byte is served, nothing is deleted."""

from __future__ import annotations

import itertools
import random

import pytest

from ringlog.errors import CorruptSegment
from ringlog.log.events import Progress, Quarantined
from tests.support.amounts import cases
from tests.support.fake_disk import FakeDisk
from tests.support.logs import LogWorld

FLIPS = cases(short=160, full=1000)


@pytest.fixture(scope="module")
def closed_log():
    """A log of three segments, cleanly closed, and what its records are."""
    world = LogWorld(FakeDisk(3))
    for number in range(90):
        world.append(
            b"%05d" % number + bytes(random.Random(number).randint(10, 40_000)), producer=(4, 0, number)
        )
        world.settle()
    world.close()
    return world.fake, [b"%05d" % number for number in range(90)]


def damaged(disk: FakeDisk, name: str, rng: random.Random) -> FakeDisk:
    copy = disk.crash(random.Random(0), survival=1.0)
    data = bytearray(copy.content(name))
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    copy.put(name, bytes(data))
    return copy


def served(world: LogWorld, expected: list[bytes]) -> int:
    """Read every offset on its own; whatever is served is right. Returns how many offsets were."""
    count = 0
    for offset in range(world.log.log_start_offset, world.log.readable_offset):
        try:
            record = next(iter(world.records(offset, bytes_max=1)))
        except CorruptSegment:
            continue
        assert record.offset == offset
        assert record.value[:5] == expected[offset]
        assert not record.value[5:].strip(b"\0")
        count += 1
    return count


def files(disk: FakeDisk, suffix: str) -> list[str]:
    found = [f"/data/events-0/{name}" for name, size in disk.list_dir("/data/events-0") if size]
    return [name for name in found if name.endswith(suffix)]


@pytest.mark.parametrize("flip", FLIPS)
def test_a_flipped_bit_in_any_file_serves_no_corrupt_byte_and_deletes_nothing(closed_log, flip):
    disk, expected = closed_log
    rng = random.Random(flip)
    suffix = rng.choice([".log", ".log", ".index", ".timeindex", ".snapshot", ".state"])
    name = rng.choice(files(disk, suffix))
    copy = damaged(disk, name, rng)
    log_bytes = sum(size for name, size in copy.list_dir("/data/events-0") if ".log" in name)
    world = LogWorld(copy, open_now=False)
    world.open()
    world.evict_all()
    count = served(world, expected)
    if suffix != ".log":
        assert count == 90, f"{suffix} is derived: the log is whole without it"
    bounds = [segment.base_offset for segment in world.log.segments] + [90]
    longest = max(after - before for before, after in itertools.pairwise(bounds))
    assert count >= 90 - longest, "one bit costs one segment at the most"
    assert sum(size for name, size in copy.list_dir("/data/events-0") if ".log" in name) >= log_bytes
    offset = world.append(b"%05d" % 90).base_offset
    assert offset == 90, "no offset is given twice"


def test_a_corrupt_sealed_segment_is_refused_reported_and_stays_so_after_a_restart(closed_log):
    disk, _ = closed_log
    first = files(disk, ".log")[0]
    copy = disk.crash(random.Random(0), survival=1.0)
    data = bytearray(copy.content(first))
    data[5000] ^= 1
    copy.put(first, bytes(data))
    world = LogWorld(copy)
    with pytest.raises(CorruptSegment, match="ringlog log dump"):
        list(world.records(0))
    assert any(type(event).__name__ == "Quarantined" for event in world.run())
    world.settle()
    world.close()
    again = LogWorld(copy)
    assert again.log.segments[0].quarantined
    assert copy.content(first) == bytes(data)
    second = again.log.segments[1].base_offset
    assert len(list(again.records(second))) == 90 - second


def test_a_quarantine_survives_a_crash_right_after_it(closed_log):
    disk, _ = closed_log
    first = files(disk, ".log")[0]
    copy = disk.crash(random.Random(0), survival=1.0)
    data = bytearray(copy.content(first))
    data[5000] ^= 1
    copy.put(first, bytes(data))
    world = LogWorld(copy)
    with pytest.raises(CorruptSegment):
        list(world.records(0))
    world.run()
    world.settle()
    after = world.reopened(world.fake.crash(random.Random(1), survival=0.0))
    assert after.log.segments[0].quarantined


def test_a_missing_index_is_rebuilt_byte_for_byte(closed_log):
    disk, expected = closed_log
    copy = disk.crash(random.Random(0), survival=1.0)
    index = files(copy, ".index")[0]
    before = copy.content(index)
    copy.remove(index)
    world = LogWorld(copy)
    assert served(world, expected) == 90
    assert copy.content(index) == before


def test_a_missing_state_costs_a_scan_and_nothing_else(closed_log):
    disk, expected = closed_log
    copy = disk.crash(random.Random(0), survival=1.0)
    copy.remove("/data/events-0/partition.state")
    world = LogWorld(copy)
    assert not world.report.clean
    assert served(world, expected) == 90
    assert world.append(b"x", producer=(4, 0, 89)).repeated, "producers' state was rebuilt from the log"


def test_a_broken_snapshot_is_set_aside_and_the_state_rebuilt(closed_log):
    disk, _ = closed_log
    copy = disk.crash(random.Random(0), survival=1.0)
    for snapshot in files(copy, ".snapshot"):
        copy.put(snapshot, b"nonsense")
    world = LogWorld(copy)
    assert world.append(b"%05d" % 89 + bytes(1), producer=(4, 0, 89)).repeated
    assert files(copy, ".snapshot.bad")


def test_a_missing_sealed_segment_is_told_and_the_others_are_served(closed_log):
    disk, _ = closed_log
    copy = disk.crash(random.Random(0), survival=1.0)
    copy.remove(files(copy, ".log")[0])
    world = LogWorld(copy)
    assert any("is missing" in problem for problem in world.report.problems)
    with pytest.raises(CorruptSegment):
        list(world.records(0))
    second = world.log.segments[1].base_offset
    assert len(list(world.records(second))) == 90 - second


def test_an_active_segment_that_lost_flushed_bytes_does_not_give_its_offsets_again(closed_log):
    disk, _ = closed_log
    copy = disk.crash(random.Random(0), survival=1.0)
    last = files(copy, ".log")[-1]
    copy.put(last, copy.content(last)[:100])
    world = LogWorld(copy)
    assert world.log.next_offset == 90
    assert world.append(b"x", producer=(4, 0, 90)).base_offset == 90


def flip(disk: FakeDisk, path: str, at: int) -> None:
    data = bytearray(disk.content(path))
    data[at] ^= 1
    disk.put(path, bytes(data))


def test_a_corrupt_sealed_segment_is_refused_after_a_crash_too():
    world = LogWorld(FakeDisk(4))
    for number in range(40):
        world.append(b"%05d" % number + bytes(60_000))
        world.settle()
    world.evict_all()
    flip(world.fake, f"{world.path}/{0:020d}.log", at=200_000)
    with pytest.raises(CorruptSegment):
        world.values()
    for _ in range(20):
        world.run()
    after = world.reopened(world.fake.crash(random.Random(1)))
    with pytest.raises(CorruptSegment, match="before"):
        after.values()


@pytest.mark.parametrize("found_by", ["a reader", "the seal"])
def test_corruption_in_a_growing_segment_whose_index_a_crash_took_does_not_stop_appends(found_by):
    world = LogWorld(FakeDisk(4))
    for number in range(10):
        world.append(b"%05d" % number + bytes(60_000))
        world.settle()
    world.store.checkpoint()
    for _ in range(10):
        world.run()
    world = world.reopened(world.fake.crash(random.Random(1)))
    assert world.log.active.index_gap_end
    flip(world.fake, f"{world.path}/{0:020d}.log", at=200_000)
    if found_by == "a reader":
        with pytest.raises(CorruptSegment):
            world.values()
    for number in range(10, 40):
        world.append(b"%05d" % number + bytes(60_000))
        world.settle()
    assert [type(event) for event in world.events if not isinstance(event, Progress)] == [Quarantined]
    assert world.log.flushed_offset == 40
    with pytest.raises(CorruptSegment):
        world.values(0)
