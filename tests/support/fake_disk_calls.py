"""Handles and calls of the fake disk, and the mistakes that it refuses as no kernel would."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ringlog.limits import BLOCK_BYTES
from tests.support.fake_disk_faults import Call
from tests.support.fake_disk_file import FakeInode

RUBBISH = 0xA5
"""What memory under a read holds before the read completed."""


class FakeFile:
    """A handle. It stays on its inode when the name is changed or removed."""

    def __init__(self, path: str, inode: FakeInode, *, writable: bool, direct: bool) -> None:
        self._path = path
        self.inode = inode
        self.writable = writable
        self.direct = direct
        self.is_open = True

    @property
    def path(self) -> str:
        return self._path


@dataclass(slots=True)
class Pending:
    """A queued or submitted call."""

    call: Call
    verdict: int | None
    file: FakeFile | None = None
    pieces: tuple[memoryview, ...] = ()
    data: bytes = b""
    into: memoryview | None = None
    durable: bool = False
    covers_sequence: int = 0


def complete_read(pending: Pending, inode: FakeInode) -> int:
    assert pending.into is not None
    position = pending.call.position
    data = inode.live[position : position + pending.call.length]
    pending.into[: len(data)] = data
    return len(data)


def clean(path: str) -> str:
    return os.path.normpath(path)


def require_writable(file: FakeFile) -> None:
    if not file.writable:
        raise OSError(errno.EINVAL, "opened for reading only", file.path)


def require_aligned(file: FakeFile, position: int, pieces: Sequence[memoryview]) -> None:
    assert position % BLOCK_BYTES == 0, f"direct: position {position} of {file.path} is not aligned"
    for piece in pieces:
        assert piece.nbytes % BLOCK_BYTES == 0, f"direct: {piece.nbytes} bytes for {file.path} are no blocks"
        address = np.frombuffer(piece, np.uint8).ctypes.data
        assert address % BLOCK_BYTES == 0, f"direct: memory at {address:#x} for {file.path} is not aligned"
