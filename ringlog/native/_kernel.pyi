"""Types of the native kernel. Everything here is wrapped by a documented function of `records` or `ring`."""

from typing import Any

import numpy as np
import numpy.typing as npt

Buffer = Any
"""Anything with the C-contiguous buffer protocol: bytes, bytearray, memoryview, mmap, NumPy arrays."""

# -- checksums and hashes (bind_checksums.cpp) -------------------------------------------------------------

def crc32c(data: Buffer, seed: int = 0) -> int:
    """CRC32C of `data`, continuing `seed` (the CRC of what came before). Releases the GIL for long inputs."""

def crc32c_portable(data: Buffer, seed: int = 0) -> int:
    """The same by tables alone; what `crc32c` runs on machines without CRC instructions."""

def crc32c_path() -> str:
    """`sse4.2`, `armv8` or `portable`: what `crc32c` runs on this machine."""

def murmur2(key: Buffer) -> int:
    """Kafka's hash of a key, as a signed 32-bit integer."""

def partition_column(
    offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    data: Buffer,
    partitions: int,
    out: npt.NDArray[np.int32],
) -> None:
    """The partition of each key `data[offsets[i]:offsets[i + 1]]` into `out`; ValueError on bad offsets."""
