"""The producers' state where a log is to be cut is made ahead of the cut, in the background."""

from __future__ import annotations

import random
from itertools import count

import pytest

from ringlog.limits import MIB, SEGMENT_BYTES_MIN
from ringlog.log import cut_ahead, producer_replay
from ringlog.log.batch import batch_infos
from ringlog.log.events import Progress
from ringlog.log.names import LOG, SNAPSHOT, offset_name
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.log.verify import verify_partition
from ringlog.model import TopicPartition
from ringlog.records.encode import encode
from ringlog.records.scan import check
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import PowerLoss
from tests.support.logs import LogWorld, batch_of

CUT = 8
"""Where logs are cut here: two segments are below, and no snapshot."""


@pytest.fixture(autouse=True)
def _nothing_is_read_at_once(monkeypatch):
    monkeypatch.setattr(cut_ahead, "AT_ONCE_BYTES", 0)


def filled(disk: FakeDisk | None = None, **settings: object) -> LogWorld:
    """Sealed segments of four batches each, and an active one, by two producers."""
    settings = {"segment_bytes": SEGMENT_BYTES_MIN, **settings}
    world = LogWorld(disk, settings=LogSettings(**settings))  # type: ignore[arg-type]
    for number in range(21):
        if number and number % 4 == 0:
            world.log.roll(world.now_ms)
        world.append(b"%06d" % number, producer=(7 + number % 2, 0, number // 2))
        world.settle()
    world.evict_all()
    return world


def prepare(world: LogWorld, offset: int = CUT) -> bool:
    return world.store.prepare_cut(world.partition, offset, now_ms=world.now_ms)


def prepared(world: LogWorld, offset: int = CUT) -> None:
    assert not prepare(world, offset)
    for _ in range(200):
        world.run()
        if prepare(world, offset):
            return
    raise AssertionError("it does not end")


def has_snapshot(world: LogWorld, offset: int = CUT) -> bool:
    return world.disk.exists(f"{world.path}/{offset_name(offset, SNAPSHOT)}")


def must_know_the_producers(world: LogWorld) -> None:
    """They are as they were at the cut."""
    assert world.log.next_offset == CUT
    assert world.append(b"%06d" % 6, producer=(7, 0, 3)).repeated
    assert not world.append(b"another", producer=(7, 0, 4)).repeated
    assert not world.append(b"another", producer=(8, 0, 4)).repeated
    world.settle()


def test_a_cut_that_was_prepared_replays_nothing(monkeypatch):
    world = filled()
    prepared(world)
    monkeypatch.setattr(producer_replay, "scan_file", lambda *_, **__: pytest.fail("the log is read again"))
    world.store.truncate(world.partition, CUT, now_ms=world.now_ms)
    must_know_the_producers(world)


def test_it_is_as_without_preparation():
    plain, ahead = filled(), filled()
    prepared(ahead)
    for world in (plain, ahead):
        world.store.truncate(world.partition, CUT, now_ms=world.now_ms)
    assert plain.log.producers.encode(CUT) == ahead.log.producers.encode(CUT)
    assert plain.values() == ahead.values()
    ahead.close()
    assert not [one for one in verify_partition(ahead.disk, ahead.path) if one.is_violation]


def test_no_snapshot_is_taken_within_a_batch():
    """A log that is not cut in the end would go on from there without that batch, and take it again."""
    world = filled()
    world.append(*[b"of one batch"] * 6, producer=(9, 0, 0))
    world.append(b"behind", producer=(9, 0, 6))
    world.settle()
    prepared(world, 24)
    assert not has_snapshot(world, 24)
    world.store.truncate(world.partition, 24, now_ms=world.now_ms)
    assert world.log.next_offset == 21
    assert not world.append(b"again", producer=(9, 0, 0)).repeated
    world.close()
    assert not [one for one in verify_partition(world.disk, world.path) if one.is_violation]


def test_no_snapshot_knows_batches_that_a_power_loss_takes_away():
    for seed in range(20):
        world = filled(FakeDisk(seed=seed), flush=FlushPolicy.parse("os"))
        for number in range(6):
            world.append(b"x" * 5_000, producer=(9, 0, number))
            for _ in range(6):
                world.run()
        assert world.log.flushed_offset < 24 < world.log.written_offset
        prepared(world, 24)
        after = world.reopened(world.fake.crash(random.Random(seed)))
        assert after.log.next_offset >= 24 or not has_snapshot(after, 24)


def test_a_snapshot_that_nobody_used_is_pruned():
    world = filled()
    for offset in range(5, 10):
        prepared(world, offset)
    for number in range(10):
        world.log.roll(world.now_ms)
        world.append(b"%06d" % number, producer=(9, 0, number))
        world.settle()
    assert sum(name.endswith(SNAPSHOT) for name, _ in world.disk.list_dir(world.path)) <= 3


def test_a_cut_in_a_gap_of_compaction_knows_nothing_from_behind_it():
    world = LogWorld(settings=LogSettings(segment_bytes=SEGMENT_BYTES_MIN, compact=True, dirty_ratio_min=0.0))
    world.store.upkeep.budget.bytes_per_s = None
    for number in range(14):
        key, producer = (b"stays", (9, 0)) if number == 0 else (b"same", (7, number - 1))
        fields = {"producer_id": producer[0], "producer_epoch": 0, "base_sequence": producer[1]}
        world.append_raw(bytearray(encode([b"v"], [key], timestamps=world.now_ms, **fields)))
        if number in (5, 9, 13):
            world.log.roll(world.now_ms)
            world.settle()  # which takes a snapshot
    world.store.upkeep.check_now()
    for _ in range(300):
        world.now_ms += 20
        world.run()
    world.settle()
    world.store.truncate(world.partition, 12, now_ms=world.now_ms)
    end = world.log.next_offset
    assert end < 12, "what was compacted away is a gap"
    known = [batch.base_offset for entry in world.log.producers.entries for batch in entry.batches]
    assert max(known) < end
    world.close()
    assert not [one for one in verify_partition(world.disk, world.path) if one.is_violation]


def test_what_is_read_soon_or_has_no_producers_needs_no_preparation(monkeypatch):
    monkeypatch.setattr(cut_ahead, "AT_ONCE_BYTES", MIB)
    assert prepare(filled())
    monkeypatch.setattr(cut_ahead, "AT_ONCE_BYTES", 0)
    world = LogWorld()
    world.append(b"of nobody")
    world.settle()
    assert prepare(world, 1)


def test_others_go_on_meanwhile():
    world, other = filled(), TopicPartition("other", 0)
    world.store.open(other, now_ms=0)
    world.fake.hold_all("read", str(world.partition))
    assert not prepare(world)
    data = batch_of(b"b")
    world.store.append(other, memoryview(data), batch_infos(check(data)), now_ms=world.now_ms)
    for _ in range(10):
        world.run()
    assert (other, 1) in [(e.log.name, e.offset) for e in world.events if isinstance(e, Progress)]
    assert not prepare(world) and not has_snapshot(world)
    world.fake.release_all()
    while not prepare(world):
        world.run()
    assert has_snapshot(world)


def test_a_segment_that_was_not_read_to_its_end_because_nobody_wants_it_any_more_is_whole():
    world = LogWorld(settings=LogSettings(segment_bytes=16 * MIB))
    for number in range(6):
        world.append(bytes(900_000), producer=(7, 0, number))
        world.settle()
    world.evict_all()
    world.fake.hold_all("read", str(world.partition))
    assert not prepare(world, 5)
    world.run()
    world.store._ahead.cancel(world.log)
    world.fake.release_all()
    for _ in range(20):
        world.run()
    assert world.log.hole_offset is None and not has_snapshot(world, 5)


@pytest.mark.parametrize("how", ["close", "reopen", "remove", "truncate"])
def test_a_log_that_is_left_or_cut_meanwhile_ends_it_and_leaves_nothing_open(how):
    world = filled()
    world.fake.hold_all("read", str(world.partition))
    assert not prepare(world)
    world.run()
    world.fake.release_all()
    if how == "close":
        world.close()
    elif how == "reopen":
        world.store.reopen(world.partition, now_ms=world.now_ms)
    elif how == "truncate":
        world.store.truncate(world.partition, CUT, now_ms=world.now_ms)
        must_know_the_producers(world)
    else:
        world.store.remove(world.partition)
        while world.store.has_files(world.partition):
            world.run()
    if how in ("close", "reopen"):
        assert not has_snapshot(world), "nobody wanted it any more"
    if how in ("reopen", "truncate"):
        world.close()
    assert world.fake.open_paths == []


def test_what_cannot_be_read_is_left_to_the_cut_to_tell():
    world = filled()
    world.log.files.close()
    world.disk.remove(world.log.files.path_of(4))
    prepared(world)
    assert not has_snapshot(world)


def test_segments_that_are_to_be_read_are_not_deleted_before():
    world = filled()
    world.fake.hold_all("read", world.log.files.path_of(0))
    assert not prepare(world, 12)
    world.store.move_start(world.partition, 8)
    for _ in range(20):
        world.run()
    paths = [world.log.files.path_of(base) for base in (0, 4)]
    assert all(map(world.disk.exists, paths))
    world.fake.release_all()
    while not prepare(world, 12):
        world.run()
    assert has_snapshot(world, 12)
    world.settle()
    assert not any(map(world.disk.exists, paths)), "then they are"


@pytest.mark.parametrize("seed", range(10))
def test_it_is_true_whatever_happens_to_the_log_meanwhile(seed):
    """Appends, a start that moves, and segments that compaction replaces."""
    rng = random.Random(seed)
    policy = {"compact": True, "dirty_ratio_min": 0.0} if seed % 2 else {}
    world = filled(FakeDisk(seed=seed, delays=True), flush=FlushPolicy.parse("os"), **policy)
    world.store.upkeep.check_now()
    offset, sequence = rng.choice([8, 9, 12, 21]), 10
    while not prepare(world, offset):
        world.now_ms += 20
        world.run()
        if rng.random() < 0.3:
            world.append(b"more", producer=(8, 0, sequence))
            sequence += 1
        if rng.random() < 0.1:
            world.store.move_start(world.partition, max(world.log.log_start_offset, rng.randint(0, 7)))
    world.close()
    assert not [one for one in verify_partition(world.disk, world.path) if one.is_violation]
    after = world.reopened()
    after.store.truncate(after.partition, offset, now_ms=after.now_ms)
    after.close()
    assert not [one for one in verify_partition(world.disk, world.path) if one.is_violation]


def _survives(world: LogWorld) -> bool:
    """Prepare a cut, unless the power is lost before."""
    try:
        prepared(world)
    except PowerLoss:
        return False
    return True


def test_a_crash_at_any_moment_leaves_the_log_as_it_was():
    for moment in count():
        world = filled()
        values = world.values()
        world.evict_all()
        world.fake.faults.power_loss_at_step = world.fake.steps + moment
        if _survives(world):
            break
        after = world.reopened(world.fake.crash(random.Random(moment)))
        assert after.values() == values
        after.store.truncate(after.partition, CUT, now_ms=after.now_ms)
        must_know_the_producers(after)
        after.close()
        assert not [one for one in verify_partition(after.disk, after.path) if one.is_violation]
    assert moment > 8


def test_rot_that_is_found_on_the_way_is_a_hole_and_no_snapshot_is_taken():
    world = filled()
    path = f"{world.path}/{offset_name(4, LOG)}"
    content = bytearray(world.fake.content(path))
    content[100] ^= 1
    world.fake.put(path, bytes(content))
    prepared(world)
    assert world.log.hole_offset == 4
    assert not has_snapshot(world)
