"""What verify says of logs that are as they should be, and of what a crash may leave: nothing, or notes."""

from __future__ import annotations

import errno
import random
import re
from contextlib import suppress

import pytest

from ringlog.disk.plain import PlainDisk
from ringlog.log.findings import Rule
from ringlog.log.producers import ProducerTable
from ringlog.log.settings import FlushPolicy, LogSettings
from ringlog.log.verify import iter_findings, verify_partition
from ringlog.records.encode import encode
from tests.support.amounts import amount
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults, PowerLoss
from tests.support.log_workload import History, run_workload, settings_for
from tests.support.logs import LogWorld
from tests.support.sample_logs import SampleLog, closed_log, crashed_log


def _notes(log):
    findings = verify_partition(log.disk, log.path)
    assert [str(f) for f in findings if f.is_violation] == []
    return [(f.rule, f.path.rpartition("/")[2], f.byte) for f in findings]


def test_a_log_that_was_closed_has_no_findings():
    log = closed_log()
    assert verify_partition(log.disk, log.path) == []


def test_a_log_on_a_real_file_system_has_no_findings(tmp_path):
    disk = PlainDisk()
    log = SampleLog(disk, root=str(tmp_path))
    log.append_samples(40)
    log.close()
    assert verify_partition(disk, f"{tmp_path}/orders-0/") == []
    disk.shutdown()


def test_a_partition_that_nothing_was_appended_to_has_no_findings():
    log = SampleLog()
    log.close()
    assert verify_partition(log.disk, log.path) == []


def test_verify_changes_no_file_and_leaves_none_open():
    log = crashed_log()
    open_before = log.fake.open_paths
    calls_before = len(log.fake.calls)
    verify_partition(log.disk, log.path)
    assert {call.kind for call in log.fake.calls[calls_before:]} == {"open", "read"}
    assert log.fake.open_paths == open_before


def test_space_reserved_behind_a_log_that_was_not_closed_is_a_note():
    log = crashed_log()
    active = log.segments()[-1]
    assert _notes(log) == [(Rule.PREALLOCATED, active, log.log.active.position)]


def test_an_unfinished_write_behind_the_recovery_point_is_a_note():
    log = crashed_log()
    active = log.segments()[-1]
    end = log.log.active.position
    torn = encode([b"x" * 5000], timestamps=0, base_offset=log.log.next_offset, leader_epoch=2)[:3000]
    log.poke(active, end, torn)
    assert (Rule.END, active, end) in _notes(log)


def test_a_torn_batch_followed_by_whole_ones_within_one_write_is_a_note():
    log = crashed_log()
    active = log.segments()[-1]
    row = int(log.batches(active)["position"].searchsorted(log.state().active.position))
    log.flip(active, log.position(active, row) + 100)
    at = int(log.state().active.position)
    assert (Rule.END, active, at) in _notes(log)


def test_what_flush_by_the_os_may_lose_is_a_note_however_far_it_reaches():
    log = SampleLog(settings=LogSettings(flush=FlushPolicy.parse("os")))
    log.append_samples(60)
    log.settle()
    active = log.segments()[-1]
    log.flip(active, 100)
    assert (Rule.END, active, 0) in _notes(log)


def test_files_that_were_set_aside_and_unfinished_replacements_are_notes():
    log = closed_log()
    log.put("00000000000000000000.log.4096.cut", b"torn")
    log.put("00000000000000000040.snapshot.2.bad", b"bad")
    log.put("partition.state.tmp", b"half")
    assert _notes(log) == [
        (Rule.SET_ASIDE, "00000000000000000000.log.4096.cut", None),
        (Rule.SET_ASIDE, "00000000000000000040.snapshot.2.bad", None),
        (Rule.UNFINISHED, "partition.state.tmp", None),
    ]


def test_an_index_that_a_crash_left_without_a_segment_is_a_note():
    log = closed_log()
    log.put("00000000000000009000.index", bytes(8))
    assert _notes(log) == [(Rule.ORPHAN, "00000000000000009000.index", None)]


def test_index_entries_above_the_last_checkpoint_are_a_note():
    log = crashed_log()
    name = log.segments()[-1].replace(".log", ".index")
    size = len(log.content(name))
    log.put(name, log.content(name) + b"\xff" * 12)
    assert (Rule.INDEX_POINTS, name, size) in _notes(log)


def test_producers_that_expired_before_a_snapshot_are_a_note():
    log = closed_log()
    taken = log.state().active.next_offset
    log.put(f"{taken:020d}.snapshot", ProducerTable().encode(taken))
    assert _notes(log) == [(Rule.PRODUCERS, f"{taken:020d}.snapshot", None)]


def test_snapshots_are_not_compared_with_a_log_that_is_broken_before_them():
    log = closed_log()
    first = log.segments()[0]
    log.flip(first, log.position(first, 3) + 100)
    rules = {f.rule for f in verify_partition(log.disk, log.path)}
    assert rules == {Rule.WHOLE_BATCHES, Rule.INDEX_POINTS, Rule.TIME_INDEX_TRUE}


def test_every_broken_batch_of_a_segment_is_reported_once():
    log = closed_log()
    first = log.segments()[0]
    places = [log.position(first, row) for row in (0, 3, 4, 8, -1)]
    for at in places:
        log.flip(first, at + 70)
    found = [f.byte for f in verify_partition(log.disk, log.path) if f.rule is Rule.WHOLE_BATCHES]
    # Neighbours that are both broken are one stretch of broken bytes.
    assert found == [places[0], places[1], places[3], places[4]]


def test_a_file_that_cannot_be_read_is_a_violation_and_the_others_are_still_checked():
    log = closed_log()
    log.put("notes.txt", b"hello")
    first, second = log.segments()[:2]
    log.flip(second, log.position(second, 3) + 100)
    reads = sum(call.kind == "read" for call in log.fake.calls)
    log.fake.faults.fail("read", nth=reads + 3, errno=errno.EIO)  # behind the state and the two indexes
    found = {(f.rule, f.path) for f in verify_partition(log.disk, log.path)}
    assert {
        (Rule.READABLE, log.file(first)),
        (Rule.WHOLE_BATCHES, log.file(second)),
        (Rule.KNOWN_NAME, log.file("notes.txt")),
    } <= found


def test_progress_adds_up_to_the_bytes_of_all_segments():
    log = crashed_log()
    seen: list[int] = []
    list(iter_findings(log.disk, log.path, on_progress=seen.append))
    assert sum(seen) == sum(size for name, size in log.disk.list_dir(log.path) if name.endswith(".log"))


SEEDS = amount(short=25, full=200)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_power_loss_leaves_a_violation_neither_before_recovery_nor_after(seed):
    rng = random.Random(seed)
    settings = settings_for(rng)
    disk = FakeDisk(seed, delays=True, faults=Faults(power_loss_at_step=rng.randint(10, 700)))
    with suppress(PowerLoss):
        run_workload(LogWorld(disk, settings, memory_bytes=16 << 20), rng, History(), cycles=400)
    survivor = disk.crash(rng)
    path = f"{LogWorld.root}/events-0"
    if not survivor.exists(path):
        return
    assert [str(f) for f in verify_partition(survivor, path) if f.is_violation] == []
    world = LogWorld(survivor, settings, memory_bytes=16 << 20)
    assert [str(f) for f in verify_partition(survivor, path) if f.is_violation] == []
    world.close()
    assert [str(f) for f in verify_partition(survivor, path) if f.is_violation] == []


FLIPS = amount(short=80, full=1_000)


def test_no_flipped_bit_in_any_file_of_a_closed_log_goes_unnoticed():
    log = closed_log()
    good = {name: log.content(name) for name in log.names()}
    rng = random.Random(5)
    for _ in range(FLIPS):
        name = rng.choice(sorted(good))
        # Half of the flips hit the header of a batch: offset and leader epoch are under no checksum.
        rows = log.batches(name)["position"] if name.endswith(".log") else [0]
        start = int(rng.choice(list(rows))) if rng.random() < 0.5 else 0
        position = start + rng.randrange(61 if start else len(good[name]))
        bad = bytearray(good[name])
        bad[position] ^= 1 << rng.randrange(8)
        log.put(name, bad)
        assert any(f.is_violation for f in verify_partition(log.disk, log.path)), (name, position)
        log.put(name, good[name])


def test_a_segment_cut_in_half_is_some_lines_however_many_entries_its_indexes_have():
    log = closed_log()
    name = "00000000000000000000"
    data = log.disk.content(log.file(f"{name}.log"))
    log.disk.put(log.file(f"{name}.log"), data[: len(data) // 2])
    entries = len(log.disk.content(log.file(f"{name}.index"))) // 8
    found = [f for f in verify_partition(log.disk, log.path) if f.rule is Rule.INDEX_POINTS]
    assert entries // 2 > 5
    assert len(found) == 4
    assert found[-1].found.startswith("the same in ")
    assert sum(int(n) for n in re.findall(r"the same in (\d+) more", found[-1].found)) >= entries // 2 - 5
