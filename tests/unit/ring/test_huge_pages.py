"""Large pages behind shared memory: the same bytes whether the kernel has any or not, and no mapping left behind."""

from __future__ import annotations

import os

import pytest

from ringlog.limits import MIB
from ringlog.ring import huge_pages, shm
from ringlog.ring.shm import SharedMemory

SIZE = 5 * MIB  # not a whole number of large pages


@pytest.fixture(params=["as this kernel does it", "no large page free", "no address space"])
def kernel(request, monkeypatch):
    if request.param == "no large page free":
        monkeypatch.setattr(huge_pages, "_madvise", lambda *_: -1)
    elif request.param == "no address space":
        monkeypatch.setattr(huge_pages, "_mmap", lambda *_: huge_pages._FAILED)


def mappings() -> int:
    with open("/proc/self/maps", encoding="utf-8") as file:
        return sum("ringlog-unit-disk" in line for line in file)


@pytest.mark.usefixtures("kernel")
def test_memory_for_the_disk_is_whole_zeroed_and_mapped_once():
    with SharedMemory.create("unit-disk", SIZE, is_for_disk=True) as made:
        assert mappings() == 1
        assert os.stat(shm.SHM_DIR + made.name).st_blocks * 512 >= SIZE
        made.populate()
        assert bytes(made.memory) == bytes(SIZE)
        with SharedMemory.open(made.name) as other:
            made.memory[SIZE - 3 :] = b"end"
            assert other.memory[SIZE - 3 :] == b"end"
        made.unlink()


def test_no_more_time_is_spent_on_it_than_is_given():
    with SharedMemory.create("unit-disk", SIZE) as made:
        made.unlink()
        assert huge_pages.collapse(made._fd, SIZE, within_s=0.0) == 0
        assert huge_pages.collapse(made._fd, huge_pages.HUGE_BYTES - 1) == 0, "not one whole page"
        assert huge_pages.collapse(made._fd, SIZE) in (0, 4 * MIB)
        assert bytes(made.memory) == bytes(SIZE)


def test_too_much_memory_for_the_disk_is_refused_as_any_other():
    statistics = os.statvfs(shm.SHM_DIR)
    with pytest.raises(OSError, match="No space"):
        SharedMemory.create(
            "unit-disk", statistics.f_frsize * (statistics.f_blocks + 1), is_for_disk=True
        ).close()
    assert not [name for name in os.listdir(shm.SHM_DIR) if name.startswith("ringlog-unit-disk")]
