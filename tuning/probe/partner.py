"""The other process of a probe: `python -m tuning.probe.partner RING RING BELL BELL` echoes, and takes frames.

It reads a line of JSON for each thing to do, and answers with a line when it is ready for it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import TracebackType
from typing import Any

from ringlog.limits import KIB
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.ring import Ring, RingReader, RingWriter, ring_bytes
from ringlog.ring.shm import SharedMemory

CAPACITY_BYTES = 64 * KIB
SILENCE_S = 30.0
_FLAGS_BYTES = 4096
_ANSWER_AT = 1024
"""Far from the question: each byte lies in a cache line of its own."""


class Partner:
    """The process, seen from here: rings to it and back, and two bytes for cores to talk through."""

    def __init__(self) -> None:
        self._memory = [
            SharedMemory.create(f"probe-{name}", size)
            for name, size in (
                ("there", ring_bytes(CAPACITY_BYTES)),
                ("back", ring_bytes(CAPACITY_BYTES)),
                ("flags", _FLAGS_BYTES),
            )
        ]
        there, back, flags = self._memory
        self._bells = [Doorbell.create(), Doorbell.create()]
        self.writer = Ring.create(there.memory, capacity_bytes=CAPACITY_BYTES).writer(self._bells[0])
        self.reader = Ring.create(back.memory, capacity_bytes=CAPACITY_BYTES).reader(self._bells[1])
        self.flags = memoryview(flags.memory)
        names = [memory.name for memory in self._memory]
        fds = [bell.fd for bell in self._bells]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tuning.probe.partner", *names, *map(str, fds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=fds,
        )

    def ask(self, **what: Any) -> None:
        """Tell it what to do next, and wait until it is ready."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps(what) + "\n")
        stdin.flush()
        if stdout.readline() != "ready\n":
            raise RuntimeError(f"the partner of the probe ended with {self._process.wait(SILENCE_S)}")

    def __enter__(self) -> Partner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self.flags.release()
        self.writer.close()
        self.reader.close()
        for bell in self._bells:
            bell.close()
        for memory in self._memory:
            memory.unlink()
            memory.close()


def take(reader: RingReader, *, sleeping: bool) -> int:
    """Wait for messages, asleep or in a loop, and take them; how many there were."""
    while True:
        taken = len(reader.read_all())
        if taken:
            reader.release()
            return taken
        if sleeping and not reader.wait(SILENCE_S):
            raise TimeoutError("the other side of the ring is silent")


def _echo(reader: RingReader, writer: RingWriter, count: int, *, sleeping: bool) -> None:
    left = count
    while left:
        for _ in range(take(reader, sleeping=sleeping)):
            writer.write(b"pong")
            left -= 1


def _echo_bytes(flags: memoryview, count: int) -> None:
    for number in range(count):
        expected = number % 255 + 1
        while flags[0] != expected:
            continue
        flags[_ANSWER_AT] = expected


def ask_bytes(flags: memoryview, count: int) -> None:
    """The asking side of a byte that goes there and back, `count` times."""
    for number in range(count):
        expected = number % 255 + 1
        flags[0] = expected
        while flags[_ANSWER_AT] != expected:
            continue


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asks: this one ends with its questions
    there, back, flags_memory = (SharedMemory.open(name) for name in sys.argv[1:4])
    bells = [Doorbell(int(fd)) for fd in sys.argv[4:6]]
    reader = Ring.open(there.memory, generation=1).reader(bells[0])
    writer = Ring.open(back.memory, generation=1).writer(bells[1])
    flags = memoryview(flags_memory.memory)
    everywhere = os.sched_getaffinity(0)
    for line in sys.stdin:
        what = json.loads(line)
        os.sched_setaffinity(0, {what["core"]} if "core" in what else everywhere)
        if what["do"] == "take frames":
            from tuning.probe.wire import take_frames

            take_frames(what["endpoint"], lambda: print("ready", flush=True))
            continue
        flags[0] = flags[_ANSWER_AT] = 0
        print("ready", flush=True)
        if what["do"] == "echo":
            _echo(reader, writer, what["count"], sleeping=what["sleeping"])
        elif what["do"] == "echo bytes":
            _echo_bytes(flags, what["count"])


if __name__ == "__main__":
    main()
