"""Facts of the machine, from text as kernels write it."""

from __future__ import annotations

from perf.machine import describe, mount_of

MOUNTINFO = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
31 22 0:27 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw,size=65536k
"""


def test_the_mount_is_found_by_device_number():
    assert mount_of(MOUNTINFO, "0:27") == ("tmpfs", "tmpfs", "rw,nosuid,nodev,rw,size=65536k")


def test_a_device_that_is_not_mounted_is_unknown():
    assert mount_of(MOUNTINFO, "8:1")[0] == "unknown"


def test_shared_memory_is_no_disk():
    assert describe("/dev/shm").storage.is_memory
