"""Compaction of a log: the latest of each key stays where it was, readers and producers never notice."""

from __future__ import annotations

import errno
import random

import pytest

from ringlog.errors import OutOfOrderSequence
from ringlog.limits import MIB
from ringlog.log.batch import batch_infos
from ringlog.log.events import Quarantined
from ringlog.log.segment import SealedSegment
from ringlog.log.settings import LogSettings
from ringlog.log.upkeep import Budget
from ringlog.log.verify import verify_partition
from ringlog.model import TopicPartition
from ringlog.records.decode import decode
from ringlog.records.encode import encode
from ringlog.records.scan import check
from tests.support.fake_disk import FakeDisk
from tests.support.keyed_logs import COMPACT, KeyedLog
from tests.support.logs import LogWorld

_worlds: list[LogWorld] = []


@pytest.fixture(autouse=True)
def end_of_the_world():
    """What a test leaves under way ends with its disk."""
    yield
    while _worlds:
        _worlds.pop().fake.lose_power()


def keyed_log(seed=1, *, settings=COMPACT, batches=80, compresses=True, **options):
    world = LogWorld(FakeDisk(seed), settings, memory_bytes=16 * MIB)
    _worlds.append(world)
    log = KeyedLog(world, random.Random(seed), **options)
    log.compresses = compresses
    for _ in range(batches):
        log.produce(log.rng.randint(1, 3))
        log.run()
    log.settle()
    return log


def housekeeper(log):
    return log.world.store._housekeepers[log.world.partition]


def names(log):
    return [name for name, _ in log.world.disk.list_dir(log.world.path)]


def test_of_each_key_the_latest_record_stays_and_the_log_shrinks():
    log = keyed_log()
    before, segments = log.world.log.log_bytes, len(log.world.log.segments)
    assert segments > 4
    log.compact()
    assert log.world.log.log_bytes < before / 2
    end = housekeeper(log).compacted_offset
    assert end == log.world.log.active.base_offset
    log.world.evict_all()
    log.check()
    assert log.superseded_below(end) == []
    assert not [name for name in names(log) if name.endswith(".clean")]


def test_a_place_where_a_reader_stopped_means_nothing_in_what_compaction_has_made():
    log = keyed_log()
    world = log.world
    world.evict_all()
    offset = 0
    while offset < world.log.active.base_offset:  # every batch is a place where somebody stopped
        with world.store.read_now(world.partition, offset, 1) as slices:
            offset = slices.next_offset
    log.compact()
    world.evict_all()
    log.check()


def test_readers_of_the_recent_tail_do_not_see_what_was_compacted_away_either():
    log = keyed_log(compresses=False)
    log.compact()
    in_memory = [record.offset for record in log.world.records()]
    assert in_memory == list(log.found())


def test_a_compacted_log_is_opened_as_it_was_and_verifies():
    log = keyed_log()
    log.compact()
    found = log.found()
    log.world.close()
    assert [
        f for f in verify_partition(log.world.disk, log.world.path, compacted=True) if f.is_violation
    ] == []
    log.adopt(log.world.reopened())
    assert log.world.report.clean
    assert log.found() == found
    assert housekeeper(log).compacted_offset > 0


def test_without_its_state_a_compacted_log_is_scanned_over_its_gaps():
    log = keyed_log()
    log.compact()
    found = log.found()
    log.world.close()
    log.world.disk.remove(f"{log.world.path}/partition.state")
    log.adopt(log.world.reopened())
    assert not any(segment.quarantined for segment in log.world.log.segments), log.world.report
    assert log.found() == found
    log.compact()
    log.check()


def test_without_its_state_a_segment_between_its_two_names_is_found():
    log = keyed_log()
    log.compact()
    found = log.found()
    log.world.close()
    base = f"{log.world.path}/00000000000000000000.log"
    log.world.disk.rename(base, base + ".clean")
    log.world.fake.put(base + ".old.clean", b"what it replaced")
    log.world.disk.remove(f"{log.world.path}/partition.state")
    log.adopt(log.world.reopened())
    assert log.found() == found
    assert not [name for name in names(log) if name.endswith(".clean")]


def test_small_segments_become_one():
    log = keyed_log()
    log.compact()
    for _ in range(3):
        for _ in range(30):
            log.produce(2)
            log.run()
        log.world.now_ms += COMPACT.delete_retention_ms
        log.compact()
    sealed = [s for s in log.world.log.segments if isinstance(s, SealedSegment)]
    assert len(sealed) <= 4
    bases = {s.base_offset for s in log.world.log.segments}
    assert {int(name[:20]) for name in names(log) if name.endswith(".log")} <= bases
    log.world.evict_all()
    log.check(tombstones_may_be_gone=True)


def test_a_tombstone_is_kept_for_its_time_and_then_goes():
    log = keyed_log(batches=60, compresses=False)
    log._keys = [b"mortal"]
    log.produce(1, deletes=0.0)
    log.produce(1, deletes=1.0)
    log._keys = [b"key-%d" % n for n in range(4)]
    deleted_at = log.world.log.next_offset - 1
    for _ in range(40):
        log.produce(2)
        log.run()
    log.compact()
    assert deleted_at in log.found() and deleted_at - 1 not in log.found()
    log.world.now_ms += COMPACT.delete_retention_ms // 2
    log.compact()
    assert deleted_at in log.found()
    log.world.now_ms += COMPACT.delete_retention_ms
    log.compact()
    assert deleted_at not in log.found()
    log.check(tombstones_may_be_gone=True)


def test_a_read_under_way_while_its_segment_is_swapped_ends_well_and_the_next_goes_on_behind_it():
    log = keyed_log(compresses=False)
    world = log.world
    world.evict_all()
    world.fake.hold_all("read", "00000000000000000000.log")
    slices = []
    world.store.read(world.partition, 0, 50_000, done=slices.append, failed=slices.append)
    world.fake._hold_rules.clear()  # compaction reads the same file
    upkeep = world.store.upkeep
    upkeep.check_now()
    for _ in range(2_000):
        world.now_ms += 20
        log.run()
    assert not upkeep.is_idle, "the swap waits for the read"
    assert "00000000000000000000.log.clean" in names(log)
    # Others read what compaction made.
    assert [o for o in log.found() if log.sent[o] != log.found()[o]] == []
    world.fake.release_all()
    for _ in range(200):
        world.now_ms += 20
        log.run()
    assert upkeep.is_idle
    assert "00000000000000000000.log.clean" not in names(log)
    (read,) = slices
    with read:
        assert [r.offset for r in decode(read.tobytes())] == list(range(read.next_offset))
        following = [r.offset for r in world.records(read.next_offset)]
    assert all(offset >= read.next_offset for offset in following)


def test_a_read_of_what_compaction_made_ends_well_while_that_is_deleted():
    log = keyed_log(compresses=False, value_bytes=50_000, keys=200)
    world = log.world
    world.evict_all()
    world.store.upkeep.check_now()
    while not (made := [s for s in world.log.segments if isinstance(s, SealedSegment) and s.is_clean_named]):
        world.now_ms += 20
        log.run()
    world.fake.hold_all("read", f"{made[0].base_offset:020}.log.clean")
    slices = []
    world.store.read(world.partition, made[0].base_offset, 4096, done=slices.append, failed=slices.append)
    world.store.move_start(world.partition, world.log.segments[-1].base_offset)
    for _ in range(200):
        world.now_ms += 20
        log.run()  # is not fenced
    left = [name for name in names(log) if name.endswith(".log")]
    assert left[0] == f"{made[0].base_offset:020}.log" and len(left) > 2, "none goes before the oldest"
    world.fake.release_all()
    for _ in range(200):
        world.now_ms += 20
        log.run()
    (read,) = slices
    with read:
        assert next(iter(decode(read.tobytes()))).value == log.sent[made[0].base_offset][1]
    log.settle()
    assert [n for n in names(log) if n.endswith((".log", ".clean"))] == [
        f"{world.log.active.base_offset:020}.log"
    ]
    assert not housekeeper(log).is_swapping


def test_readers_that_go_through_the_log_while_it_is_compacted_see_each_latest_record_once():
    log = keyed_log(batches=120)
    world = log.world
    world.evict_all()
    world.store.upkeep.check_now()
    at, seen = 0, []
    while at < world.log.readable_offset:
        with world.store.read_now(world.partition, at, 60_000) as slices:
            seen += [r.offset for r in decode(slices.tobytes()) if r.offset >= at]
            at = slices.next_offset
        world.now_ms += 20
        log.run()
    assert seen == sorted(set(seen))
    latest = {key: offset for offset, (key, _) in sorted(log.sent.items())}
    assert set(latest.values()) <= set(seen)


def test_a_producer_goes_on_after_its_batches_were_compacted_away_and_the_snapshot_is_lost():
    log = keyed_log(keys=2, batches=60, compresses=False)
    # Another producer supersedes all that the first one wrote.
    world = log.world
    expected = log.sequence
    for number in range(60):
        world.append_raw(encode([bytes(100_000)], [b"key-%d" % (number % 2)], timestamps=world.now_ms))
        log.run()
    log.sent.clear()
    log.settle()
    world.store.upkeep.check_now()
    for _ in range(3_000):
        world.now_ms += 20
        world.run()
    assert world.store.upkeep.is_idle
    world.close()
    for name in names(log):
        if name.endswith(".snapshot"):
            world.disk.remove(f"{world.path}/{name}")
    again = world.reopened()
    with pytest.raises(OutOfOrderSequence):
        again.append(b"gap", producer=(5, 0, expected + 1))
    again.append(b"next", producer=(5, 0, expected))


def test_keys_beyond_the_memory_of_a_pass_are_left_for_the_next(monkeypatch):
    monkeypatch.setattr("ringlog.log.upkeep.COMPACTION_MAP_BYTES", 24 * 8)
    log = keyed_log(keys=30)
    log.compact()
    first = housekeeper(log).compacted_offset
    assert 0 < first < log.world.log.active.base_offset
    log.check()
    for _ in range(60):
        log.world.now_ms += 6_000
        log.compact()
    assert housekeeper(log).compacted_offset == log.world.log.active.base_offset
    log.check(tombstones_may_be_gone=True)


def test_the_active_segment_is_never_compacted():
    log = keyed_log()
    active = log.world.log.active.base_offset
    log.compact()
    assert [o for o in log.found() if o >= active] == [o for o in sorted(log.sent) if o >= active]


def test_a_corrupt_segment_is_not_compacted_but_reported():
    log = keyed_log()
    path = f"{log.world.path}/00000000000000000000.log"
    content = bytearray(log.world.fake.content(path))
    content[len(content) // 2] ^= 1
    log.world.fake.put(path, bytes(content))
    log.world.store.upkeep.check_now()
    for _ in range(500):
        log.world.now_ms += 20
        log.world.run()
    assert any(isinstance(event, Quarantined) for event in log.world.events)
    assert log.world.fake.content(path) == bytes(content)


def test_deleting_and_compacting_go_together():
    settings = LogSettings(
        segment_bytes=1 * MIB,
        compact=True,
        dirty_ratio_min=0.1,
        retention_ms=3_000,
        delete_retention_ms=1_000,
    )
    log = keyed_log(settings=settings)
    for _ in range(6):
        for _ in range(20):
            log.produce(2)
            log.run()
            log.world.now_ms += 100
        log.compact()
    start = log.world.log.log_start_offset
    assert start > 0
    log.sent = {offset: record for offset, record in log.sent.items() if offset >= start}
    log.check(tombstones_may_be_gone=True)
    log.world.close()
    log.adopt(log.world.reopened())
    log.check(tombstones_may_be_gone=True)


def test_a_log_that_is_closed_or_removed_in_the_middle_leaves_nothing_open():
    for how in ("close", "remove", "truncate"):
        log = keyed_log()
        world = log.world
        world.store.upkeep.check_now()
        for _ in range(6):
            world.now_ms += 20
            log.run()
        assert not world.store.upkeep.is_idle
        if how == "close":
            world.close()
        elif how == "truncate":
            world.store.truncate(world.partition, world.log.next_offset - 1, now_ms=world.now_ms)
            world.close()
        else:
            world.store.remove(world.partition)
            for _ in range(100):
                world.store.run(now_ms=world.now_ms)
        assert world.fake.open_paths == []
        assert world.store.upkeep.is_idle


def test_compaction_keeps_to_its_budget():
    log = keyed_log()
    log.world.store.upkeep.budget.bytes_per_s = 1 * MIB
    log.world.store.upkeep.check_now()
    begun_ms = log.world.now_ms
    log.compact(cycles=20_000)
    # About 4 MiB are read twice, and what may be moved at once is 1 MiB.
    assert log.world.now_ms - begun_ms > 6_000


def test_an_unlimited_budget_never_waits():
    budget = Budget(None)
    budget.refill(0)
    budget.spend(1 << 40)
    assert budget.wait_ms == 0


def test_compaction_waits_while_the_disk_is_nearly_full():
    log = keyed_log()
    log.world.store.space.judge(0, 100 * MIB)
    before = names(log)
    log.world.store.upkeep.check_now()
    log.world.fake.faults.space_bytes = log.world.fake.used_bytes + 1000
    for _ in range(300):
        log.world.now_ms += 20
        log.world.run()
    assert [n for n in names(log) if n.endswith(".log")] == [n for n in before if n.endswith(".log")]


def is_writing_a_segment(log):
    return any(call.kind == "write" and call.path.endswith(".log.clean") for call in log.world.fake.calls)


@pytest.mark.parametrize("ends_by", ["a full disk", "a cancel", "retention"])
def test_what_was_written_in_vain_is_removed_at_once(ends_by):
    log = keyed_log(keys=2_000, value_bytes=50_000)  # hardly any record goes
    world = log.world
    world.fake.hold_all("flush", ".log.clean")
    world.store.upkeep.check_now()
    while not is_writing_a_segment(log):
        world.now_ms += 20
        log.run()
    if ends_by == "a full disk":
        world.fake.faults.fail("write", nth=world.fake._kinds["write"], errno=errno.ENOSPC)
    elif ends_by == "a cancel":
        world.store.upkeep.cancel(world.log)
    else:
        world.store.move_start(world.partition, world.log.active.base_offset)
    for _ in range(100):
        world.now_ms += 20
        log.run()
    world.fake.release_all()
    for _ in range(100):
        world.now_ms += 20
        log.run()
    assert world.store.upkeep.is_idle
    assert [name for name in names(log) if name.endswith(".clean")] == []
    if ends_by != "retention":
        log.check(tombstones_may_be_gone=True)


@pytest.mark.parametrize("ends_by", ["a failed read", "a cancel"])
def test_a_pass_that_ended_early_is_not_followed_by_another_before_its_segments_have_their_names(ends_by):
    world = LogWorld(FakeDisk(1), COMPACT, memory_bytes=16 * MIB)
    _worlds.append(world)
    unique = [b"unique-%d" % number for number in range(10)]
    for key in (*[b"again"] * 10, *unique, *[b"again"] * 45):
        world.append_raw(encode([bytes(50_000)], [key], timestamps=world.now_ms))
        world.run()
    world.settle()
    upkeep = world.store.upkeep
    upkeep.check_now()
    world.fake.hold_all("flush", "partition.state")  # the disk is slow to say that the state is saved
    while not any(isinstance(one, SealedSegment) and one.is_clean_named for one in world.log.segments):
        world.now_ms += 20
        world.run()
    if ends_by == "a cancel":
        upkeep.cancel(world.log)
    else:
        world.fake.faults.fail("read", nth=world.fake._kinds["read"])
    for _ in range(300):  # long enough for the next pass to be due
        world.now_ms += 20
        world.run()
    assert upkeep.is_idle
    world.fake.release_all()
    for _ in range(600):
        world.now_ms += 20
        world.run()
    assert upkeep.passes > 0, "what was left is done later"
    world.evict_all()
    assert {record.key for record in world.records()} == {b"again", *unique}


def test_a_log_that_is_cut_within_what_a_cancelled_pass_has_made_still_says_that_it_has_gaps():
    world = LogWorld(FakeDisk(1), COMPACT, memory_bytes=16 * MIB)
    _worlds.append(world)
    for number in range(65):
        keys = [b"once-%d" % number if number in (1, 2, 4) else b"again", b"again"]
        world.append_raw(encode([bytes(25_000)] * 2, keys, timestamps=world.now_ms))
        world.run()
    world.settle()
    world.store.upkeep.check_now()
    while not any(isinstance(one, SealedSegment) and one.is_clean_named for one in world.log.segments):
        world.now_ms += 20
        world.run()
    world.store.upkeep.cancel(world.log)
    world.settle()
    world.store.truncate(world.partition, 8, now_ms=world.now_ms)
    for _ in range(2):  # also when it is opened and saved again
        world.close()
        assert [found for found in verify_partition(world.disk, world.path) if found.is_violation] == []
        world = world.reopened()
    assert [record.offset for record in world.records()] == [2, 4]


def test_a_log_that_cannot_be_compacted_does_not_keep_the_others_of_its_shard_from_it(monkeypatch):
    world = LogWorld(FakeDisk(1), COMPACT, memory_bytes=16 * MIB)
    _worlds.append(world)
    good = TopicPartition("good", 0)
    world.store.open(good, COMPACT, now_ms=world.now_ms)
    for _ in range(60):
        for name in (world.partition, good):
            data = encode([bytes(50_000)], [b"key"], timestamps=world.now_ms)
            world.store.append(name, memoryview(data), batch_infos(check(data)), now_ms=world.now_ms)
        world.settle()
    tried_ms, read = [], world.fake.read

    def read_unless_bad(file, into, position):
        if file.path.startswith(world.path):
            tried_ms.append(world.now_ms - begun_ms)
            world.fake.faults.fail("read", nth=world.fake._kinds["read"])
        return read(file, into, position)

    monkeypatch.setattr(world.fake, "read", read_unless_bad)
    before, begun_ms = world.store.logs[good].log_bytes, world.now_ms
    world.store.upkeep.check_now()
    for _ in range(4_000):
        world.now_ms += 20
        world.run()
    assert world.store.logs[good].log_bytes < before / 2
    assert [round(ms, -4) for ms in tried_ms] == [0, 10_000, 30_000, 70_000], "ever less often"
