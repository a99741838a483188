"""Reads the small files of a partition for tools: bounded, whole or not at all."""

from __future__ import annotations

from ringlog.disk.api import Disk
from ringlog.errors import CorruptFile
from ringlog.limits import MIB
from ringlog.log import envelope
from ringlog.log.jobs import file_size, read_file, run_now
from ringlog.log.producers import SNAPSHOT_MAGIC, ProducerEntry, ProducerTable, Snapshot

SMALL_FILE_BYTES_MAX = 64 * MIB
"""No state, snapshot or index comes near: an index has at most 10 MiB, the others a few."""


def read_small(disk: Disk, path: str) -> bytes:
    """The content of a small file. Raises OSError, and CorruptFile for one that is far too long to be any."""
    size = file_size(disk, path)
    if size > SMALL_FILE_BYTES_MAX:
        raise CorruptFile("length", SMALL_FILE_BYTES_MAX, f"{size} bytes; no such file has more than this")
    return run_now(disk, read_file(disk, path))


def read_snapshot(data: bytes) -> tuple[int, list[ProducerEntry]]:
    """The offset at which a snapshot was taken, and its producers. Raises CorruptFile."""
    snapshot = envelope.unseal(SNAPSHOT_MAGIC, data, Snapshot)
    return snapshot.next_offset, snapshot.producers


def entries_of(producers: ProducerTable) -> dict[int, ProducerEntry]:
    """The producers of a table by their id."""
    return {entry.producer_id: entry for entry in producers.entries}
