"""The other process of the ring benchmark: `python -m perf.micro.ring_writer SHM BELL_FD MESSAGE_BYTES COUNT`."""

from __future__ import annotations

import os
import sys

import numpy as np
from numpy.typing import NDArray

from ringlog.limits import KIB, MIB
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.frame import FRAME_HEADER_BYTES, frame_header
from ringlog.ring.ring import Ring
from ringlog.ring.shm import SharedMemory

CAPACITY_BYTES = 4 * MIB
GROUP_BYTES = 256 * KIB
GROUP_MESSAGES_MAX = 512
PARTITIONS = 16
OPAQUE_API = 9
"""Not produce: its body is moved and not checked, so the ring is measured and not the CRC."""


def messages(message_bytes: int) -> tuple[NDArray[np.int64], bytes]:
    """As many frames as a net process hands over at once, for partitions in turn: their offsets and their bytes.

    >>> offsets, data = messages(64 * 1024)
    >>> len(offsets) - 1, len(data)
    (4, 262144)
    """
    count = min(GROUP_BYTES // message_bytes, GROUP_MESSAGES_MAX)
    body = os.urandom(message_bytes - FRAME_HEADER_BYTES)
    frames = [
        frame_header(
            api_key=OPAQUE_API, partition=number % PARTITIONS, correlation=number, body_bytes=len(body)
        )
        + body
        for number in range(count)
    ]
    return np.arange(0, (count + 1) * message_bytes, message_bytes, dtype=np.int64), b"".join(frames)


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
