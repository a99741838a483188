"""The reserve: allocated while there is room, given up when there is none, and never in between back and forth."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.limits import MIB
from ringlog.log.disk_space import floor_of, reserve_of, resume_of
from ringlog.node import reserve
from ringlog.node.reserve import CALM_LOOKS, ReserveFile, wanted_bytes


@given(total=st.integers(MIB, 1 << 44), have=st.sampled_from([0, 1]), share=st.floats(0, 1))
def test_what_is_taken_leaves_room_for_records_and_what_is_given_up_is_enough_to_work_with(
    total, have, share
):
    full = wanted_bytes(total, total, 0)
    free, have = int(total * share), have * full
    wanted = wanted_bytes(free, total, have)
    assert wanted in (0, have, full)
    if wanted > have:
        assert free - (wanted - have) >= resume_of(reserve_of(total))
    if wanted < have:
        assert free < floor_of(reserve_of(total))
    assert full >= floor_of(reserve_of(total)), "what it gives is more than the floor"


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A disk of 200 MiB, whose free space a test sets."""
    disk = SimpleNamespace(free=100 * MIB, path=tmp_path / "reserve", file=ReserveFile(str(tmp_path)))

    def statvfs(_path: str) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=disk.free // 4096, f_frsize=4096, f_blocks=200 * MIB // 4096)

    monkeypatch.setattr(reserve.os, "statvfs", statvfs)
    return disk


def test_it_is_given_up_when_the_disk_is_full_and_taken_again_when_it_is_not(disk):
    disk.file.tick()
    assert disk.path.stat().st_size == 5 * MIB
    assert disk.path.stat().st_blocks * 512 >= 5 * MIB
    for free, size in ((6 * MIB, 5), (2 * MIB, 0), (7 * MIB, 0), (12 * MIB, 0), (100 * MIB, 5)):
        disk.free = free
        for _ in range(1 + CALM_LOOKS):
            disk.file.tick()
        assert disk.path.stat().st_size == size * MIB, free


def test_who_fills_the_disk_and_goes_on_does_not_get_it(disk):
    disk.file.tick()
    for free in (2 * MIB, 1 * MIB, 4096, 0):
        disk.free = free
        for _ in range(CALM_LOOKS):
            disk.file.tick()
        assert disk.path.stat().st_size == 5 * MIB, free
    disk.file.tick()
    assert disk.path.stat().st_size == 0, "nobody takes more now"


def test_a_start_on_a_full_disk_has_it_at_once(disk, tmp_path):
    disk.file.tick()
    disk.free = 0
    ReserveFile(str(tmp_path)).tick()
    assert disk.path.stat().st_size == 0


def test_what_could_not_be_taken_in_full_is_given_back_and_told_once(disk, monkeypatch, caplog):
    def no_room(fd: int, _position: int, nbytes: int) -> None:
        os.ftruncate(fd, nbytes // 2)
        raise OSError(28, "no space")

    monkeypatch.setattr(reserve.os, "posix_fallocate", no_room)
    for _ in range(3):
        disk.file.tick()
    assert disk.path.stat().st_size == 0
    assert caplog.text.count("There is no reserve") == 1


def test_only_a_file_that_was_not_there_before_is_given_back(tmp_path):
    made = ReserveFile(str(tmp_path))
    made.tick()
    again = ReserveFile(str(tmp_path))
    again.tick()
    again.give_back()
    assert os.listdir(tmp_path) == [reserve.RESERVE_NAME], "of a node that ran before"
    made.give_back()
    assert os.listdir(tmp_path) == []
