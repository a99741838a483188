"""The limit that the disk sets: durable direct writes and reads of a file, with nothing around them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ringlog.disk.api import Disk, File
from ringlog.disk.memory import aligned

RWF_DSYNC = 0x02
"""The kernel's number; the os module has the flag only where the C library names it."""


def random_block(nbytes: int) -> memoryview:
    """Aligned memory full of random bytes."""
    block = aligned(nbytes)
    block[:] = os.urandom(nbytes)
    return block


def make_reserved(disk: Disk, path: str, nbytes: int) -> File:
    """A file whose space is reserved, as a log's is before it writes."""
    file = disk.open(path, write=True, create=True, direct=True)
    expect(disk.wait(disk.preallocate(file, 0, nbytes)), 0)
    expect(disk.wait(disk.flush(file)), 0)
    return file


def write_by_system_calls(path: str, block: memoryview, start: int, stop: int) -> None:
    """Durable writes one after another, each a system call."""
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    try:
        for position in range(start, stop, block.nbytes):
            expect(os.pwritev(fd, [block], position, RWF_DSYNC), block.nbytes)
    finally:
        os.close(fd)


def write_by_engine(disk: Disk, file: File, block: memoryview, start: int, stop: int) -> None:
    """The same, each a submission of the disk engine."""
    for position in range(start, stop, block.nbytes):
        expect(disk.wait(disk.write(file, [block], position, durable=True)), block.nbytes)


def write_everywhere(disk: Disk, files: Sequence[File], block: memoryview, position: int) -> None:
    """One durable write to each file, all in one submission; returns when all are done."""
    for file in files:
        disk.write(file, [block], position, durable=True)
    disk.submit()
    missing = len(files)
    while missing:
        for completion in disk.completions(None):
            expect(completion.result, block.nbytes)
            missing -= 1


def read_ahead(disk: Disk, file: File, windows: Sequence[memoryview], nbytes: int) -> None:
    """Read a file of `nbytes` from its start to its end, as many windows in flight as are given."""
    waiting: list[int] = []
    position = 0
    while position < nbytes or waiting:
        while position < nbytes and len(waiting) < len(windows):
            window = windows[(position // windows[0].nbytes) % len(windows)]
            waiting.append(disk.read(file, window, position))
            position += window.nbytes
            disk.submit()
        if disk.wait(waiting.pop(0)) < 0:
            raise OSError(f"read {file.path}")


def expect(result: int, wanted: int) -> None:
    """A limit that was measured on failed calls would be none."""
    if result != wanted:
        raise OSError(-result if result < 0 else 0, f"a raw disk call returned {result}, not {wanted}")
