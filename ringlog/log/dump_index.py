"""Shows the entries of offset and time indexes, a part of the file at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ringlog.disk.api import Disk
from ringlog.limits import MIB
from ringlog.log.dump_lines import IndexEntry, TimeIndexEntry, Unreadable
from ringlog.log.index import OFFSET_ENTRY, TIME_ENTRY
from ringlog.log.jobs import must

_Pair = tuple[int, int]


def dump_index(
    disk: Disk, path: str, base_offset: int, from_offset: int = 0
) -> Iterator[IndexEntry | Unreadable]:
    """The entries of an offset index; one that does not increase is followed by why that is wrong."""
    for at, found in _entries(disk, path, OFFSET_ENTRY, lowest=(0, 0)):
        if isinstance(found, str):
            yield Unreadable(at, at + OFFSET_ENTRY.itemsize, found)
        elif base_offset + found[0] >= from_offset:
            yield IndexEntry(at, base_offset + found[0], found[1])


def dump_time_index(
    disk: Disk, path: str, base_offset: int, from_offset: int = 0
) -> Iterator[TimeIndexEntry | Unreadable]:
    """The entries of a time index; one that does not increase is followed by why that is wrong."""
    for at, found in _entries(disk, path, TIME_ENTRY, lowest=(-1, 0)):
        if isinstance(found, str):
            yield Unreadable(at, at + TIME_ENTRY.itemsize, found)
        elif base_offset + found[1] >= from_offset:
            yield TimeIndexEntry(at, found[0], base_offset + found[1])


def _entries(
    disk: Disk, path: str, entry: np.dtype[np.void], lowest: _Pair
) -> Iterator[tuple[int, _Pair | str]]:
    """Where each entry begins and its two numbers; then what is wrong with it, if anything is."""
    last = (lowest[0] - 1, lowest[1] - 1)
    for at, data in _parts(disk, path, entry.itemsize):
        whole = len(data) - len(data) % entry.itemsize
        for row, pair in enumerate(np.frombuffer(data[:whole], entry).tolist()):
            yield at + row * entry.itemsize, pair
            if pair[0] <= last[0] or pair[1] <= last[1]:
                yield at + row * entry.itemsize, "both numbers of an entry must increase, from 0 on"
            last = pair
        if whole < len(data):
            yield at + whole, f"the file ends inside an entry of {entry.itemsize} bytes"


def _parts(disk: Disk, path: str, entry_bytes: int) -> Iterator[tuple[int, bytes]]:
    """The content of a file in parts of whole entries, but for the last one."""
    file = disk.open(path)
    try:
        memory = memoryview(bytearray(MIB // entry_bytes * entry_bytes))
        size, begin = disk.size(file), 0
        while begin < size:
            wanted = min(memory.nbytes, size - begin)
            got = must(disk.wait(disk.read(file, memory[:wanted], begin)), f"read {path}")
            if got:
                yield begin, bytes(memory[:got])
            if got < memory.nbytes:
                return
            begin += got
    finally:
        disk.close(file)
