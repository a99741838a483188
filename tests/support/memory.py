"""How much memory a call costs at its peak, in resident pages, whoever allocates it."""

from __future__ import annotations

import ctypes
import os
import traceback
from collections.abc import Callable
from typing import Any

_libc = ctypes.CDLL(None)
_libc.malloc.argtypes, _libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
_libc.free.argtypes = [ctypes.c_void_p]
_libc.sbrk.argtypes, _libc.sbrk.restype = [ctypes.c_ssize_t], ctypes.c_void_p
_M_MMAP_THRESHOLD = -3  # of <malloc.h>
_LARGE_BYTES = 128 * 1024
"""Blocks of this size and more are mapped and unmapped one by one."""


def peak_bytes(work: Callable[[], Any]) -> int:
    """The growth of the resident set, at its highest, while `work` runs: in a forked child, which has none of the
    threads that may allocate meanwhile."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writing, b"%d" % _peak_bytes_here(work))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, "the work failed; its error stands above"
    return int(said)


def _peak_bytes_here(work: Callable[[], Any]) -> int:
    work()  # a child maps the code that it runs page by page: that is no cost of the call
    # Memory that was freed before must not be at hand: using it again would not be seen.
    _libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    _libc.malloc_trim(0)
    _fill_holes()
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # the high-water mark becomes the present size
    before = _status("VmRSS")
    work()
    return max(0, _status("VmHWM") - before)


def _fill_holes() -> None:
    """Take all large holes of the heap, without touching them. What is freed there stays resident: earlier work would
    decide how much of a call's garbage is counted."""
    heap_end = _libc.sbrk(0)
    size = 1 << 30
    while size >= _LARGE_BYTES:
        block = _libc.malloc(size)
        if block is None or block >= heap_end:
            _libc.free(block)
            size //= 2


def _status(field: str) -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    raise LookupError(field)
