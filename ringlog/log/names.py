"""File names in a partition's directory, and what each file is.

==============================  ====================================================================
`00000000000000000042.log`      a segment: the batches from offset 42 on
`00000000000000000042.index`    its offset index; derived, rebuilt when missing or wrong
`00000000000000000042.timeindex`  its time index; derived likewise
`00000000000000000042.snapshot`   producer state just before offset 42; derived
`partition.state`               recovery point, log start, catalogue of sealed segments
`partition.point`               where the recovery point was moved since; the state is true without it
`partition.owner`               for which partition of which cluster the directory was made
`*.cut`                         bytes that were cut or truncated from a segment; never read, never deleted
`*.bad`                         a file that could not be used; never read, never deleted, but for all but a few rotten
                                segments whose records another replica had
`*.spare`                       a segment that stood behind a hole; deleted when the replica has all records again
`*.tmp`                         an unfinished replacement; removed at open
`*.clean`                       what compaction wrote; removed at open, or given its name if the state says so
==============================  ====================================================================
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ringlog.disk.api import Disk
from ringlog.errors import InvalidRequest
from ringlog.model import TopicPartition

STATE_NAME = "partition.state"
POINT_NAME = "partition.point"
OWNER_NAME = "partition.owner"
LOG, INDEX, TIME_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".snapshot"
CLEAN = ".clean"
BAD, SPARE = "bad", "spare"

_OFFSET_NAME = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.snapshot)")
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION_DIR = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,8})")


class OffsetName(NamedTuple):
    """A file that is named by an offset."""

    offset: int
    suffix: str


def offset_name(offset: int, suffix: str) -> str:
    """The name of a segment, index or snapshot.

    >>> offset_name(42, LOG)
    '00000000000000000042.log'
    """
    return f"{offset:020d}{suffix}"


def parse_offset_name(name: str) -> OffsetName | None:
    """The offset and kind that a file name stands for, or None for any other file.

    >>> parse_offset_name("00000000000000000042.index")
    OffsetName(offset=42, suffix='.index')
    """
    found = _OFFSET_NAME.fullmatch(name)
    return OffsetName(int(found[1]), found[2]) if found else None


def partition_dir(root: str, partition: TopicPartition) -> str:
    """Where a partition lives below a data directory. Refuses names that could lead elsewhere.

    >>> partition_dir("/data", TopicPartition("orders", 3))
    '/data/orders-3'
    """
    topic, number = partition
    if not _TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
        raise InvalidRequest(
            f"topic name {topic!r}: use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'"
        )
    if number < 0:
        raise InvalidRequest(f"partition {number}: partitions count from 0")
    return os.path.join(root, str(partition))


def parse_partition_dir(name: str) -> TopicPartition | None:
    """The partition that a directory name stands for, or None.

    >>> parse_partition_dir("orders-3")
    TopicPartition(topic='orders', partition=3)
    """
    found = _PARTITION_DIR.fullmatch(name)
    return TopicPartition(found[1], int(found[2])) if found else None


def free_name(disk: Disk, path: str, stem: str, suffix: str) -> str:
    """`stem.suffix`, or with a number in between when a file of that name is there: nothing is overwritten."""
    name, number = f"{stem}.{suffix}", 1
    while disk.exists(f"{path}/{name}"):
        number += 1
        name = f"{stem}.{number}.{suffix}"
    return name
