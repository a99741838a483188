"""Shows what the files of a partition hold, line by line, without opening the log: for people and scripts.

Everything is read in bounded parts and nothing is ever written. A part that cannot be read is a line too
(`Unreadable`), and the lines go on behind it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np

from ringlog.disk.api import Disk
from ringlog.errors import CorruptBatch, CorruptFile, InvalidRequest
from ringlog.log.dump_index import dump_index, dump_time_index
from ringlog.log.dump_lines import (
    Batch,
    IndexEntry,
    Line,
    Preallocated,
    SnapshotHead,
    TimeIndexEntry,
    Unreadable,
)
from ringlog.log.known_files import FileKind, KnownFile, known_file
from ringlog.log.names import LOG, offset_name
from ringlog.log.owner import Owner, read_owner
from ringlog.log.point import MovedPoint, read_slots
from ringlog.log.producers import ProducerEntry
from ringlog.log.small_files import read_small, read_snapshot
from ringlog.log.state import PartitionState
from ringlog.log.walk import Broken, Run, Zeros, walk
from ringlog.records.decode import Record, decode

__all__ = [
    "Batch",
    "FileKind",
    "IndexEntry",
    "Line",
    "MovedPoint",
    "Owner",
    "PartitionState",
    "Preallocated",
    "ProducerEntry",
    "Record",
    "SnapshotHead",
    "TimeIndexEntry",
    "Unreadable",
    "dump_file",
    "require_known",
    "segment_paths",
]


def segment_paths(disk: Disk, directory: str, from_offset: int = 0) -> list[str]:
    """The segment files of a partition's directory, ascending, without those that end before an offset."""
    bases = [
        known.offset
        for name, _ in disk.list_dir(directory)
        if (known := known_file(name)) and known.is_live and known.kind is FileKind.SEGMENT
    ]
    first = max((at for at, base in enumerate(bases) if base <= from_offset), default=0)
    return [f"{directory}/{offset_name(base, LOG)}" for base in bases[first:]]


def require_known(path: str) -> KnownFile:
    """What a file is by its name. Raises InvalidRequest for a name that says nothing.

    >>> require_known("/data/orders-0/00000000000000000042.index").offset
    42
    """
    known = known_file(path.rpartition("/")[2])
    if known is None:
        raise InvalidRequest(
            f"{path}: the name does not tell what the file is. Give it the name that ringlog gave it: "
            "20 digits and .log, .index, .timeindex or .snapshot, partition.state, partition.point or "
            "partition.owner"
        )
    return known


def dump_batches(disk: Disk, path: str, from_offset: int = 0) -> Iterator[Batch | Unreadable | Preallocated]:
    """The batches of a segment file whose last offset is at least `from_offset`.

    A batch of which only the CRC is wrong is shown as it claims to be, and then as unreadable.
    """
    for item in walk(disk, path):
        if isinstance(item, Run):
            for row in item.table[item.table["last_offset"] >= from_offset].tolist():
                yield Batch.of(row)
        else:
            yield from _not_batches(item)


def dump_records(
    disk: Disk, path: str, from_offset: int = 0
) -> Iterator[Record | Batch | Unreadable | Preallocated]:
    """The records of a segment file from an offset on, those of control batches included."""
    for item in walk(disk, path):
        if not isinstance(item, Run):
            yield from _not_batches(item)
            continue
        for at in np.flatnonzero(item.table["last_offset"] >= from_offset).tolist():
            yield from _records(item, at, from_offset)


def _records(run: Run, row: int, from_offset: int) -> Iterator[Record | Unreadable]:
    begin = int(run.table["position"][row])
    try:
        records = decode(run.batch(row), include_control=True, check_crc=False)
    except CorruptBatch as fault:
        where = CorruptBatch(fault.field, begin + fault.position, fault.reason)
        yield Unreadable(begin, begin + int(run.table["length"][row]), str(where))
        return
    for record in records:
        if record.offset >= from_offset:
            yield record


def _not_batches(item: Broken | Zeros) -> Iterator[Batch | Unreadable | Preallocated]:
    if isinstance(item, Zeros):
        yield Preallocated(item.position, item.end)
        return
    if item.header is not None:
        header = item.header.copy()
        header["position"] += item.position
        yield Batch.of(header.item(), crc_ok=False)
    yield Unreadable(item.position, item.end, str(item.fault))


def dump_state(disk: Disk, path: str) -> Iterator[PartitionState | Unreadable]:
    """The content of a `partition.state` file."""
    try:
        data = read_small(disk, path)
        yield PartitionState.decode(data)
    except CorruptFile as error:
        yield Unreadable(0, error.position, str(error))


def dump_point(disk: Disk, path: str) -> Iterator[MovedPoint | Unreadable]:
    """The slots of a `partition.point` file. One that cannot be read is normal after a crash: the other is in force."""
    for slot in read_slots(read_small(disk, path)):
        yield Unreadable(slot.position, slot.position, str(slot)) if isinstance(slot, CorruptFile) else slot


def dump_owner(disk: Disk, path: str) -> Iterator[Owner | Unreadable]:
    """The content of a `partition.owner` file."""
    try:
        yield read_owner(read_small(disk, path))
    except CorruptFile as error:
        yield Unreadable(0, error.position, str(error))


def dump_snapshot(disk: Disk, path: str) -> Iterator[SnapshotHead | ProducerEntry | Unreadable]:
    """The content of a snapshot of producers."""
    try:
        next_offset, producers = read_snapshot(read_small(disk, path))
    except CorruptFile as error:
        yield Unreadable(0, error.position, str(error))
        return
    yield SnapshotHead(next_offset, len(producers))
    yield from producers


def dump_file(
    disk: Disk, path: str, *, records: bool = False, from_offset: int = 0
) -> Generator[Line, None, None]:
    """The lines of one file, whatever it is by its name; also of one that was set aside (`*.cut`, `*.bad`).

    >>> from ringlog.disk.plain import PlainDisk
    >>> next(dump_file(PlainDisk(), "/data/orders-0/notes.txt"))
    Traceback (most recent call last):
    ...
    ringlog.errors.InvalidRequest: /data/orders-0/notes.txt: the name does not tell what the file is. Give it \
the name that ringlog gave it: 20 digits and .log, .index, .timeindex or .snapshot, partition.state, \
partition.point or partition.owner
    """
    known = require_known(path)
    match known.kind:
        case FileKind.SEGMENT:
            lines = dump_records if records else dump_batches
            yield from lines(disk, path, from_offset)
        case FileKind.OFFSET_INDEX:
            yield from dump_index(disk, path, known.offset, from_offset)
        case FileKind.TIME_INDEX:
            yield from dump_time_index(disk, path, known.offset, from_offset)
        case FileKind.SNAPSHOT:
            yield from dump_snapshot(disk, path)
        case FileKind.STATE:
            yield from dump_state(disk, path)
        case FileKind.POINT:
            yield from dump_point(disk, path)
        case FileKind.OWNER:
            yield from dump_owner(disk, path)
