"""Named shared memory: private, whole, and gone when it should be."""

from __future__ import annotations

import os

import pytest

from ringlog.errors import InvalidRequest
from ringlog.ring import shm
from ringlog.ring.ring import Ring, ring_bytes
from ringlog.ring.shm import SharedMemory


@pytest.fixture
def segment():
    made = SharedMemory.create("unit", 8192)
    yield made
    made.unlink()
    made.close()


def test_what_one_mapping_stores_the_other_sees(segment) -> None:
    with SharedMemory.open(segment.name) as other:
        segment.memory[8000:8003] = b"abc"
        assert other.memory[8000:8003] == b"abc"
        assert len(other.memory) == 8192


def test_only_the_owner_may_open_it(segment) -> None:
    assert os.stat(shm.SHM_DIR + segment.name).st_mode & 0o777 == 0o600


def test_its_pages_are_reserved_at_creation(segment) -> None:
    assert os.stat(shm.SHM_DIR + segment.name).st_blocks * 512 >= 8192


def test_too_much_memory_is_refused_at_creation_and_leaves_nothing() -> None:
    statistics = os.statvfs(shm.SHM_DIR)
    more_than_there_is = statistics.f_frsize * (statistics.f_blocks + 1)
    with pytest.raises(OSError, match="No space"):
        SharedMemory.create("unit-huge", more_than_there_is)
    assert not [name for name in os.listdir(shm.SHM_DIR) if name.startswith("ringlog-unit-huge")]


def test_unlinked_memory_lives_on_in_its_mappings_and_cannot_be_opened(segment) -> None:
    with SharedMemory.open(segment.name) as other:
        segment.unlink()
        segment.unlink()  # a second time is no error
        segment.memory[:1] = b"x"
        assert other.memory[:1] == b"x"
        with pytest.raises(FileNotFoundError):
            SharedMemory.open(segment.name)


def test_memory_in_use_by_a_ring_is_not_unmapped_under_it() -> None:
    shared = SharedMemory.create("unit-ring", ring_bytes(4096))
    writer = Ring.create(shared.memory, capacity_bytes=4096).writer()
    with pytest.raises(BufferError):
        shared.close()
    writer.close()
    shared.unlink()
    shared.close()
    shared.close()  # idempotent


def test_a_sweep_removes_what_nobody_has_open_and_spares_what_somebody_has(segment) -> None:
    left = SharedMemory.create("unit-left", 4096)
    left.close()
    swept = shm.sweep()
    assert segment.name not in swept
    with pytest.raises(
        FileNotFoundError
    ):  # not `in swept`: a node that starts elsewhere on the host may have been first
        SharedMemory.open(left.name)
    SharedMemory.open(segment.name).close()


def test_a_sweep_leaves_the_segments_of_other_users_alone(monkeypatch) -> None:
    left = SharedMemory.create("unit-foreign", 4096)
    left.close()
    monkeypatch.setattr(shm.os, "geteuid", lambda: os.getuid() + 1)
    assert left.name not in shm.sweep()
    monkeypatch.undo()
    assert left.name in shm.sweep()


def test_a_segment_swept_while_it_was_being_made_is_made_again(monkeypatch) -> None:
    names: list[str] = []
    lock = shm.fcntl.flock

    def swept_before_the_first_lock(fd: int, operation: int) -> None:
        if operation == shm.fcntl.LOCK_SH and not names:
            names.extend(name for name in os.listdir(shm.SHM_DIR) if name.startswith("ringlog-unit-raced"))
            assert "/" + names[0] in shm.sweep()
        lock(fd, operation)

    monkeypatch.setattr(shm.fcntl, "flock", swept_before_the_first_lock)
    made = SharedMemory.create("unit-raced", 4096)
    try:
        assert names and "/" + names[0] != made.name
        SharedMemory.open(made.name).close()
    finally:
        made.unlink()
        made.close()


def test_names_of_others_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        SharedMemory.open("/psm_something")
    with pytest.raises(InvalidRequest):
        SharedMemory.create("../x", 4096)
