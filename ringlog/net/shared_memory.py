"""Memory that one process of a host lets another one read, or write: a memfd, found by its descriptor in /proc.

It must be sealed against a change of its size. Whoever touches a mapping beyond the end of its file is killed, and a
client that could cut its file off could kill a process of the node.
"""

from __future__ import annotations

import fcntl
import mmap
import os

from ringlog.errors import InvalidRequest, LimitExceeded
from ringlog.limits import NEAR_MEMORY_BYTES_MAX

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def make_shared(name: str, nbytes: int) -> int:
    """The descriptor of new memory that others may map. OSError where the system gives none."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, nbytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def map_shared(process: int, descriptor: int, nbytes: int, *, writable: bool = False) -> memoryview:
    """The memory that another process has behind a descriptor, to be read, or written as well. What cannot be mapped
    so, or must not be, is an InvalidRequest."""
    if nbytes <= 0:
        raise InvalidRequest(f"{nbytes} bytes of memory")
    if nbytes > NEAR_MEMORY_BYTES_MAX:
        raise LimitExceeded(f"{nbytes} bytes of memory; at most {NEAR_MEMORY_BYTES_MAX} are mapped")
    path = f"/proc/{process}/fd/{descriptor}"
    try:
        # To open, or only to look at, another kind might have effects, or never end.
        if not os.readlink(path).startswith("/memfd:"):
            raise InvalidRequest(f"descriptor {descriptor} is no memory")
        mode = os.O_RDWR if writable else os.O_RDONLY
        opened = os.open(path, mode | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if fcntl.fcntl(opened, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
                raise InvalidRequest(f"descriptor {descriptor} is not sealed against a change of its size")
            access = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
            return memoryview(mmap.mmap(opened, nbytes, mmap.MAP_SHARED, access))
        finally:
            os.close(opened)
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            f"{nbytes} bytes of process {process}'s memory cannot be mapped: {error}"
        ) from None
