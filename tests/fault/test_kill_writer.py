"""kill -9 of a process that appends through io_uring to a real disk: what it reported as flushed is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringlog.disk.choose import open_disk
from ringlog.log.settings import LogSettings
from tests.support.amounts import cases, chance
from tests.support.logs import LogWorld

WRITER = """
import sys, time
from ringlog.disk.choose import open_disk
from tests.support.logs import LogWorld
from ringlog.log.settings import LogSettings
from ringlog.log.events import Progress
world = LogWorld(open_disk({engine!r}), LogSettings(segment_bytes=4 << 20), root={root!r}, memory_bytes=64 << 20)
number = world.log.next_offset
out = sys.stdout.buffer
while True:
    for _ in range(1 + number % 7):
        world.append(b"%012d" % number + bytes(number * 7919 % 30_000), producer=(1, 0, number))
        number += 1
    for event in world.run(wait_s=0.01):
        if isinstance(event, Progress):
            out.write(b"%d\\n" % event.offset)
    out.flush()
    if number % 50 == 0:
        world.store.checkpoint()
"""


@pytest.mark.parametrize("engine", ["io_uring", "plain"])
def test_what_a_killed_writer_acknowledged_is_there(tmp_path: Path, engine: str):
    rng = chance(engine)
    root = str(tmp_path / "data")
    script = WRITER.format(engine=engine, root=root)
    acked = 0
    for _ in cases(short=6, full=200):
        writer = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            cwd=os.getcwd(),
            env={**os.environ, "PYTHONPATH": "."},
        )
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.15))
        writer.send_signal(signal.SIGKILL)
        lines = [first, *writer.stdout.read().split(b"\n")]
        writer.wait()
        assert writer.returncode == -signal.SIGKILL, "the writer ran until it was killed"
        # The last line may have been cut by the kill; the one before it was written whole.
        acked = max([acked, *(int(line) for line in lines[:-1] if line)])
    world = LogWorld(open_disk(engine), LogSettings(segment_bytes=4 << 20), root=root, memory_bytes=64 << 20)
    numbers = [int(value[:12]) for value in world.values()]
    assert numbers == list(range(len(numbers))), "no record is lost, doubled or out of order"
    assert len(numbers) >= acked > 0
    world.close()
    world.disk.shutdown()
