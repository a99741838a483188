"""The records of a run: random bytes, known to both sides, so that what arrives can be checked."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

POOL_BYTES = 2 << 20
_MASK = (1 << 64) - 1


class Payload:
    """A pool of different records that is sent again and again, from its start, by each producer.

    >>> few = Payload(100, pool_bytes=500)
    >>> len(few.pool), few.checksum(7) == checksum_of([*few.rows(), *few.rows()][:7])
    (5, True)
    """

    def __init__(self, record_bytes: int, pool_bytes: int = POOL_BYTES) -> None:
        count = max(pool_bytes // record_bytes, 2)
        self.pool: npt.NDArray[np.uint8] = np.random.default_rng(record_bytes).integers(
            0, 256, (count, record_bytes), dtype=np.uint8
        )
        self.record_bytes = record_bytes
        self._sums: list[int] | None = None

    def rows(self) -> list[bytes]:
        """The records of the pool, one by one."""
        return [row.tobytes() for row in self.pool]

    def checksum(self, records: int) -> int:
        """What `checksum_of` says about this many records, sent from the start of the pool."""
        if self._sums is None:
            sums = [0]
            for row in self.pool:
                sums.append(sums[-1] + zlib.crc32(row))
            self._sums = sums
        whole, rest = divmod(records, len(self.pool))
        return (whole * self._sums[-1] + self._sums[rest]) & _MASK


def checksum_of(values: Iterable[Any]) -> int:
    """The sum of the values' CRC-32s: the same in whatever order partitions were read.

    >>> checksum_of([b"a", b"b"]) == checksum_of([b"b", b"a"]), checksum_of([b"a"]) == checksum_of([b"b"])
    (True, False)
    """
    return sum(map(zlib.crc32, values)) & _MASK


def text_record(record_bytes: int) -> bytes:
    """One record of printable characters, for tools that read records from a text file.

    >>> len(text_record(1000)), text_record(50).isalnum()
    (1000, True)
    """
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", dtype=np.uint8)
    return letters[np.random.default_rng(record_bytes).integers(0, len(letters), record_bytes)].tobytes()
