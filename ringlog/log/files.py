"""The open segment files of one partition: opened when needed, closed when nobody uses them."""

from __future__ import annotations

from ringlog.disk.api import Disk, File
from ringlog.errors import check
from ringlog.log.names import LOG, offset_name

_IDLE_FILES_MAX = 2


class SegmentFile:
    """An open file with the number of calls under way on it."""

    __slots__ = ("base_offset", "file", "holders", "writable")

    def __init__(self, base_offset: int, file: File, writable: bool) -> None:
        self.base_offset = base_offset
        self.file = file
        self.writable = writable
        self.holders = 0


class SegmentFiles:
    """Hands out a partition's segment files. A file is never closed under a call that uses it."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._open: dict[int, SegmentFile] = {}
        """By base offset, in the order of last use."""

    def path_of(self, base_offset: int) -> str:
        return f"{self._path}/{offset_name(base_offset, LOG)}"

    def hold(self, base_offset: int, *, write: bool = False) -> SegmentFile:
        """The file of a segment, open until as many releases as holds. `write`: for appends too, and made if it
        is missing; whoever holds a segment that still grows must ask for that, because the handle is shared."""
        held = self._open.pop(base_offset, None)
        if held is None or (write and not held.writable):
            check(held is None or held.holders == 0, "a growing segment is only held for writing")
            if held is not None:
                self._disk.close(held.file)
            file = self._disk.open(self.path_of(base_offset), write=write, create=write, direct=True)
            held = SegmentFile(base_offset, file, write)
        self._open[base_offset] = held
        held.holders += 1
        return held

    def release(self, held: SegmentFile) -> None:
        check(held.holders > 0, "a file is released once for each hold")
        held.holders -= 1
        idle = [f for f in self._open.values() if f.holders == 0]
        for file in idle[:-_IDLE_FILES_MAX]:
            self._disk.close(self._open.pop(file.base_offset).file)

    def close(self) -> None:
        """Close everything. No call may be under way."""
        for held in self._open.values():
            self._disk.close(held.file)
        self._open.clear()
