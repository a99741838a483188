"""The parts of a probe that decide: shares of the time, statistics, places, and a disk that fails."""

from __future__ import annotations

import errno

import pytest

from ringlog.disk.plain import PlainDisk
from ringlog.errors import DiskFull
from tests.support.fake_disk import FakeDisk
from tuning.probe.budget import SLICE_S_MIN, Step, run_steps
from tuning.probe.disk import expect, measure_reads, measure_writes
from tuning.probe.measured import BUFFERED, DSYNC, FLUSH, FRESH, REUSED
from tuning.probe.processes import COPY_BYTES, measure_memcpy
from tuning.probe.statistics import percentile


class Clock:
    """Time that only steps spend."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def spend(self, seconds: float) -> None:
        self.now_s += seconds


def test_each_step_gets_its_share_and_the_budget_is_kept():
    clock, slices = Clock(), []

    def spend(seconds: float) -> None:
        slices.append(seconds)
        clock.spend(seconds)

    assert run_steps([Step(str(n), n, spend) for n in (1, 2, 3, 4)], 20.0, clock=clock) == pytest.approx(20.0)
    assert slices == pytest.approx([2.0, 4.0, 6.0, 8.0])


def test_who_takes_too_long_takes_it_from_those_behind_and_nobody_gets_nothing():
    clock, slices = Clock(), []
    steps = [Step("greedy", 1, lambda _: clock.spend(30.0)), Step("late", 1, slices.append)]
    run_steps(steps, 10.0, clock=clock)
    assert slices == [SLICE_S_MIN]


def test_progress_goes_from_nothing_to_all_with_the_name_of_each_step():
    shown = []
    run_steps(
        [Step("a", 1, lambda _: None), Step("b", 3, lambda _: None)], 1.0, lambda *what: shown.append(what)
    )
    assert shown == [(0.0, "a"), (0.25, "b"), (1.0, "done")]


def test_percentiles_are_samples():
    samples = [float(n) for n in range(1, 101)]
    assert [percentile(samples, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]


@pytest.mark.parametrize("method", [DSYNC, FLUSH, BUFFERED])
@pytest.mark.parametrize("depth", [1, 3])
def test_writes_are_measured_in_fresh_and_in_reused_space_and_leave_no_file(tmp_path, method, depth):
    disk = PlainDisk()
    points = measure_writes(disk, str(tmp_path), method=method, size_bytes=4096, depth=depth, seconds=0.01)
    disk.shutdown()
    assert [point.space for point in points] == [FRESH, REUSED]
    assert all(point.count >= 3 and point.method == method and point.depth == depth for point in points)
    assert list(tmp_path.iterdir()) == []


def test_only_the_method_without_a_flush_writes_durably_at_once(monkeypatch):
    monkeypatch.setattr("tuning.probe.disk.AREA_BYTES", 1 << 20)  # this disk is made of Python
    for method, flushes in ((DSYNC, False), (FLUSH, True)):
        disk = FakeDisk(seed=1)
        disk.make_dir("/d")
        measure_writes(disk, "/d", method=method, size_bytes=4096, depth=1, seconds=0.0)
        kinds = [call.kind for call in disk.calls]
        assert (kinds.count("flush") > 1) == flushes, "one flush is for the reserved space"


def test_reads_are_measured_by_size_and_depth(tmp_path):
    disk = PlainDisk()
    points = measure_reads(disk, str(tmp_path), [(4096, 1), (65536, 4)], 0.02, made_bytes=1 << 20)
    disk.shutdown()
    assert [(point.size_bytes, point.depth) for point in points] == [(4096, 1), (65536, 4)]
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_is_refused_before_it_is_filled(tmp_path, monkeypatch):
    disk = PlainDisk()
    monkeypatch.setattr(disk, "space", lambda path: type(PlainDisk().space("/"))(1 << 20, 1 << 40))
    with pytest.raises(DiskFull, match="a probe wants"):
        measure_writes(disk, str(tmp_path), method=DSYNC, size_bytes=4096, depth=1, seconds=0.01)
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_fails_ends_the_probe_instead_of_being_counted():
    with pytest.raises(OSError) as failure:
        expect(-errno.EIO, 4096, "/d/x")
    assert failure.value.errno == errno.EIO and failure.value.filename == "/d/x"


@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_memcpy_is_that_of_memory_that_is_there_however_little_time_there_is(seconds):
    """The first copy waits for the kernel, and one of the others is interrupted."""
    took_s, now_s = iter([1.0, 0.5, *[0.004] * 100]), [0.0]

    def copy(target, source):
        now_s[0] += next(took_s)

    assert measure_memcpy(seconds, lambda: now_s[0], copy) == pytest.approx(COPY_BYTES / 0.004)
