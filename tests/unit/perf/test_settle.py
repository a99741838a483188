"""Measurements wait for a disk that still works, and not for ever."""

from __future__ import annotations

import itertools

import pytest

from perf.settle import LITTLE_BYTES, LOOK_S, PATIENCE_S, DiskWork, settle, wait_for_rest


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize(
    ("busy_until_s", "per_look"),
    [(0.0, DiskWork(0, 0)), (2.0, DiskWork(0, 1)), (3.5, DiskWork(LITTLE_BYTES, 0))],
)
def test_it_waits_while_a_disk_writes_or_trims(busy_until_s, per_look):
    clock = Clock()

    def look() -> DiskWork:
        steps = int(min(clock.now_s, busy_until_s) / LOOK_S)
        return DiskWork(per_look.written_bytes * steps, per_look.trims * steps)

    assert wait_for_rest(look, lambda: clock.now_s, clock.sleep)
    assert clock.now_s == busy_until_s + LOOK_S


def test_a_broker_that_writes_a_little_all_the_time_is_rest():
    clock, numbers = Clock(), itertools.count(0, 8192)
    assert wait_for_rest(lambda: DiskWork(next(numbers), 0), lambda: clock.now_s, clock.sleep)
    assert clock.now_s == LOOK_S


def test_a_disk_that_never_rests_is_not_waited_for_for_ever():
    clock, trims = Clock(), itertools.count()
    assert not wait_for_rest(lambda: DiskWork(0, next(trims)), lambda: clock.now_s, clock.sleep)
    assert clock.now_s == PATIENCE_S


def test_where_there_is_no_device_there_is_no_waiting(tmp_path):
    clock = Clock()
    assert wait_for_rest(lambda: None, lambda: clock.now_s, clock.sleep)
    assert clock.now_s == 0
    settle("/dev/shm")
    settle(str(tmp_path))
