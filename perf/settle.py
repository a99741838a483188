"""Waits until a disk rests, so that nothing is measured while it still works for what was measured before.

Files that are deleted are trimmed by the file system when it likes, and pages that were written are written back when
it likes: on the development machine, hundreds of trims a second for seconds after a gigabyte was deleted, while each
write waits its turn among them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from tuning.doctor.read_facts import device_number, read

LOOK_S = 0.25
PATIENCE_S = 10.0
LITTLE_BYTES = 1 << 20
"""A broker that nobody uses writes less than this between two looks."""
_SECTOR_BYTES = 512


class DiskWork(NamedTuple):
    """What a device had done at a moment, from its line of statistics."""

    written_bytes: int
    trims: int

    def rests(self, later: DiskWork) -> bool:
        """Whether next to nothing happened until then.

        >>> DiskWork(0, 7).rests(DiskWork(4096, 7)), DiskWork(0, 7).rests(DiskWork(4096, 8))
        (True, False)
        """
        return later.trims == self.trims and later.written_bytes - self.written_bytes < LITTLE_BYTES


def work_of(line: str) -> DiskWork | None:
    """What /sys/dev/block/*/stat says; None where there is no such device, as for tmpfs. Kernels before 4.18 count no
    trims.

    >>> work_of("1 0 8 0 20 0 64 9 0 5 9 3 0 0 0")
    DiskWork(written_bytes=32768, trims=3)
    >>> work_of("1 0 8 0 20 0 64 9 0 5 9"), work_of("")
    (DiskWork(written_bytes=32768, trims=0), None)
    """
    fields = [int(field) for field in line.split()]
    if len(fields) < 11:
        return None
    return DiskWork(fields[6] * _SECTOR_BYTES, fields[11] if len(fields) > 11 else 0)


def settle(directory: str) -> None:
    """Have written what waits to be, and wait until the disk under a directory rests, for ten seconds at most."""
    os.sync()
    path = f"/sys/dev/block/{device_number(directory)}/stat"
    wait_for_rest(lambda: work_of(read(path)), time.monotonic, time.sleep)


def wait_for_rest(
    look: Callable[[], DiskWork | None], now_s: Callable[[], float], sleep: Callable[[float], None]
) -> bool:
    """Look until two looks after one another find the same; whether they did in time."""
    until_s = now_s() + PATIENCE_S
    last = look()
    while last is not None:
        sleep(LOOK_S)
        found = look()
        if found is None or last.rests(found):
            break
        if now_s() >= until_s:
            return False
        last = found
    return True
