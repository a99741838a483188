"""Retention: old and surplus segments go, the start of the log is durable first, readers are told."""

from __future__ import annotations

import random

import pytest

from ringlog.errors import OffsetOutOfRange
from ringlog.limits import MIB
from ringlog.log.events import StartMoved
from ringlog.log.retention import plan_retention
from ringlog.log.segment import ActiveSegment, SealedSegment
from ringlog.log.settings import LogSettings
from ringlog.log.state import SealedEntry
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults, PowerLoss
from tests.support.logs import LogWorld

KEEP_1000_MS = LogSettings(segment_bytes=1 * MIB, retention_ms=1_000)
KEEP_3_MIB = LogSettings(segment_bytes=1 * MIB, retention_bytes=3 * MIB)


def sealed(base, next_offset, *, nbytes=100, youngest_ms=0, quarantined=False):
    return SealedSegment(SealedEntry(base, next_offset, nbytes, youngest_ms, 0, 0, quarantined))


def active(base, *, nbytes=0, youngest_ms=-1):
    segment = ActiveSegment(base, 0, position=nbytes)
    segment.index.max_timestamp = youngest_ms
    segment.next_offset = base + (1 if nbytes else 0)
    return segment


def fill(world, segments, *, each_ms=0):
    """So many sealed segments of two records each, and one record in the active one."""
    for number in range(2 * segments + 1):
        world.append(bytes([number]) * 500_000)
        world.settle()
        world.now_ms += each_ms


def segment_names(world):
    return [name for name, _ in world.disk.list_dir(world.path) if name.endswith(".log")]


# -- the plan ------------------------------------------------------------------------------------------------


def test_a_segment_goes_when_its_youngest_record_is_too_old():
    segments = [sealed(0, 10, youngest_ms=100), sealed(10, 20, youngest_ms=200), active(20)]
    assert plan_retention(segments, 0, LogSettings(retention_ms=50), 150).start_offset == 0
    assert plan_retention(segments, 0, LogSettings(retention_ms=50), 151).start_offset == 10
    assert plan_retention(segments, 0, LogSettings(retention_ms=50), 251).start_offset == 20


def test_a_young_segment_keeps_the_old_ones_behind_it():
    segments = [sealed(0, 10, youngest_ms=900), sealed(10, 20, youngest_ms=1), active(20)]
    assert plan_retention(segments, 0, LogSettings(retention_ms=50), 500).start_offset == 0


def test_only_what_is_wholly_beyond_the_size_goes():
    segments = [sealed(0, 10), sealed(10, 20), active(20, nbytes=50)]
    assert plan_retention(segments, 0, LogSettings(retention_bytes=151), 0).start_offset == 0
    assert plan_retention(segments, 0, LogSettings(retention_bytes=150), 0).start_offset == 10
    assert plan_retention(segments, 0, LogSettings(retention_bytes=0), 0).start_offset == 20


def test_records_deleted_before_do_not_count_as_size():
    segments = [sealed(0, 10), sealed(10, 20), active(20)]
    assert plan_retention(segments, 10, LogSettings(retention_bytes=100), 0).start_offset == 10


def test_without_a_bound_nothing_goes():
    segments = [sealed(0, 10), active(10)]
    assert plan_retention(segments, 0, LogSettings(), 10**15) == (0, False)


def test_an_active_segment_is_closed_when_all_of_it_is_too_old_and_nothing_is_before_it():
    old = active(10, nbytes=5, youngest_ms=7)
    settings = LogSettings(retention_ms=50)
    assert plan_retention([sealed(0, 10, youngest_ms=7), old], 0, settings, 100) == (10, True)
    assert plan_retention([sealed(0, 10, youngest_ms=90), old], 0, settings, 100) == (0, False)
    assert plan_retention([active(10)], 10, settings, 10**9) == (10, False)


@pytest.mark.parametrize("unknown", [{"quarantined": True, "youngest_ms": 1}, {"youngest_ms": -1}])
def test_a_segment_whose_times_are_not_known_is_as_young_as_the_next_one(unknown):
    segments = [sealed(0, 10, **unknown), sealed(10, 20, youngest_ms=100), active(20)]
    settings = LogSettings(retention_ms=50)
    assert plan_retention(segments, 0, settings, 120).start_offset == 0
    assert plan_retention(segments, 0, settings, 151).start_offset == 20


# -- a log ---------------------------------------------------------------------------------------------------


def test_old_segments_are_deleted_and_readers_below_are_told_the_new_start():
    world = LogWorld(settings=KEEP_1000_MS)
    fill(world, 3, each_ms=400)
    world.settle()
    start = world.log.log_start_offset
    assert 0 < start < world.log.next_offset
    assert segment_names(world)[0].startswith(f"{start:020d}")
    with pytest.raises(OffsetOutOfRange, match=rf"\[{start}, "):
        world.store.read_now(world.partition, start - 1, 100)
    assert [record.offset for record in world.records()] == list(range(start, world.log.next_offset))


def test_a_log_stays_below_its_size_by_whole_segments():
    world = LogWorld(settings=KEEP_3_MIB)
    fill(world, 8, each_ms=1_000)
    world.settle()
    assert 3 * MIB <= world.log.log_bytes < 4 * MIB
    assert len(segment_names(world)) == len(world.log.segments)


def test_an_idle_log_becomes_empty_when_all_its_records_are_too_old():
    world = LogWorld(settings=KEEP_1000_MS)
    fill(world, 1)
    end = world.log.next_offset
    for _ in range(3):
        world.now_ms += 2_000
        world.settle()
    assert (world.log.log_start_offset, world.log.log_bytes) == (end, 0)
    again = world.reopened()
    assert (again.log.log_start_offset, again.log.next_offset) == (end, end)
    again.append(b"next")
    again.settle()
    assert [(record.offset, record.value) for record in again.records()] == [(end, b"next")]


def test_a_clock_that_stands_still_deletes_nothing():
    world = LogWorld(settings=KEEP_1000_MS)
    fill(world, 4)
    assert world.log.log_start_offset == 0


def test_no_file_is_deleted_before_the_start_is_durable():
    world = LogWorld(settings=KEEP_1000_MS)
    fill(world, 3)
    before = segment_names(world)
    world.fake.hold_all("write", "partition.state")
    world.now_ms += 2_000
    for _ in range(20):
        world.run()
    assert world.log.log_start_offset > 0
    assert segment_names(world)[: len(before)] == before
    assert not any(isinstance(event, StartMoved) for event in world.events)
    world.fake.release_all()
    world.settle()
    moved = [event.offset for event in world.events if isinstance(event, StartMoved)]
    assert moved and moved[0] > 0
    assert len(segment_names(world)) < len(before)


def test_a_start_becomes_durable_under_steady_load_also_when_it_was_moved_in_a_quiet_moment():
    world = LogWorld(settings=LogSettings(segment_bytes=64 * MIB))
    world.append(b"first")
    world.append(b"second")
    world.settle()
    assert world.log.idle
    world.store.move_start(world.partition, 1)
    for _ in range(50):
        world.append(b"no tick finds the log idle")
        world.store.push(world.now_ms)
        world.run()
    assert [event.offset for event in world.events if isinstance(event, StartMoved)] == [1]


def test_a_read_under_way_on_a_deleted_segment_ends_well():
    world = LogWorld(settings=KEEP_1000_MS)
    fill(world, 3)
    world.evict_all()
    world.fake.hold_all("read", "00000000000000000000.log")
    read = []
    world.store.read(world.partition, 0, 100, done=read.append, failed=read.append)
    world.now_ms += 2_000
    for _ in range(30):
        world.run()
    assert world.store.logs[world.partition].durable_start_offset > 0
    assert segment_names(world)[0] == "00000000000000000000.log"
    world.fake.release_all()
    for _ in range(10):
        world.run()
    (slices,) = read
    assert slices.next_offset == 1
    slices.release()
    world.settle()
    assert segment_names(world)[0] != "00000000000000000000.log"


def test_a_search_by_time_goes_on_while_segments_are_deleted_before_it():
    world = LogWorld(settings=KEEP_1000_MS)
    fill(world, 3)
    world.evict_all()
    world.now_ms += 2_000
    world.append(b"young")
    found = []
    world.fake.hold_all("read")
    world.store.search(
        world.partition, lambda reader: reader.find_time(0), done=found.append, failed=found.append
    )
    for _ in range(30):
        world.run()
    world.fake.release_all()
    for _ in range(60):
        world.run()
    assert found[0] is None or found[0].offset >= 0
    assert len(found) == 1


def test_power_loss_at_every_step_of_a_deletion_leaves_a_log_that_begins_before_or_after_it():
    def world_with_old_segments():
        world = LogWorld(FakeDisk(3), KEEP_1000_MS)
        fill(world, 3)
        world.now_ms += 2_000
        return world

    world = world_with_old_segments()
    begun, end = world.fake.steps, world.log.next_offset
    world.settle()
    for at in range(begun, world.fake.steps):
        world = world_with_old_segments()
        world.fake.faults = Faults(power_loss_at_step=at)
        with pytest.raises(PowerLoss):
            world.settle()
        durable = max([event.offset for event in world.events if isinstance(event, StartMoved)], default=0)
        after = world.reopened(world.fake.crash(random.Random(at)))
        assert not any(segment.quarantined for segment in after.log.segments), after.report
        assert durable <= after.log.log_start_offset <= after.log.next_offset == end
        assert [record.offset for record in after.records()] == list(range(after.log.log_start_offset, end))
        after.settle()
        # What the crash left of deleted segments is gone, too.
        first = after.log.segments[0].base_offset
        assert all(int(name[:20]) >= first for name in segment_names(after))


def test_files_that_cannot_be_deleted_are_left_for_the_next_opening():
    world = LogWorld(settings=KEEP_1000_MS)
    fill(world, 3)
    removals = sum(call.kind == "remove" for call in world.fake.calls)
    for nth in range(removals, removals + 20):
        world.fake.faults.fail("remove", nth=nth)
    world.now_ms += 2_000
    world.settle()
    assert world.log.status.value == "open"
    world.fake.faults = Faults()
    world.close()
    again = world.reopened()
    again.settle()
    assert len(segment_names(again)) == 1 or again.log.log_start_offset > 0
    assert all(int(name[:20]) >= again.log.segments[0].base_offset for name in segment_names(again))


def test_old_segments_go_in_order_so_that_a_crash_leaves_no_hole_without_the_state():
    world = LogWorld(FakeDisk(seed=4), LogSettings(segment_bytes=1 * MIB, retention_ms=None))
    fill(world, segments=5)
    oldest = world.log.segments[0]
    assert isinstance(oldest, SealedSegment)
    with oldest.leases:  # somebody reads it
        world.store.move_start(world.partition, 8)
        world.settle()
        assert world.log.durable_start_offset == 8
        assert len(segment_names(world)) == 6, "none of the younger ones goes before it"
    removed: list[str] = []
    remove = world.disk.remove
    world.disk.remove = lambda path: (removed.append(path.rpartition("/")[2]), remove(path))[1]
    world.settle()
    assert [name for name in removed if name.endswith(".log")] == [f"{base:020}.log" for base in (0, 2, 4, 6)]
    assert len(segment_names(world)) == 2


# -- all of a log -----------------------------------------------------------------------------------------------


def world_to_empty(disk=None):
    """Two sealed segments and one record in the active one, all of a producer, flushed."""
    world = LogWorld(disk or FakeDisk(3), LogSettings(segment_bytes=1 * MIB))
    for number in range(5):
        world.append(bytes([number]) * 500_000, producer=(7, 0, number))
        world.settle()
    return world


def test_a_log_that_begins_at_its_end_keeps_no_records_on_disk():
    world = world_to_empty()
    end = world.log.next_offset
    world.store.move_start(world.partition, end)
    world.settle()
    assert (world.log.durable_start_offset, world.log.next_offset) == (end, end)
    assert segment_names(world) == [f"{end:020}.log"]
    assert sum(size for name, size in world.disk.list_dir(world.path) if name.endswith(".log")) == 0
    world.append(b"next", producer=(7, 0, 5))
    world.settle()
    assert [(record.offset, record.value) for record in world.records()] == [(end, b"next")]


def test_power_loss_at_every_step_of_deleting_everything_keeps_offsets_and_producers():
    world = world_to_empty()
    begun, end = world.fake.steps, world.log.next_offset
    world.store.move_start(world.partition, end)
    world.settle()
    for at in range(begun, world.fake.steps):
        world = world_to_empty()
        world.fake.faults = Faults(power_loss_at_step=at)
        with pytest.raises(PowerLoss):
            world.store.move_start(world.partition, end)
            world.settle()
        durable = max([event.offset for event in world.events if isinstance(event, StartMoved)], default=0)
        after = world.reopened(world.fake.crash(random.Random(at)))
        assert after.log.log_start_offset in ({end} if durable else {0, end})
        assert after.log.next_offset == end
        assert len(after.values()) == end - after.log.log_start_offset
        assert after.append(bytes([4]) * 500_000, producer=(7, 0, 4)).repeated, "its producer is known"
        assert after.append(b"next", producer=(7, 0, 5)).base_offset == end
        after.settle()
        if after.log.log_start_offset == end:
            assert after.values() == [b"next"]


def test_what_a_crash_left_of_an_emptied_log_goes_too():
    world = world_to_empty()
    end = world.log.next_offset
    world.log.log_start_offset = end  # as a state of a version says that did not roll
    world.store.checkpoint()
    world.now_ms += 2_000
    world.settle()
    assert segment_names(world) == [f"{end:020}.log"]


def test_everything_can_be_deleted_where_the_disk_has_room_for_the_state_alone():
    world = world_to_empty()
    end = world.log.next_offset
    used = sum(size for _, size in world.disk.list_dir(world.path))
    world.fake.faults = Faults(space_bytes=used + 4096)
    world.store.move_start(world.partition, end)
    world.settle()
    assert world.log.durable_start_offset == end
    assert segment_names(world) == [f"{end:020}.log"]


def test_for_what_is_deleted_no_indexes_are_written():
    world = world_to_empty()
    begun = len(world.fake.calls)
    world.store.move_start(world.partition, world.log.next_offset)
    world.settle()
    written = [call.path for call in world.fake.calls[begun:] if call.kind == "write"]
    assert written and not [path for path in written if path.endswith("index")]


def test_producers_of_what_was_deleted_are_known_also_after_a_cut():
    """Of batches they are not to be learned any more: only a snapshot knows them."""
    world = world_to_empty()
    end = world.log.next_offset
    world.store.move_start(world.partition, end)
    world.settle()
    for number in range(4):
        world.append(b"%d" % number, producer=(8, 0, number))
        world.log.roll(world.now_ms)
        world.settle()
    world.store.truncate(world.partition, end + 1, now_ms=world.now_ms)
    assert world.append(bytes([4]) * 500_000, producer=(7, 0, 4)).repeated
    assert world.append(b"0", producer=(8, 0, 0)).repeated
    assert not world.append(b"1", producer=(8, 0, 1)).repeated


def test_a_cut_knows_no_producer_as_it_was_before_what_was_deleted_later():
    """Its next batch would be refused: better it is unknown."""
    world = world_to_empty()
    world.store.move_start(world.partition, world.log.next_offset)
    world.settle()
    for number in range(5):
        producer = (7, 0, 5) if number == 0 else (8, 0, number)
        world.append(b"%d" % number, producer=producer)
        world.log.roll(world.now_ms)
        world.settle()
    world.store.move_start(world.partition, 6)
    world.settle()
    world.store.truncate(world.partition, 7, now_ms=world.now_ms)
    assert not world.append(b"goes on", producer=(7, 0, 6)).repeated


def test_records_that_came_after_the_deleted_ones_stay():
    world = world_to_empty()
    world.append(b"young")
    world.store.move_start(world.partition, 5)
    world.settle()
    assert world.values() == [b"young"]
