"""A wall clock that a test sets for the processes it starts, and for no others."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from tests.support.cxx import build

_SHIFT = struct.Struct("=q")


class ShiftedClock:
    """The wall clock of all processes that are started with `environment`."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "clock-shift"
        self._path.write_bytes(_SHIFT.pack(0))
        with self._path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _SHIFT.size)
        source = Path(__file__).with_name("clock_shift.cpp")
        self._library = build(source, "-shared", "-fPIC", "-O1", name="clock_shift.so", into="support")

    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "RINGLOG_TEST_CLOCK": str(self._path)}

    def jump_to(self, seconds: int) -> None:
        """Set the clock so many seconds before (negative) or after the true time."""
        _SHIFT.pack_into(self._memory, 0, seconds)
