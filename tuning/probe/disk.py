"""Measures the disk through the node's own engines: durable writes by method, size and depth, and reads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ringlog.disk.api import Disk, File
from ringlog.disk.memory import aligned
from ringlog.errors import DiskFull
from ringlog.limits import BLOCK_BYTES, MIB
from tuning.probe.measured import BUFFERED, FLUSH, FRESH, REUSED, ReadPoint, WritePoint
from tuning.probe.statistics import percentile

AREA_BYTES = 256 * MIB
"""Of all files of one measurement together."""
COUNT_MIN = 3
"""A measurement has at least so many calls, also when its time is up."""


@contextmanager
def files(disk: Disk, directory: str, count: int, each_bytes: int, *, direct: bool) -> Iterator[list[File]]:
    """Files whose space is reserved, gone at the end."""
    free = disk.space(directory).free_bytes
    if free < 4 * count * each_bytes:
        raise DiskFull(
            f"{directory} has {free // MIB} MiB free, and a probe wants {4 * count * each_bytes // MIB}. "
            "Free some space, or probe another directory"
        )
    made: list[File] = []
    paths = [os.path.join(directory, f"probe-{os.getpid()}-{number}") for number in range(count)]
    try:
        for path in paths:
            made.append(disk.open(path, write=True, create=True, direct=direct))
            expect(disk.wait(disk.preallocate(made[-1], 0, each_bytes)), 0, path)
            expect(disk.wait(disk.flush(made[-1])), 0, path)
        yield made
    finally:
        for file in made:
            disk.close(file)
        for path in paths:
            if os.path.exists(path):
                os.unlink(path)


def measure_writes(
    disk: Disk, directory: str, *, method: str, size_bytes: int, depth: int, seconds: float
) -> list[WritePoint]:
    """Writes into fresh space, then over the same space again."""
    each = max(min(AREA_BYTES, 64 * MIB * depth) // depth // size_bytes, COUNT_MIN) * size_bytes
    block = aligned(size_bytes)
    block[:] = os.urandom(BLOCK_BYTES) * (size_bytes // BLOCK_BYTES)
    points = []
    with files(disk, directory, depth, each, direct=method != BUFFERED) as made:
        written = each
        for space in (FRESH, REUSED):
            # What was not reached while it was fresh is not used again as if it had been.
            area = each if space == FRESH else written
            latencies, took_s, reached = _write_for(
                disk, made, block, area, seconds / 2, flush=method in (FLUSH, BUFFERED), again=space == REUSED
            )
            written = max(reached, size_bytes)
            points.append(
                WritePoint(
                    method=method,
                    space=space,
                    size_bytes=size_bytes,
                    depth=depth,
                    count=len(latencies),
                    p50_us=percentile(latencies, 0.5) * 1e6,
                    p99_us=percentile(latencies, 0.99) * 1e6,
                    bytes_per_s=len(latencies) * size_bytes / took_s,
                )
            )
    return points


def _write_for(
    disk: Disk,
    made: list[File],
    block: memoryview,
    area: int,
    seconds: float,
    *,
    flush: bool,
    again: bool,
) -> tuple[list[float], float, int]:
    """Keep one durable write per file in flight; (latencies, seconds, bytes that every file has reached)."""
    size = block.nbytes
    positions = [0] * len(made)
    started: dict[int, tuple[int, float, bool]] = {}
    latencies: list[float] = []
    began = time.perf_counter()
    until = began + seconds

    def write(number: int) -> None:
        token = disk.write(made[number], [block], positions[number] % area, durable=not flush)
        positions[number] += size
        started[token] = (number, time.perf_counter(), flush)

    for number in range(len(made)):
        write(number)
    while started:
        for token, result in disk.completions(None):
            number, at, needs_flush = started.pop(token)
            if needs_flush:
                expect(result, size, made[number].path)
                started[disk.flush(made[number])] = (number, at, False)
                continue
            expect(result, 0 if flush else size, made[number].path)
            now = time.perf_counter()
            latencies.append(now - at)
            more = now < until or len(latencies) < COUNT_MIN
            if more and (again or positions[number] + size <= area):
                write(number)
    return latencies, time.perf_counter() - began, min(min(positions), area)


def measure_reads(
    disk: Disk, directory: str, shapes: list[tuple[int, int]], seconds: float, made_bytes: int = 64 * MIB
) -> list[ReadPoint]:
    """Direct reads of written space, of (size, depth) each: positions jump, so that nobody reads ahead for us."""
    with files(disk, directory, 1, made_bytes, direct=True) as [file]:
        block = aligned(MIB)
        block[:] = os.urandom(MIB)
        for position in range(0, made_bytes, MIB):
            expect(disk.wait(disk.write(file, [block], position, durable=False)), MIB, file.path)
        expect(disk.wait(disk.flush(file)), 0, file.path)
        return [
            _read_for(disk, file, made_bytes, size, depth, seconds / len(shapes)) for size, depth in shapes
        ]


def _read_for(disk: Disk, file: File, area: int, size: int, depth: int, seconds: float) -> ReadPoint:
    windows = [aligned(size) for _ in range(depth)]
    places = area // size
    next_place = _jumping(places)
    started: dict[int, tuple[int, float]] = {}
    latencies: list[float] = []
    began = time.perf_counter()
    until = began + seconds

    def read(number: int) -> None:
        token = disk.read(file, windows[number], next_place() * size)
        started[token] = (number, time.perf_counter())

    for number in range(depth):
        read(number)
    while started:
        for token, result in disk.completions(None):
            number, at = started.pop(token)
            expect(result, size, file.path)
            now = time.perf_counter()
            latencies.append(now - at)
            if now < until or len(latencies) < COUNT_MIN:
                read(number)
    took_s = time.perf_counter() - began
    return ReadPoint(
        size_bytes=size,
        depth=depth,
        count=len(latencies),
        p50_us=percentile(latencies, 0.5) * 1e6,
        p99_us=percentile(latencies, 0.99) * 1e6,
        bytes_per_s=len(latencies) * size / took_s,
    )


def _jumping(places: int) -> Callable[[], int]:
    """Places in an order that no read-ahead follows: a step that has no factor in common with powers of two."""
    place = 0

    def following() -> int:
        nonlocal place
        place = (place + 7919) % places
        return place

    return following


def expect(result: int, wanted: int, path: str) -> None:
    """A figure from calls that failed would be none."""
    if result != wanted:
        raise OSError(
            -result if result < 0 else 0, f"a call of the probe returned {result}, not {wanted}", path
        )
