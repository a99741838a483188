"""How much memory a call costs at its peak, in resident pages, whoever allocates it."""

from __future__ import annotations

import ctypes
import os
import traceback
from collections.abc import Callable
from typing import Any

_libc = ctypes.CDLL(None)
_M_MMAP_THRESHOLD = -3  # of <malloc.h>


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
    _libc.mallopt(_M_MMAP_THRESHOLD, 128 * 1024)
    _libc.malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")  # the high-water mark becomes the present size
    before, files_before = _status("VmRSS"), _status("RssFile")
    work()
    # Pages of libraries that the system had taken away from an idle process come back: that is no cost of the call.
    came_back = max(0, _status("RssFile") - files_before)
    return max(0, _status("VmHWM") - before - came_back)


def _status(field: str) -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    raise LookupError(field)
