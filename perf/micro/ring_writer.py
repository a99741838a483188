"""The other process of the ring benchmark: `python -m perf.micro.ring_writer SHM BELL_FD MESSAGE_BYTES COUNT`."""

from __future__ import annotations

import os
import sys

import numpy as np
from numpy.typing import NDArray

from ringlog.limits import KIB, MIB
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.ring import Ring
from ringlog.ring.shm import SharedMemory

CAPACITY_BYTES = 4 * MIB
GROUP_BYTES = 256 * KIB
GROUP_MESSAGES_MAX = 512


def messages(message_bytes: int) -> tuple[NDArray[np.int64], bytes]:
    """As many messages as a net process hands over at once: offsets and bodies.

    >>> offsets, data = messages(64 * 1024)
    >>> len(offsets) - 1, len(data)
    (4, 262144)
    """
    count = min(GROUP_BYTES // message_bytes, GROUP_MESSAGES_MAX)
    offsets = np.arange(0, (count + 1) * message_bytes, message_bytes, dtype=np.int64)
    return offsets, os.urandom(count * message_bytes)


def write_all(name: str, bell_fd: int, message_bytes: int, count: int) -> None:
    """Write so many messages, yielding the core whenever the ring is full."""
    offsets, data = messages(message_bytes)
    group = len(offsets) - 1
    with SharedMemory.open(name) as shared:
        writer = Ring.open(shared.memory, generation=1).writer(Doorbell(bell_fd))
        left = count
        while left:
            wrote = writer.write_many(offsets[: min(group, left) + 1], data)
            left -= wrote
            if wrote == 0:
                os.sched_yield()
        writer.close()


if __name__ == "__main__":
    write_all(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
