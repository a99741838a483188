"""What fails on the fake disk, when its calls complete, and what it refuses."""

from __future__ import annotations

import errno
import random

import pytest

from ringlog.disk.memory import aligned
from ringlog.limits import BLOCK_BYTES, SECTOR_BYTES
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults, PowerLoss
from tests.support.fake_disk_probes import SEEDS, made, sectors, survivors, values_per_sector, view, write


@pytest.mark.parametrize("kind", ["write", "read", "flush", "flush_dir", "preallocate"])
def test_the_nth_queued_call_of_a_kind_results_in_an_error(kind):
    faults = Faults()
    faults.fail(kind, nth=1, errno=errno.EIO)
    disk, file = made(sectors(1), faults=faults)
    calls = {
        "write": lambda: disk.write(file, [view(b"x")], 0, durable=True),
        "read": lambda: disk.read(file, view(b"x"), 0),
        "flush": lambda: disk.flush(file),
        "flush_dir": lambda: disk.flush_dir("/data"),
        "preallocate": lambda: disk.preallocate(file, 0, 4096),
    }
    results = [disk.wait(calls[kind]()) for _ in range(3)]
    assert [result < 0 for result in results] == [False, True, False]
    assert results[1] == -errno.EIO


@pytest.mark.parametrize("kind", ["open", "rename", "remove", "truncate", "make_dir"])
def test_the_nth_immediate_call_of_a_kind_raises_and_changes_nothing(kind):
    faults = Faults()
    faults.fail(kind, nth=0 if kind != "open" else 1, errno=errno.EROFS)
    disk, file = made(sectors(1), faults=faults)
    calls = {
        "open": lambda: disk.open("/data/new", write=True, create=True),
        "rename": lambda: disk.rename("/data/log", "/data/new"),
        "remove": lambda: disk.remove("/data/log"),
        "truncate": lambda: disk.truncate(file, 0),
        "make_dir": lambda: disk.make_dir("/data/new"),
    }
    with pytest.raises(OSError) as raised:
        calls[kind]()
    assert raised.value.errno == errno.EROFS
    assert disk.content("/data/log") == sectors(1)
    assert disk.list_dir("/data") == [("log", SECTOR_BYTES)]
    calls[kind]()


def test_each_call_of_a_workload_can_be_failed_in_turn():
    def workload(disk):
        file = disk.open("/data/log", write=True)
        assert disk.wait(disk.write(file, [view(b"x")], 0, durable=False)) == 1
        assert disk.wait(disk.flush(file)) == 0
        disk.rename("/data/log", "/data/moved")
        assert disk.wait(disk.flush_dir("/data")) == 0

    def prepared(faults):
        disk = FakeDisk(faults=faults)
        disk.put("/data/log", b"")
        return disk

    whole = prepared(Faults())
    workload(whole)
    assert [call.kind for call in whole.calls] == ["open", "write", "flush", "rename", "flush_dir"]
    for call in whole.calls:
        faults = Faults()
        faults.fail_call(call.number)
        with pytest.raises((OSError, AssertionError)):
            workload(prepared(faults))


def test_a_short_write_moves_a_prefix_and_makes_nothing_durable():
    faults = Faults()
    faults.short_write(nth=0, nbytes=SECTOR_BYTES)
    disk, file = made(sectors(1, 1), faults=faults)
    assert disk.wait(disk.write(file, [view(sectors(2, 2))], 0, durable=True)) == SECTOR_BYTES
    assert disk.content("/data/log") == sectors(2, 1)
    assert survivors(disk) == {sectors(1, 1), sectors(2, 1)}


def test_after_a_failed_write_any_of_its_sectors_may_be_new_and_the_size_is_old():
    found = set()
    for seed in SEEDS:
        faults = Faults()
        faults.fail("write", nth=0)
        disk, file = made(sectors(1, 1), faults=faults, seed=seed)
        assert disk.wait(disk.write(file, [view(sectors(2, 2, 2))], 0, durable=True)) == -errno.EIO
        found.add(disk.content("/data/log"))
    assert values_per_sector(found) == [{1, 2}, {1, 2}]


def test_what_a_failed_flush_covered_is_never_made_durable_by_a_later_one():
    faults = Faults()
    faults.fail("flush", nth=0)
    lost = set()
    for seed in SEEDS:
        disk, file = made(sectors(1, 1), faults=faults, seed=seed)
        write(disk, file, sectors(2, 2))
        assert disk.wait(disk.flush(file)) == -errno.EIO
        assert disk.wait(disk.flush(file)) == 0
        assert disk.content("/data/log") == sectors(2, 2)
        lost |= survivors(disk)
    assert sectors(1, 1) in lost


def test_space_runs_out_with_a_short_write_then_enospc_and_comes_back_with_a_removal():
    disk, file = made(faults=Faults(space_bytes=3 * BLOCK_BYTES))
    disk.put("/data/other", bytes(BLOCK_BYTES))
    block = bytes(BLOCK_BYTES)
    assert disk.wait(disk.preallocate(file, 0, 3 * BLOCK_BYTES)) == -errno.ENOSPC
    assert disk.wait(disk.write(file, [view(block * 3)], 0, durable=True)) == 2 * BLOCK_BYTES
    assert disk.wait(disk.write(file, [view(block)], 2 * BLOCK_BYTES, durable=True)) == -errno.ENOSPC
    assert disk.wait(disk.write(file, [view(block)], BLOCK_BYTES, durable=True)) == BLOCK_BYTES
    disk.remove("/data/other")
    assert disk.wait(disk.write(file, [view(block)], 2 * BLOCK_BYTES, durable=True)) == BLOCK_BYTES
    assert disk.used_bytes == 3 * BLOCK_BYTES


def test_power_may_go_at_every_step_and_nothing_runs_afterwards():
    def workload(disk):
        file = disk.open("/data/log", write=True)
        write(disk, file, sectors(2))
        disk.wait(disk.flush(file))

    whole, _ = made(sectors(1))
    before = whole.steps
    workload(whole)
    seen = set()
    for step in range(before, whole.steps):
        disk, _ = made(sectors(1))
        disk.faults.power_loss_at_step = step
        with pytest.raises(PowerLoss):
            workload(disk)
        for call in (disk.open, disk.exists, disk.list_dir, disk.flush_dir):
            with pytest.raises(PowerLoss):
                call("/data")
        seen.add(frozenset(survivors(disk)))
    assert seen == {frozenset({sectors(1)}), frozenset({sectors(1), sectors(2)})}


def test_a_held_call_completes_when_it_is_released():
    disk, file = made()
    held, other = disk.flush(file), disk.flush(file)
    disk.hold(held)
    assert disk.completions(None) == [(other, 0)]
    assert disk.completions(1.0) == []
    assert [call.token for call in disk.in_flight_calls] == [held]
    disk.release(held)
    assert disk.completions(None) == [(held, 0)]


def test_a_rule_holds_calls_of_one_kind_and_path_until_all_are_released():
    disk, file = made()
    disk.put("/data/other", b"")
    other = disk.open("/data/other", write=True)
    disk.hold_all("write", "/log")
    held = disk.write(file, [view(b"x")], 0, durable=False)
    free = {disk.write(other, [view(b"x")], 0, durable=False), disk.flush(file)}
    assert {token for token, _ in disk.completions(None)} == free
    disk.release_all()
    assert disk.completions(None) == [(held, 1)]


def test_waiting_for_ever_for_what_is_held_is_refused():
    disk, file = made()
    token = disk.flush(file)
    disk.hold(token)
    with pytest.raises(AssertionError, match="for ever"):
        disk.completions(None)
    with pytest.raises(AssertionError, match="for ever"):
        disk.wait(token)


def test_completions_come_in_an_order_of_the_seed():
    def order(seed):
        disk, file = made(seed=seed)
        for _ in range(6):
            disk.flush(file)
        return tuple(token for token, _ in disk.completions(None))

    assert order(5) == order(5)
    assert len({order(seed) for seed in range(10)}) > 5


def test_delays_keep_calls_in_flight_for_a_while():
    disk, file = made(seed=2, delays=True)
    for _ in range(20):
        disk.flush(file)
    sizes = []
    while disk.in_flight:
        sizes.append(len(disk.completions(None)))
    assert sum(sizes) == 20
    assert len(sizes) > 1
    assert all(sizes)


def test_memory_that_changes_under_a_write_is_caught():
    disk, file = made()
    memory = view(b"before")
    token = disk.write(file, [memory], 0, durable=True)
    memory[:] = b"filled"
    disk.submit()
    memory[:] = b"after."
    with pytest.raises(AssertionError, match="memory under a write was modified"):
        disk.wait(token)


def test_memory_under_a_read_holds_rubbish_until_the_read_completed():
    disk, file = made(b"right")
    memory = view(b"stale")
    token = disk.read(file, memory, 0)
    disk.submit()
    assert bytes(memory) not in (b"stale", b"right")
    disk.wait(token)
    assert bytes(memory) == b"right"


@pytest.mark.parametrize(
    ("position", "start", "length"),
    [(SECTOR_BYTES, 0, BLOCK_BYTES), (0, 0, SECTOR_BYTES), (0, SECTOR_BYTES, BLOCK_BYTES)],
)
def test_a_direct_call_with_a_misaligned_position_length_or_address_is_refused(position, start, length):
    disk = FakeDisk()
    file = disk.open("/log", write=True, create=True, direct=True)
    memory = aligned(4 * BLOCK_BYTES)[start : start + length]
    with pytest.raises(AssertionError, match="direct"):
        disk.write(file, [aligned(BLOCK_BYTES), memory], position, durable=True)
    with pytest.raises(AssertionError, match="direct"):
        disk.read(file, memory, position)


def test_closing_with_calls_in_flight_and_use_after_close_are_refused():
    disk, file = made()
    token = disk.flush(file)
    with pytest.raises(AssertionError, match="in flight"):
        disk.close(file)
    disk.wait(token)
    assert disk.open_paths == ["/data/log"]
    disk.close(file)
    assert disk.open_paths == []
    with pytest.raises(AssertionError, match="after close"):
        disk.flush(file)


def test_a_file_from_before_a_crash_is_refused():
    disk, file = made()
    with pytest.raises(AssertionError, match="before a crash"):
        disk.crash(random.Random(1)).flush(file)
