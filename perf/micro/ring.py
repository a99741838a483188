"""Messages through a ring between two processes, beside the slower of the two sides working alone.

Alone, in one process, each side finds the ring always empty or always full and no cache line on another core:
two that work at once cannot be faster than the slower one.
"""

from __future__ import annotations

import subprocess
import sys
import time

from perf.micro.result import Goal, Result, result_of
from perf.micro.ring_writer import CAPACITY_BYTES, messages
from perf.micro.rounds import alternate
from perf.micro.scale import Bench
from ringlog.limits import KIB
from ringlog.ring.doorbell import Doorbell
from ringlog.ring.ring import Ring, RingReader, ring_bytes
from ringlog.ring.shm import SharedMemory

SMALL_BYTES = 64
LARGE_BYTES = 64 * KIB
SILENCE_S = 30.0


def run(bench: Bench) -> list[Result]:
    return [
        _measure("ring-64b", SMALL_BYTES, bench.scale.ring_messages, bench, Goal.at_least(5, "M msg/s")),
        _measure(
            "ring-64k", LARGE_BYTES, bench.scale.ring_bytes // LARGE_BYTES, bench, Goal.at_least(4, "GB/s")
        ),
    ]


def _measure(name: str, message_bytes: int, count: int, bench: Bench, goal: Goal) -> Result:
    is_small = message_bytes == SMALL_BYTES
    per_message = 1e-6 if is_small else message_bytes / 1e9
    samples, limits = alternate(
        lambda: per_message * between_processes(message_bytes, count),
        lambda: per_message * _slower_side_alone(message_bytes, count),
        bench.scale.rounds,
    )
    return result_of(
        name,
        f"ring between two processes, messages of {'64 B' if is_small else '64 KiB'}",
        "M msg/s" if is_small else "GB/s",
        samples,
        "the slower side alone",
        limits,
        goal,
    )


class _Consumer:
    """Reads as a shard does: all that is there in one drain. Large bodies are copied out, as into an append buffer."""

    def __init__(self, reader: RingReader, message_bytes: int) -> None:
        self._reader = reader
        self._copy = memoryview(bytearray(message_bytes)) if message_bytes == LARGE_BYTES else None

    def take(self) -> int:
        """Read and release; how many messages there were."""
        rows = self._reader.drain().rows
        if rows["status"].any():
            raise ValueError("a frame came through the ring that is not as it was written")
        if self._copy is not None:
            memory = self._reader.memory
            for position, nbytes in rows[["body_position", "body_bytes"]].tolist():
                self._copy[:nbytes] = memory[position : position + nbytes]
        self._reader.release()
        return len(rows)


def between_processes(message_bytes: int, count: int) -> float:
    """Messages per second, from the first that was seen to the last."""
    with SharedMemory.create("bench", ring_bytes(CAPACITY_BYTES)) as shared, Doorbell.create() as bell:
        ring = Ring.create(shared.memory, capacity_bytes=CAPACITY_BYTES)
        reader = ring.reader(bell)
        consumer = _Consumer(reader, message_bytes)
        arguments = [shared.name, str(bell.fd), str(message_bytes), str(count)]
        writer = subprocess.Popen(
            [sys.executable, "-m", "perf.micro.ring_writer", *arguments], pass_fds=[bell.fd]
        )
        try:
            if not reader.wait(SILENCE_S):
                raise TimeoutError("the writer is silent")
            began = time.perf_counter()
            already = consumer.take()
            seen = already
            while seen < count:
                taken = consumer.take()
                seen += taken
                if not taken and not reader.wait(SILENCE_S):
                    raise TimeoutError(f"the writer fell silent after {seen} messages")
            return (count - already) / (time.perf_counter() - began)
        finally:
            writer.kill()
            writer.wait()
            reader.close()
            shared.unlink()


def _slower_side_alone(message_bytes: int, count: int) -> float:
    """Messages per second of the writing or the reading side, whichever is slower, without a second process."""
    ring = Ring.create(bytearray(ring_bytes(CAPACITY_BYTES)), capacity_bytes=CAPACITY_BYTES)
    writer, reader = ring.writer(), ring.reader()
    consumer = _Consumer(reader, message_bytes)
    offsets, data = messages(message_bytes)
    write_s = read_s = 0.0
    seen = 0
    while seen < count:
        began = time.perf_counter()
        while writer.write_many(offsets, data) == len(offsets) - 1:
            pass
        filled = time.perf_counter()
        while taken := consumer.take():
            seen += taken
        write_s += filled - began
        read_s += time.perf_counter() - filled
    return seen / max(write_s, read_s)
