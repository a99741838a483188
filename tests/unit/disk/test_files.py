"""Whole small files: read as they are, replaced so that no crash can show a mixture."""

from __future__ import annotations

import errno
import random

import pytest

from ringlog.disk.files import read_file, read_now, replace_file, require_ok
from ringlog.disk.memory import aligned
from ringlog.limits import BLOCK_BYTES
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults, PowerLoss

OLD = b"old content" * 100
NEW = b"the new content, which is longer" * 100
LEFT_BEHIND = b"half of an earlier attempt, longer than all others" * 100


def prepared(content=OLD, *, temporary=None, faults=None, seed=0):
    disk = FakeDisk(seed, faults=faults)
    disk.make_dir("/data")
    if content is not None:
        disk.put("/data/state", content)
    if temporary is not None:
        disk.put("/data/state.tmp", temporary)
    return disk


def content_of(disk):
    return disk.content("/data/state") if disk.exists("/data/state") else None


# -- on every engine -----------------------------------------------------------------------------------------


def test_a_replaced_file_reads_back(disk, root):
    for content in (b"first", b"", b"longer than the first", b"x" * 100_000):
        replace_file(disk, f"{root}/state", content)
        assert read_file(disk, f"{root}/state") == content
        assert disk.list_dir(root) == [("state", len(content))]


def test_a_range_reads_back_and_ends_with_the_file(disk, root):
    content = random.Random(1).randbytes(3 * BLOCK_BYTES + 77)
    replace_file(disk, f"{root}/state", content)
    for position, nbytes in [
        (0, 1),
        (5, 4096),
        (4095, 2),
        (8192, 10**15),
        (len(content), 5),
        (10**12, 5),
        (7, 0),
    ]:
        assert read_now(disk, f"{root}/state", position, nbytes) == content[position : position + nbytes]


def test_a_range_of_a_direct_file_needs_no_alignment(disk, root):
    file = disk.open(f"{root}/log", write=True, create=True, direct=True)
    memory = aligned(2 * BLOCK_BYTES)
    memory[:] = random.Random(2).randbytes(2 * BLOCK_BYTES)
    disk.wait(disk.write(file, [memory], 0, durable=False))
    assert read_now(disk, file, 4000, 200) == bytes(memory[4000:4200])


def test_a_missing_file_is_not_found(disk, root):
    with pytest.raises(FileNotFoundError):
        read_file(disk, f"{root}/missing")


def test_the_path_of_a_failure_is_named():
    with pytest.raises(OSError, match="/data/log") as raised:
        require_ok(-errno.ENOSPC, "/data/log")
    assert raised.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="7 of 8 bytes") as raised:
        require_ok(7, "/data/log", 8)
    assert raised.value.errno == errno.EIO


# -- power loss ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [None, OLD])
@pytest.mark.parametrize("temporary", [None, LEFT_BEHIND])
def test_a_power_loss_at_any_step_leaves_the_old_content_or_the_new(old, temporary):
    whole = prepared(old, temporary=temporary)
    first_step = whole.steps
    replace_file(whole, "/data/state", NEW)
    found = set()
    for step in range(first_step, whole.steps):
        disk = prepared(old, temporary=temporary)
        disk.faults.power_loss_at_step = step
        with pytest.raises(PowerLoss):
            replace_file(disk, "/data/state", NEW)
        found |= {content_of(disk.crash(random.Random(seed))) for seed in range(40)}
    assert found == {old, NEW}


@pytest.mark.parametrize("temporary", [None, LEFT_BEHIND])
def test_a_power_loss_after_the_return_leaves_the_new_content(temporary):
    disk = prepared(OLD, temporary=temporary)
    replace_file(disk, "/data/state", NEW)
    assert {content_of(disk.crash(random.Random(seed))) for seed in range(60)} == {NEW}


# -- errors --------------------------------------------------------------------------------------------------


def test_an_error_of_any_call_is_raised_and_leaves_one_whole_content_and_nothing_else():
    whole = prepared()
    first_call = len(whole.calls)
    replace_file(whole, "/data/state", NEW)
    kinds = [call.kind for call in whole.calls[first_call:]]
    assert kinds == ["open", "truncate", "write", "flush", "rename", "flush_dir"]
    for number, kind in enumerate(kinds, start=first_call):
        faults = Faults()
        faults.fail_call(number, errno=errno.EIO)
        disk = prepared(faults=faults)
        with pytest.raises(OSError) as raised:
            replace_file(disk, "/data/state", NEW)
        assert raised.value.errno == errno.EIO
        assert disk.list_dir("/data") == [("state", len(NEW if kind == "flush_dir" else OLD))]
        assert disk.open_paths == []
        assert disk.in_flight == 0


def test_a_short_write_is_raised_and_leaves_the_old_content():
    faults = Faults()
    faults.short_write(nth=0, nbytes=512)
    disk = prepared(faults=faults)
    with pytest.raises(OSError, match="short write"):
        replace_file(disk, "/data/state", NEW)
    assert content_of(disk) == OLD
    assert disk.list_dir("/data") == [("state", len(OLD))]


def test_the_first_error_is_raised_when_cleaning_up_fails_too():
    faults = Faults()
    faults.fail("flush", nth=0, errno=errno.EIO)
    faults.fail("remove", nth=0, errno=errno.EROFS)
    disk = prepared(faults=faults)
    with pytest.raises(OSError) as raised:
        replace_file(disk, "/data/state", NEW)
    assert raised.value.errno == errno.EIO


def test_a_failed_read_is_raised_and_closes_its_file():
    faults = Faults()
    faults.fail("read", nth=0, errno=errno.EIO)
    disk = prepared(faults=faults)
    with pytest.raises(OSError):
        read_file(disk, "/data/state")
    assert disk.open_paths == []
