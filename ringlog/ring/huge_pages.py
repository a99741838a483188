"""Backs shared memory with pages of 2 MiB, so that the device is given long pieces of it instead of 256 per mebibyte.

A direct write names every run of neighbouring pages to the device, which takes 254 of them at once at most (virtio).
With small pages, which lie anywhere, a write of 1 MiB is 256 runs and takes 20 to 25 % longer than one of few.

Kernels give shared memory large pages only where an administrator said so (`shmem_enabled`), but collapse small ones
for whoever asks, since 6.1. One that cannot, or has no large page free, leaves small ones: slower, and nothing else.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time

from ringlog.limits import MIB

HUGE_BYTES = 2 * MIB
COLLAPSE_S_MAX = 0.15
"""For one segment. On a virtual machine the first touch of a page by anybody can take longer than all else."""
_STEP_BYTES = 16 * MIB
_MADV_COLLAPSE = 25
_PROT_NONE, _MAP_FIXED = 0, 0x10
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_longlong,
]
_munmap = _libc.munmap
_munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_madvise = _libc.madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def collapse(fd: int, size_bytes: int, within_s: float = COLLAPSE_S_MAX) -> int:
    """Give a new segment large pages, as far as there are any and time allows; how many bytes have them now.

    OSError (ENOSPC) when there is no memory left, large or small.
    """
    whole_bytes = size_bytes // HUGE_BYTES * HUGE_BYTES
    if not whole_bytes:
        return 0
    until = time.monotonic() + within_s
    # Python's own mapping begins anywhere; the pages behind it must begin at a multiple of their size.
    room = _mmap(None, whole_bytes + HUGE_BYTES, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if room == _FAILED:
        return 0
    try:
        start = -(-room // HUGE_BYTES) * HUGE_BYTES
        if _mmap(start, whole_bytes, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, fd, 0) == _FAILED:
            return 0
        done = 0
        while done < whole_bytes and time.monotonic() < until:
            length = min(_STEP_BYTES, whole_bytes - done)
            for position in range(done, done + length, HUGE_BYTES):
                os.pwrite(fd, b"\0", position)  # nothing at all is not collapsed
            if _madvise(start + done, length, _MADV_COLLAPSE):
                break
            done += length
        return done
    finally:
        _munmap(room, whole_bytes + HUGE_BYTES)
