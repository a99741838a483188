"""Small files are replaced so that no crash can show a mixture, and jobs run alike at once and in the background."""

from __future__ import annotations

import errno
import random

import pytest

from ringlog.log import jobs
from ringlog.log.jobs import run_now, run_together
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


def replace_file(disk, path, data):
    run_now(disk, jobs.replace_file(disk, path, data))


def read_file(disk, path):
    return run_now(disk, jobs.read_file(disk, path))


def content_of(disk):
    return disk.content("/data/state") if disk.exists("/data/state") else None


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
        assert content_of(disk) == (NEW if kind == "flush_dir" else OLD)
        assert disk.open_paths == []
        assert disk.in_flight == 0


def test_a_short_write_is_raised_and_leaves_the_old_content():
    faults = Faults()
    faults.short_write(nth=0, nbytes=512)
    disk = prepared(faults=faults)
    with pytest.raises(OSError, match="only 512 of"):
        replace_file(disk, "/data/state", NEW)
    assert content_of(disk) == OLD


def test_a_failed_read_is_raised_and_closes_its_file():
    faults = Faults()
    faults.fail("read", nth=0, errno=errno.EIO)
    disk = prepared(faults=faults)
    with pytest.raises(OSError):
        read_file(disk, "/data/state")
    assert disk.open_paths == []


# -- in the background -----------------------------------------------------------------------------------------


def test_a_job_in_the_background_does_the_same_as_at_once():
    disk, done, failed = prepared(), [], []
    dispatcher = jobs.Dispatcher(disk)
    dispatcher.spawn(jobs.replace_file(disk, "/data/state", NEW), done.append, failed.append)
    while disk.in_flight:
        dispatcher.deliver(None)
    assert (content_of(disk), done, failed) == (NEW, [None], [])


def test_a_job_that_fails_in_the_background_tells_once():
    disk, done, failed = prepared(), [], []
    disk.faults.fail("flush", nth=0, errno=errno.ENOSPC)
    dispatcher = jobs.Dispatcher(disk)
    dispatcher.spawn(jobs.replace_file(disk, "/data/state", NEW), done.append, failed.append)
    while disk.in_flight:
        dispatcher.deliver(None)
    assert not done
    assert [error.errno for error in failed] == [errno.ENOSPC]


def test_a_call_that_completes_before_its_job_asks_is_not_lost():
    disk, done = prepared(), []

    def two_reads():
        file = disk.open("/data/state")
        first, second = bytearray(3), bytearray(3)
        tokens = [disk.read(file, memoryview(first), 0), disk.read(file, memoryview(second), 4)]
        yield tokens[0]
        yield tokens[1]
        disk.close(file)
        return bytes(first), bytes(second)

    dispatcher = jobs.Dispatcher(disk)
    dispatcher.spawn(two_reads(), done.append, done.append)
    while disk.in_flight:
        dispatcher.deliver(None)
    assert done == [(OLD[:3], OLD[4:7])]


# -- side by side --------------------------------------------------------------------------------------------


def test_jobs_side_by_side_wait_for_the_disk_as_often_as_the_longest_of_them():
    disk, waves = prepared(), []
    submit = disk.submit
    disk.submit = lambda: (waves.append(len(disk.in_flight_calls)), submit())
    paths = [f"/data/{number}" for number in range(50)]
    outcomes = run_together(disk, [jobs.write_file(disk, path, path.encode()) for path in paths])
    assert outcomes == [None] * 50
    assert [disk.durable_content(path) for path in paths] == [path.encode() for path in paths]
    assert waves.count(50) >= 2, "all writes are on their way at once, then all flushes"


def test_a_job_that_fails_ends_no_other():
    faults = Faults()
    faults.fail("flush", nth=1, errno=errno.EIO)
    disk = prepared(faults=faults)
    outcomes = run_together(disk, [jobs.write_file(disk, f"/data/{number}", b"x") for number in range(3)])
    assert [type(outcome) for outcome in outcomes] == [type(None), OSError, type(None)]
    assert disk.durable_content("/data/2") == b"x"
    assert disk.open_paths == []


def test_no_jobs_have_no_outcomes():
    assert run_together(prepared(), []) == []
