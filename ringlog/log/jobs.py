"""Jobs: work that takes several disk calls, written top to bottom as a generator.

A job yields the token of a queued disk call and is sent its result. The same job runs in the background of
a shard, a step per completion, or at once while a log is being opened or closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TypeVar

from ringlog.disk.api import Disk, File
from ringlog.errors import RinglogError

T = TypeVar("T")
Job = Generator[int, int, T]


def must(result: int, what: str) -> int:
    """The result of a disk call, or the OSError that it stands for."""
    if result < 0:
        raise OSError(-result, f"{what}: {os.strerror(-result)}")
    return result


def run_now(disk: Disk, job: Job[T]) -> T:
    """Run a job to its end, waiting for each call."""
    try:
        token = next(job)
        while True:
            token = job.send(disk.wait(token))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def run_together(disk: Disk, jobs: Sequence[Job[T]]) -> list[T | OSError | RinglogError]:
    """Run jobs to their ends, side by side: each one's result, or what stopped it. What all of them wait for is
    submitted at once, so that a hundred flushes take little longer than one."""
    outcomes: dict[int, T | OSError | RinglogError] = {}
    tokens: dict[int, int] = {}

    def step(number: int, go_on: Callable[[], int]) -> None:
        try:
            tokens[number] = go_on()
        except StopIteration as end:
            outcomes[number] = end.value
        except (OSError, RinglogError) as error:
            outcomes[number] = error

    for number, job in enumerate(jobs):
        step(number, partial(next, job))
    while tokens:
        results = {number: disk.wait(token) for number, token in tokens.items()}
        tokens.clear()
        for number, result in results.items():
            step(number, partial(jobs[number].send, result))
    return [outcomes[number] for number in range(len(jobs))]


class Dispatcher:
    """Knows who waits for which token."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: dict[int, Callable[[int], None]] = {}
        self._early: dict[int, int] = {}
        """Results of calls that a job queued ahead and does not wait for yet."""
        self._watching: dict[int, Callable[[int], None]] = {}

    def when_done(self, token: int, then: Callable[[int], None]) -> None:
        self._waiting[token] = then

    def whenever(self, token: int, then: Callable[[int], None]) -> None:
        """Call `then` for each completion of a watch, which has more than one."""
        self._watching[token] = then

    def spawn(
        self, job: Job[T], done: Callable[[T], None], failed: Callable[[OSError | RinglogError], None]
    ) -> None:
        """Run a job in the background; exactly one of `done` and `failed` is called."""
        self._advance(job, lambda: next(job), done, failed)

    def _advance(
        self,
        job: Job[T],
        step: Callable[[], int],
        done: Callable[[T], None],
        failed: Callable[[OSError | RinglogError], None],
    ) -> None:
        try:
            token = step()
            while token in self._early:
                token = job.send(self._early.pop(token))
        except StopIteration as end:
            done(end.value)
        except (OSError, RinglogError) as error:
            failed(error)
        else:
            self._waiting[token] = lambda result: self._advance(job, lambda: job.send(result), done, failed)

    def deliver(self, wait_s: float | None) -> int:
        """Hand the completions to those who wait for them; returns how many there were."""
        completions = self._disk.completions(wait_s)
        for token, result in completions:
            then = self._waiting.pop(token, None) or self._watching.get(token)
            if then is None:
                self._early[token] = result
            else:
                then(result)
        return len(completions)


def file_size(disk: Disk, path: str) -> int:
    """The length of a file that is not open."""
    file = disk.open(path)
    try:
        return disk.size(file)
    finally:
        disk.close(file)


def read_file(disk: Disk, path: str) -> Job[bytes]:
    """The content of a small file. Raises FileNotFoundError or OSError."""
    file = disk.open(path)
    try:
        buffer = bytearray(disk.size(file))
        filled = 0
        while filled < len(buffer):
            got = must((yield disk.read(file, memoryview(buffer)[filled:], filled)), f"read {path}")
            if got == 0:
                break
            filled += got
        return bytes(buffer[:filled])
    finally:
        disk.close(file)


def write_file(disk: Disk, path: str, data: bytes, position: int = 0) -> Job[None]:
    """Make a small file hold exactly `data` from `position` on, flushed."""
    file = disk.open(path, write=True, create=True)
    try:
        disk.truncate(file, position + len(data))
        if data:
            yield from write_fully(disk, file, data, position)
        must((yield disk.flush(file)), f"flush {path}")
    finally:
        disk.close(file)


def write_fully(
    disk: Disk, file: File, data: bytes | memoryview, position: int, *, durable: bool = False
) -> Job[None]:
    """Write data in one go; a short write is an error, as everywhere."""
    token = disk.write(file, [memoryview(data)], position, durable=durable)
    wrote = must((yield token), f"write {file.path}")
    if wrote != len(data):
        raise OSError(f"write {file.path}: only {wrote} of {len(data)} bytes")


def replace_file(disk: Disk, path: str, data: bytes) -> Job[None]:
    """Replace a file atomically: after a crash it holds the old content or the new, never a mixture."""
    yield from write_file(disk, path + ".tmp", data)
    disk.rename(path + ".tmp", path)
    must((yield disk.flush_dir(os.path.dirname(path))), f"flush directory of {path}")
