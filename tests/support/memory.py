"""How much memory a call costs at its peak, in resident pages, whoever allocates it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def peak_bytes(work: Callable[[], Any]) -> int:
    """The growth of the resident set, at its highest, while `work` runs."""
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
