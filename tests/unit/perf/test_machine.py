"""Facts of the machine that figures depend on."""

from __future__ import annotations

from perf.machine import describe


def test_shared_memory_is_no_disk():
    assert describe("/dev/shm").storage.is_memory
