"""A process that helps a demo, and never outlives it: not even when Ctrl-C comes while it is being started."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO


class Helper:
    """One that runs, and what it says."""

    def __init__(self, process: subprocess.Popen[str], said: IO[str]) -> None:
        self.process = process
        self.said = said

    def kill(self) -> str:
        """End it; what it had said by then, and nobody has read."""
        self.process.kill()
        rest = self.said.read()
        self.process.wait()
        return rest


@contextmanager
def helper(module: str, *words: str) -> Iterator[Helper]:
    """Run a module of this program in a process of its own until the block ends. Ctrl-C in a terminal goes to all
    processes of a group: this one has another group, and is ended by who started it."""
    pressed = False

    def note(_signal: int, _frame: object) -> None:
        nonlocal pressed
        pressed = True

    process: subprocess.Popen[str] | None = None
    before = signal.signal(signal.SIGINT, note)
    try:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *words], stdout=subprocess.PIPE, text=True, process_group=0
            )
        finally:
            signal.signal(signal.SIGINT, before)
        if pressed:
            raise KeyboardInterrupt
        assert process.stdout is not None
        yield Helper(process, process.stdout)
    finally:
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
