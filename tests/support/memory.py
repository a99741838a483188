"""How much memory a call costs at its peak, in resident pages, whoever allocates it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_libc = ctypes.CDLL(None)
_M_MMAP_THRESHOLD = -3  # of <malloc.h>


def peak_bytes(work: Callable[[], Any]) -> int:
    """The growth of the resident set, at its highest, while `work` runs: the least of three tries, because
    what else goes on in the process is counted too."""
    return min(_peak_bytes_once(work) for _ in range(3))


def _peak_bytes_once(work: Callable[[], Any]) -> int:
    # Memory that was freed before must not be at hand: using it again would not be seen.
    _libc.mallopt(_M_MMAP_THRESHOLD, 128 * 1024)
    _libc.malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # the high-water mark becomes the present size
    before = _status("VmRSS")
    work()
    return max(0, _status("VmHWM") - before)


def _status(field: str) -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    raise LookupError(field)
