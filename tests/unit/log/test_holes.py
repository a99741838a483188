"""A log with a hole: it knows where that begins, and can be cut back to it without losing a file that it had."""

from __future__ import annotations

import random
from itertools import count

import pytest

from ringlog.errors import CorruptSegment, DiskFull
from ringlog.limits import MIB, ROTTEN_SEGMENTS_KEPT, SEGMENT_BYTES_MIN
from ringlog.log.epochs import EpochStart
from ringlog.log.events import Quarantined
from ringlog.log.names import LOG, offset_name
from ringlog.log.partition import LogStatus
from ringlog.log.removal import DELETED_AT_ONCE_MAX
from ringlog.log.settings import LogSettings
from ringlog.log.verify import verify_partition
from tests.support.fake_disk_faults import PowerLoss
from tests.support.logs import LogWorld


def world_of(segments: int = 5, **settings: object) -> LogWorld:
    """A log of some sealed segments of four batches each, and an active one. Of the smallest size: ahead of a log that
    grows in segments of 1 GiB much is reserved, and a fake disk has all that in memory."""
    world = LogWorld(settings=LogSettings(segment_bytes=SEGMENT_BYTES_MIN, **settings))  # type: ignore[arg-type]
    for number in range(4 * segments + 1):
        if number and number % 4 == 0:
            world.log.roll(world.now_ms)
        world.append(b"%06d" % number, producer=(7, 0, number), leader_epoch=number // 3)
        world.settle()
    assert [s.base_offset for s in world.log.segments] == [4 * at for at in range(segments + 1)]
    world.evict_all()
    return world


def path_of(world: LogWorld, base_offset: int) -> str:
    return f"{world.path}/{offset_name(base_offset, LOG)}"


def rot(world: LogWorld, base_offset: int, at: int = 100) -> None:
    path = path_of(world, base_offset)
    content = bytearray(world.fake.content(path))
    content[at] ^= 1
    world.fake.put(path, bytes(content))


def names(world: LogWorld, *suffixes: str) -> list[str]:
    found = [name for name, _ in world.disk.list_dir(world.path)]
    return sorted(name.lstrip("0") for name in found if name.endswith(suffixes))


def cut(world: LogWorld) -> None:
    offset = world.log.hole_offset
    assert offset is not None
    world.store.truncate(world.partition, offset, now_ms=world.now_ms)


def read_rotten(world: LogWorld, offset: int) -> None:
    with pytest.raises(CorruptSegment):
        world.store.read_now(world.partition, offset, MIB)


def test_a_log_that_has_all_has_no_hole_also_when_it_was_deleted_from():
    world = world_of()
    assert world.log.hole_offset is None
    world.store.move_start(world.partition, 9)
    world.settle()
    assert world.log.hole_offset is None


def test_a_hole_begins_where_a_segment_does_that_a_reader_found_rotten():
    world = world_of()
    rot(world, 8)
    assert world.log.hole_offset is None, "nobody has seen it"
    read_rotten(world, 9)
    assert world.log.hole_offset == 8
    assert any(isinstance(event, Quarantined) for event in world.settle())
    world.close()
    assert world.reopened().log.hole_offset == 8


@pytest.mark.parametrize("indexes_too", [True, False])
def test_a_file_that_is_gone_while_its_log_is_open_is_a_hole(indexes_too):
    world = world_of()
    world.log.files.close()
    for name, _ in world.disk.list_dir(world.path):
        if name.startswith(offset_name(8, "")) and (indexes_too or name.endswith(LOG)):
            world.disk.remove(f"{world.path}/{name}")
    read_rotten(world, 9)
    assert world.log.hole_offset == 8


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_file_that_is_missing_when_its_log_is_opened_is_a_hole(is_clean):
    world = world_of()
    if is_clean:
        world.close()
    world.disk.remove(path_of(world, 4))
    after = world.reopened(world.fake.after_death(1))
    assert (after.log.hole_offset, after.log.next_offset) == (4, 21)


def test_a_missing_file_keeps_no_log_from_being_opened_when_producers_must_be_replayed():
    world = world_of()
    world.close()
    for name, _ in world.disk.list_dir(world.path):
        if name.endswith(".snapshot"):
            world.disk.remove(f"{world.path}/{name}")
    world.disk.remove(path_of(world, 4))
    assert world.reopened().log.hole_offset == 4


def test_a_hole_below_the_start_is_none_and_one_across_it_begins_there():
    world = world_of()
    for base in (4, 12):
        rot(world, base)
        read_rotten(world, base)
    world.store.move_start(world.partition, 6)
    assert world.log.hole_offset == 6
    world.store.move_start(world.partition, 8)
    assert world.log.hole_offset == 12
    world.store.move_start(world.partition, 16)
    assert world.log.hole_offset is None


def test_cut_to_its_hole_it_is_whole_and_no_file_is_lost():
    world = world_of()
    behind = [world.fake.content(path_of(world, base)) for base in (12, 16, 20)]
    rot(world, 8)
    rotten = world.fake.content(path_of(world, 8))
    read_rotten(world, 8)
    cut(world)
    log = world.log
    assert (log.hole_offset, log.next_offset, log.drop_spares is None) == (None, 8, False)
    assert log.epochs.starts == (EpochStart(0, 0), EpochStart(1, 3), EpochStart(2, 6))
    assert names(world, ".bad", ".spare", ".cut") == [
        "12.log.spare",
        "16.log.spare",
        "20.log.bad",
        "8.log.bad",
    ]
    set_aside = ["0" * 18 + "12.log.spare", "0" * 18 + "16.log.spare", "0" * 18 + "20.log.bad"]
    assert [world.fake.content(f"{world.path}/{name}") for name in set_aside] == behind
    assert world.fake.content(f"{path_of(world, 8)}.bad") == rotten
    assert [record.offset for record in world.records()] == list(range(8))
    world.append(b"again", producer=(7, 0, 8), leader_epoch=9)
    world.settle()
    assert world.log.next_offset == 9, "the producers are as they were there"
    world.close()
    after = world.reopened()
    assert (after.log.next_offset, after.log.drop_spares is None) == (9, False)
    after.close()
    assert not [one for one in verify_partition(world.disk, world.path) if one.is_violation]


def test_a_hole_at_the_start_leaves_an_empty_log():
    world = world_of()
    world.close()
    world.disk.remove(path_of(world, 0))
    after = world.reopened()
    cut(after)
    assert (after.log.log_start_offset, after.log.next_offset, after.log.epochs.latest) == (0, 0, -1)


def test_a_hole_across_the_start_leaves_an_empty_log_that_begins_there():
    world = world_of()
    rot(world, 4)
    read_rotten(world, 5)
    world.store.move_start(world.partition, 6)
    world.settle()
    cut(world)
    assert (world.log.log_start_offset, world.log.next_offset) == (6, 6)
    world.append(b"on", leader_epoch=9)
    world.settle()
    world.close()
    after = world.reopened()
    assert (after.log.log_start_offset, after.log.next_offset) == (6, 7)
    after.close()
    assert not [one for one in verify_partition(world.disk, world.path) if one.is_violation]


def test_where_a_disk_has_no_room_for_both_nothing_is_cut_until_it_has(monkeypatch):
    world = world_of()
    rot(world, 8)
    read_rotten(world, 8)
    before = names(world, ".log")
    with monkeypatch.context() as full:
        full.setattr(world.store.space, "has_room_for", lambda nbytes: nbytes < 200)
        with pytest.raises(DiskFull, match=r"Free [0-9]+ bytes"):
            cut(world)
    assert (names(world, ".log"), world.log.hole_offset, world.log.status) == (before, 8, LogStatus.OPEN)
    cut(world)
    assert world.log.next_offset == 8


def test_spares_go_when_they_are_not_needed_any_more_and_of_rotten_files_few_are_kept():
    world = world_of()
    for base in (16, 12, 8, 4):
        rot(world, base)
        read_rotten(world, base)
        cut(world)
    assert len(names(world, ".bad")) == 5 and names(world, ".spare") == []
    assert world.log.drop_spares is not None
    world.log.drop_spares()
    world.settle()
    assert len(names(world, ".bad")) == ROTTEN_SEGMENTS_KEPT == 4
    assert world.log.drop_spares is None


def test_spares_are_deleted_when_the_records_are_there_again():
    world = world_of()
    rot(world, 4)
    read_rotten(world, 4)
    cut(world)
    assert names(world, ".spare") == ["12.log.spare", "16.log.spare", "8.log.spare"]
    assert world.log.drop_spares is not None
    world.log.drop_spares()
    world.settle()
    assert names(world, ".spare", ".bad") == ["20.log.bad", "4.log.bad"]


def removed_spares(world: LogWorld) -> int:
    return sum(call.kind == "remove" and call.path.endswith(".spare") for call in world.fake.calls)


def with_many_spares() -> LogWorld:
    """A log that has 70 files to delete."""
    world = world_of()
    rot(world, 4)
    read_rotten(world, 4)
    cut(world)
    for at in range(70 - len(names(world, ".spare"))):
        world.fake.put(f"{path_of(world, 100 + at)}.spare", b"good")
    return world.reopened(world.fake.after_death(1))


def test_spares_are_deleted_a_bounded_number_at_a_time_and_chores_that_came_later_go_in_between():
    world = with_many_spares()
    world.fake.hold_all("flush_dir")
    world.log.drop_spares()
    assert removed_spares(world) == DELETED_AT_ONCE_MAX == 32, "then others have their turn"
    world.store.checkpoint()
    world.run()
    world.fake.release_all()
    left_at_checkpoint = None
    while world.log.drop_spares is None and names(world, ".spare"):
        calls = len(world.fake.calls)
        world.run()
        if left_at_checkpoint is None and any("partition." in c.path for c in world.fake.calls[calls:]):
            left_at_checkpoint = len(names(world, ".spare"))
    assert left_at_checkpoint, "the checkpoint did not wait for all of them"
    world.settle()
    assert removed_spares(world) == 70


def test_a_log_that_is_left_meanwhile_keeps_the_other_spares_and_deletes_them_when_it_is_opened_again():
    world = with_many_spares()
    world.fake.hold_all("flush_dir")
    world.log.drop_spares()
    world.fake.release_all()
    world.store.reopen(world.partition, now_ms=world.now_ms)
    assert len(names(world, ".spare")) == 70 - DELETED_AT_ONCE_MAX
    assert world.log.drop_spares is not None
    world.log.drop_spares()
    world.settle()
    assert names(world, ".spare") == []


def test_a_truncation_into_a_segment_in_quarantine_is_refused_and_fences_nothing():
    world = world_of()
    world.close()
    world.disk.remove(path_of(world, 16))
    after = world.reopened()
    with pytest.raises(CorruptSegment, match="quarantine"):
        after.store.truncate(after.partition, 18, now_ms=0)
    after.append(b"goes on", leader_epoch=9)
    after.settle()
    assert after.log.next_offset == 22


@pytest.mark.parametrize("settings", [{}, {"compact": True, "gaps_at_append": True}])
def test_a_crash_at_any_moment_of_the_cut_leaves_the_hole_or_the_whole_part_never_a_log_that_hides_it(
    settings,
):
    """Also where offsets may have gaps: a missing file must not be taken for one."""
    outcomes = set()
    for moment in count():
        if "all of it" in outcomes:
            break
        world = world_of(**settings)
        rot(world, 8)
        read_rotten(world, 8)
        world.settle()
        world.fake.faults.power_loss_at_step = world.fake.steps + moment
        try:
            cut(world)
            outcomes.add("all of it")
        except PowerLoss:
            outcomes.add("some of it")
        after = world.reopened(world.fake.crash(random.Random(moment)))
        hole, end = after.log.hole_offset, after.log.next_offset
        assert hole == 8 or (hole is None and end == 8), f"at {moment}: hole {hole}, end {end}"
        outcomes.add("hole" if hole == 8 else "whole")
        with after.store.read_now(after.partition, 0, MIB) as slices:
            assert slices.next_offset == 4
        with after.store.read_now(after.partition, 4, MIB) as slices:
            assert slices.next_offset == 8
    assert outcomes == {"all of it", "some of it", "hole", "whole"}


def forget_snapshots(world: LogWorld) -> None:
    """What is known of producers is in the batches alone."""
    for name, _ in world.disk.list_dir(world.path):
        if name.endswith(".snapshot"):
            world.disk.remove(f"{world.path}/{name}")


def with_two_producers() -> LogWorld:
    """Producer 9 wrote once, the sixth of 21 batches; producer 7 all the others."""
    world = LogWorld(settings=LogSettings(segment_bytes=SEGMENT_BYTES_MIN))
    for number in range(21):
        if number and number % 4 == 0:
            world.log.roll(world.now_ms)
        world.append(b"%06d" % number, producer=(9, 0, 0) if number == 5 else (7, 0, number - (number > 5)))
        world.settle()
    world.evict_all()
    return world


@pytest.mark.parametrize("shortened", [False, True])
def test_a_cut_whose_producers_cannot_be_read_finds_the_hole_instead(shortened):
    """Else producer 9 would be unknown, and its batch be taken a second time."""
    world = with_two_producers()
    forget_snapshots(world)
    if shortened:
        world.log.files.close()
        world.fake.put(path_of(world, 4), b"")
    else:
        rot(world, 4)
    with pytest.raises(CorruptSegment):
        world.store.truncate(world.partition, 18, now_ms=world.now_ms)
    assert (world.log.hole_offset, world.log.next_offset, world.log.status) == (4, 21, LogStatus.OPEN)
    assert any(isinstance(event, Quarantined) for event in world.settle())
    cut(world)
    assert world.log.next_offset == 4
    assert world.append(b"%06d" % 3, producer=(7, 0, 3), leader_epoch=9).repeated


@pytest.mark.parametrize("base_offset", [12, 8], ids=["in another segment", "in the one that is cut"])
def test_rot_behind_a_cut_is_no_hole(base_offset):
    world = with_two_producers()
    forget_snapshots(world)
    rot(world, base_offset, at=world.log.segment_of(base_offset).position - 1)
    world.store.truncate(world.partition, 10, now_ms=world.now_ms)
    assert (world.log.hole_offset, world.log.next_offset) == (None, 10)
    assert world.append(b"%06d" % 5, producer=(9, 0, 0)).repeated


def test_a_cut_into_a_segment_that_is_rotten_below_it_finds_the_hole_instead():
    world = with_two_producers()
    world.log.segments[1].offsets = world.log.segments[1].times = None  # type: ignore[union-attr]
    rot(world, 4)
    with pytest.raises(CorruptSegment, match="cannot truncate to 7"):
        world.store.truncate(world.partition, 7, now_ms=world.now_ms)
    assert world.log.hole_offset == 4
    cut(world)
    assert world.log.next_offset == 4


@pytest.mark.parametrize(("base_offset", "is_clean"), [(4, True), (4, False), (20, True)])
def test_a_log_whose_producers_cannot_be_read_is_opened_with_the_hole(is_clean, base_offset):
    """Also in the active segment, below the recovery point: what comes next goes to another one."""
    world = with_two_producers()
    if is_clean:
        world.close()
    forget_snapshots(world)
    rot(world, base_offset, at=70)
    after = world.reopened(world.fake.after_death(1))
    assert (after.log.hole_offset, after.log.next_offset) == (base_offset, 21)
    assert any(isinstance(event, Quarantined) for event in after.settle())
    after.append(b"goes on", producer=(8, 0, 0))
    after.settle()
    again = after.reopened(after.fake.after_death(2))
    assert (again.log.hole_offset, again.log.next_offset) == (base_offset, 22)
