"""The producers' state at any offset of a log: the newest good snapshot below it, and the batches since."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from ringlog.disk.api import Disk
from ringlog.errors import CorruptFile
from ringlog.log.files import SegmentFiles
from ringlog.log.jobs import Job, read_file
from ringlog.log.names import SNAPSHOT, free_name, offset_name, parse_offset_name
from ringlog.log.producers import ProducerTable
from ringlog.log.replay import replay_producers
from ringlog.log.scanner import Scratch, scan_file


class SegmentPart(NamedTuple):
    """A segment, or its beginning."""

    base_offset: int
    next_offset: int
    nbytes: int
    is_clean_named: bool = False
    is_growing: bool = False


def producers_at(
    disk: Disk,
    path: str,
    files: SegmentFiles,
    parts: Iterable[SegmentPart],
    offset: int,
    now_ms: int,
    scratch: Scratch,
    tell: Callable[[str], None],
    rotten: Callable[[int, str], None],
    is_over: Callable[[], bool] = lambda: False,
    within: Callable[[], None] = lambda: None,
) -> Job[ProducerTable]:
    """What the batches below `offset` made of the producers. Snapshots that cannot be used are set aside.
    `rotten`: called with the base offset of a segment that cannot be read to its end, and why. What is returned then
    lacks batches, and would take them again: whoever goes on with it must refuse that segment from now on.
    `is_over`: nobody wants to know any more; what is returned then is not all of it.
    `within`: called when the offset lies within a batch."""
    since, producers = yield from _newest_snapshot(disk, path, offset, tell)
    if since == offset:
        return producers

    def visit(table: np.ndarray) -> None:
        is_below = table["last_offset"] < offset
        replay_producers(producers, table[(table["base_offset"] >= since) & is_below], now_ms)
        if (~is_below & (table["base_offset"] < offset)).any():
            within()

    for part in parts:
        if part.next_offset <= since or part.nbytes == 0:
            continue
        if is_over():
            break
        held = files.hold(part.base_offset, write=part.is_growing, clean=part.is_clean_named)
        try:
            end = yield from scan_file(
                disk,
                held.file,
                0,
                part.nbytes,
                visit,
                expected_offset=part.base_offset,
                dense=False,
                scratch=scratch,
                is_over=is_over,
            )
        finally:
            files.release(held)
        if end.position < part.nbytes and end.next_offset < offset and not is_over():
            why = end.fault or f"its file ends at byte {end.position}, before {part.nbytes}"
            rotten(part.base_offset, str(why))
    return producers


def snapshot_offsets(disk: Disk, path: str) -> set[int]:
    """Where the snapshots of a partition were taken, by the names of their files."""
    found = [parsed for name, _ in disk.list_dir(path) if (parsed := parse_offset_name(name))]
    return {parsed.offset for parsed in found if parsed.suffix == SNAPSHOT}


def _newest_snapshot(
    disk: Disk, path: str, offset: int, tell: Callable[[str], None]
) -> Job[tuple[int, ProducerTable]]:
    """The newest good snapshot at or below an offset, and where it was taken; (0, nothing) without one."""
    for taken in sorted(snapshot_offsets(disk, path), reverse=True):
        if taken > offset:
            continue
        name = offset_name(taken, SNAPSHOT)
        data = yield from read_file(disk, f"{path}/{name}")
        try:
            return taken, ProducerTable.decode(data, taken)
        except CorruptFile as error:
            aside = free_name(disk, path, name, "bad")
            disk.rename(f"{path}/{name}", f"{path}/{aside}")
            tell(f"{name} could not be used ({error}); it was renamed to {aside}")
    tell("no snapshot of producers could be used; replaying the log")
    return 0, ProducerTable()
