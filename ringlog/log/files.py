"""The open segment files of one partition: opened when needed, closed when nobody uses them."""

from __future__ import annotations

from ringlog.disk.api import Disk, File
from ringlog.errors import check
from ringlog.log.names import CLEAN, LOG, offset_name

_IDLE_FILES_MAX = 2


class SegmentFile:
    """An open file with the number of calls under way on it."""

    __slots__ = ("file", "holders", "key", "writable")

    def __init__(self, key: tuple[int, bool], file: File, writable: bool) -> None:
        self.key = key
        """Base offset, and whether it has the name that compaction gives first."""
        self.file = file
        self.writable = writable
        self.holders = 0


class SegmentFiles:
    """Hands out a partition's segment files. A file is never closed under a call that uses it."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._open: dict[tuple[int, bool], SegmentFile] = {}
        """By key, in the order of last use."""

    def path_of(self, base_offset: int, *, clean: bool = False) -> str:
        return f"{self._path}/{offset_name(base_offset, LOG)}{CLEAN if clean else ''}"

    def hold(self, base_offset: int, *, write: bool = False, clean: bool = False) -> SegmentFile:
        """The file of a segment, open until as many releases as holds. `write`: for appends too, and made if it
        is missing; whoever holds a segment that still grows must ask for that, because the handle is shared.
        `clean`: the one that compaction wrote, before it has the segment's name."""
        key = (base_offset, clean)
        held = self._open.pop(key, None)
        if held is None or (write and not held.writable):
            check(held is None or held.holders == 0, "a growing segment is only held for writing")
            if held is not None:
                self._disk.close(held.file)
            path = self.path_of(base_offset, clean=clean)
            file = self._disk.open(path, write=write, create=write, direct=True)
            held = SegmentFile(key, file, write)
        self._open[key] = held
        held.holders += 1
        return held

    def release(self, held: SegmentFile) -> None:
        check(held.holders > 0, "a file is released once for each hold")
        held.holders -= 1
        idle = [f for f in self._open.values() if f.holders == 0]
        for file in idle[:-_IDLE_FILES_MAX]:
            self._disk.close(self._open.pop(file.key).file)

    def drop(self, base_offset: int) -> None:
        """Close the file of a segment that is about to be deleted or replaced. Nobody may hold it."""
        held = self._open.pop((base_offset, False), None)
        if held is not None:
            check(held.holders == 0, "a file is given up when nobody reads it")
            self._disk.close(held.file)

    def renamed(self, base_offset: int) -> None:
        """What compaction wrote has the segment's name now; those who hold it go on."""
        held = self._open.pop((base_offset, True), None)
        if held is not None:
            held.key = (base_offset, False)
            self._open[held.key] = held

    def close(self) -> None:
        """Close everything. No call may be under way."""
        for held in self._open.values():
            self._disk.close(held.file)
        self._open.clear()
