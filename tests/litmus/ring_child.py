"""The writing process of the Python litmus: numbered messages, for ever.

    ring_child.py SEGMENT GENERATION DOORBELL_FD FIRST

Message n is its number, repeated as often as n asks for. Dies by SIGKILL only, as does its work.
"""

from __future__ import annotations

import sys

import numpy as np

from ringlog.errors import RingStale
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.ring import Ring
from ringlog.ring.shm import SharedMemory


def body_of(number: int) -> bytes:
    """Content that no other number has, of varying size."""
    return number.to_bytes(8, "little") * (1 + number % 50)


def main(segment: str, generation: int, doorbell_fd: int, first: int) -> None:
    shared = SharedMemory.open(segment)
    writer = Ring.open(shared.memory, generation=generation).writer(Doorbell(doorbell_fd))
    number = first
    while True:
        if number % 3 == 0:
            number += writer.write(body_of(number))
        elif number % 3 == 1:
            body = body_of(number)
            view = writer.claim(len(body))
            if view is not None:
                view[:] = body
                writer.commit()
                number += 1
        else:
            bodies = [body_of(number + i) for i in range(10)]
            offsets = np.cumsum([0, *map(len, bodies)])
            number += writer.write_many(offsets, b"".join(bodies))


if __name__ == "__main__":
    try:
        main(sys.argv[1], *map(int, sys.argv[2:5]))
    except RingStale:
        sys.exit(3)
