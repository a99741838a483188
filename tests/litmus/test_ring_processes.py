"""Two real Python processes over named shared memory and a doorbell, one of them killed again and again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringlog.errors import RingStale
from ringlog.ring import shm
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.ring import Ring, RingReader, ring_bytes
from ringlog.ring.shm import SharedMemory
from tests.support.amounts import amount

CHILD = Path(__file__).parent / "ring_child.py"
CAPACITY = 1 << 16
KILLS = amount(short=5, full=100)


def body_of(number: int) -> bytes:
    return number.to_bytes(8, "little") * (1 + number % 50)


class Generation:
    """What an owner makes for one writer: memory, a ring in it, a doorbell, the process."""

    def __init__(self, number: int, first: int) -> None:
        self.shared = SharedMemory.create("litmus", ring_bytes(CAPACITY))
        self.ring = Ring.create(self.shared.memory, capacity_bytes=CAPACITY, generation=number)
        self.doorbell = Doorbell.create()
        self.reader: RingReader = self.ring.reader(self.doorbell)
        arguments = [self.shared.name, number, self.doorbell.fd, first]
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), *map(str, arguments)], pass_fds=[self.doorbell.fd]
        )

    def read(self, first: int) -> int:
        """Check and release what is there; the number expected next."""
        expected = first
        for message in self.reader.read_all():
            assert message.body == body_of(expected)
            expected += 1
        self.reader.release()
        return expected

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.close()
        self.shared.unlink()
        self.shared.close()
        self.doorbell.close()


@pytest.fixture
def generations() -> Iterator[list[Generation]]:
    made: list[Generation] = []
    yield made
    for generation in made:
        generation.end()


def test_after_each_kill_of_the_writer_the_reader_goes_on_with_the_next_generation(generations) -> None:
    expected = 0
    for number in range(1, KILLS + 1):
        generation = Generation(number, expected)
        generations.append(generation)
        target = expected + 300 + 37 * number
        while expected < target:
            assert generation.reader.wait(30), "the writer is silent"
            expected = generation.read(expected)
        generation.process.send_signal(signal.SIGKILL)
        generation.process.wait()
        killed_s = time.monotonic()
        while (after := generation.read(expected)) != expected:  # whole messages to the last one
            expected = after
        generation.ring.retire()
        with pytest.raises(RingStale):
            generation.reader.read_all()
        successor = Ring.create(
            bytearray(ring_bytes(CAPACITY)), capacity_bytes=CAPACITY, generation=number + 1
        )
        assert successor.writer().write(b"resumed")
        assert [bytes(message.body) for message in successor.reader().read_all()] == [b"resumed"]
        assert time.monotonic() - killed_s < 1.0


def test_a_writer_stops_by_itself_when_its_generation_is_retired(generations) -> None:
    generation = Generation(1, 0)
    generations.append(generation)
    assert generation.reader.wait(30)
    generation.ring.retire()
    assert generation.process.wait(30) == 3


def test_a_sweep_takes_what_a_killed_process_left_and_nothing_else(generations) -> None:
    ours = SharedMemory.create("litmus-ours", 4096)
    script = "import sys; from ringlog.ring.shm import SharedMemory as S; s = S.create('litmus-left', 4096);"
    script += "print(s.name, flush=True); sys.stdin.read()"
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None and owner.stdin is not None
    name = owner.stdout.readline().strip()
    try:
        assert name not in shm.sweep()  # its owner lives
        owner.kill()
        owner.wait()
        swept = shm.sweep()
        assert name in swept and ours.name not in swept
        with pytest.raises(FileNotFoundError):
            SharedMemory.open(name)
    finally:
        owner.stdin.close()
        owner.stdout.close()
        ours.unlink()
        ours.close()
