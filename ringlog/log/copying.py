"""Copies bytes of segment files, a window at a time: aside before they are cut, or onto themselves."""

from __future__ import annotations

import errno
import mmap
import os

from ringlog.disk.api import Disk, File
from ringlog.limits import BLOCK_BYTES
from ringlog.log.extent import block_ceil, block_floor
from ringlog.log.jobs import Job, must, write_fully
from ringlog.log.scanner import Scratch


def save_range(disk: Disk, file: File, start: int, stop: int, path: str, scratch: Scratch) -> Job[None]:
    """Copy the bytes [start, stop) of a file to a file of their own, flushed under its name."""
    window = scratch.window
    copy = disk.open(path, write=True, create=True)
    try:
        for begin in range(block_floor(start), stop, window.nbytes):
            length = min(window.nbytes, block_ceil(stop) - begin)
            got = must((yield disk.read(file, window[:length], begin)), f"read {file.path}")
            low, high = max(start, begin), min(stop, begin + got)
            if low < high:
                yield from write_fully(disk, copy, window[low - begin : high - begin], low - start)
        must((yield disk.flush(copy)), f"flush {path}")
    finally:
        disk.close(copy)
    must((yield disk.flush_dir(os.path.dirname(path))), f"flush directory of {path}")


def read_block_head(disk: Disk, file: File, position: int, length: int) -> Job[memoryview]:
    """The first bytes of the block at `position`. Raises OSError when the file has fewer there."""
    block = memoryview(mmap.mmap(-1, BLOCK_BYTES))  # aligned, as a direct read wants it
    got = must((yield disk.read(file, block, position)), f"read {file.path}")
    if got < length:
        raise OSError(
            errno.EIO, f"the last block of {file.path} holds {got} bytes where {length} were written"
        )
    return block[:length]


def rewrite_range(disk: Disk, file: File, start: int, stop: int, scratch: Scratch) -> Job[None]:
    """Write the blocks that hold the bytes [start, stop) of a file once more, flushed. The file may become longer,
    up to the end of its last block.

    After a flush failed, what is read back may be in a cache only, and count as clean there: then no later flush
    writes it. A write does."""
    window = scratch.window
    for begin in range(block_floor(start), stop, window.nbytes):
        blocks = window[: min(window.nbytes, block_ceil(stop) - begin)]
        got = must((yield disk.read(file, blocks, begin)), f"read {file.path}")
        blocks[got:] = bytes(blocks.nbytes - got)
        yield from write_fully(disk, file, blocks, begin, durable=True)
