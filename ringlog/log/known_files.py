"""Tells by its name what a file in a partition's directory is, or was before it was set aside."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

_NAME = re.compile(
    r"(?:(?P<offset>\d{20})(?P<suffix>\.log|\.index|\.timeindex|\.snapshot)|partition\.(?P<whole>state|point|owner))"
    r"(?P<aside>(?:\.\d+){0,2}\.(?:cut|bad|spare))?(?P<unfinished>\.tmp|(?:\.old)?\.clean)?"
)
_OFFSET_MAX = 2**63 - 1


class FileKind(StrEnum):
    """What a file holds."""

    SEGMENT = "segment"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    SNAPSHOT = "snapshot"
    STATE = "state"
    POINT = "recovery point"
    OWNER = "owner"


_KINDS = {
    ".log": FileKind.SEGMENT,
    ".index": FileKind.OFFSET_INDEX,
    ".timeindex": FileKind.TIME_INDEX,
    ".snapshot": FileKind.SNAPSHOT,
    "state": FileKind.STATE,
    "point": FileKind.POINT,
    "owner": FileKind.OWNER,
}


class KnownFile(NamedTuple):
    """A file of ringlog's, by its name."""

    kind: FileKind
    offset: int
    """What it is named by; 0 for the state."""
    is_aside: bool
    """A `*.cut`, `*.bad` or `*.spare` file: kept for people, never read by a log."""
    is_unfinished: bool
    """A `*.tmp` or `*.clean` file: what a crash left of a replacement or a compaction, for the next opening."""

    @property
    def is_live(self) -> bool:
        """A log reads it."""
        return not (self.is_aside or self.is_unfinished)


def known_file(name: str) -> KnownFile | None:
    """What the name stands for, or None for a name that ringlog never gives.

    >>> known_file("00000000000000000042.log.4096.cut")
    KnownFile(kind=<FileKind.SEGMENT: 'segment'>, offset=42, is_aside=True, is_unfinished=False)
    >>> known_file("partition.state").is_live, known_file("notes.txt")
    (True, None)
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    offset = int(found["offset"] or 0)
    if offset > _OFFSET_MAX:
        return None
    aside, unfinished = found["aside"] is not None, found["unfinished"] is not None
    return KnownFile(_KINDS[found["suffix"] or found["whole"]], offset, aside, unfinished)
