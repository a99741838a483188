"""The clock that tests set moves the wall clock of a process, and not its monotonic one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.support.clock import ShiftedClock

ASK = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"


def test_a_jump_moves_the_wall_clock_of_a_running_process_only(tmp_path: Path):
    clock = ShiftedClock(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", ASK],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **clock.environment()},
    )
    assert process.stdin and process.stdout
    for seconds in (0, 3600, -3600):
        clock.jump_to(seconds)
        process.stdin.write(b"\n")
        process.stdin.flush()
        wall, monotonic = map(float, process.stdout.readline().split())
        assert abs(wall - time.time() - seconds) < 30
        assert abs(monotonic - time.monotonic()) < 30
    process.communicate()
