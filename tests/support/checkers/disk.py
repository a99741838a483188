"""C2: every segment parses, offsets are dense, indexes agree with the log, in all partitions of a data directory."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator

from ringlog.disk.plain import PlainDisk
from ringlog.log.findings import Rule as LogRule
from ringlog.log.known_files import known_file
from ringlog.log.verify import verify_partition
from tests.support.checkers.violations import Rule, Violation

METADATA_PARTITION = "__cluster_metadata-0"
_NOTES_OF_A_CRASH = frozenset({LogRule.SET_ASIDE})
"""What a kill may leave for good: bytes of batches that were never acknowledged, cut and kept."""
_NOTES_UNTIL_OPENED = _NOTES_OF_A_CRASH | {
    LogRule.PREALLOCATED,
    LogRule.UNFINISHED,
    LogRule.END,
    LogRule.ORPHAN,
    LogRule.INDEX_POINTS,
    LogRule.TIME_INDEX_TRUE,
    LogRule.PRODUCERS,
    LogRule.STATE,
}
"""What the next open makes right; after a clean stop there is none of it."""


def check_disk(
    data_dir: str, *, expected: Collection[str] = (METADATA_PARTITION,), stopped_cleanly: bool = True
) -> list[Violation]:
    """Everything that is wrong with the logs below a data directory, while nobody has them open.

    >>> [str(violation.rule) for violation in check_disk("/nonexistent", expected=["orders-0"])]
    ['Rule.NO_PARTITION']
    """
    disk = PlainDisk()
    try:
        return list(_check(disk, data_dir, expected, stopped_cleanly))
    finally:
        disk.shutdown()


def partition_dirs(data_dir: str) -> dict[str, str]:
    """The directories below a data directory that hold a partition's files, by the partition's name."""
    found: dict[str, str] = {}
    for path, _, names in os.walk(data_dir):
        if any(known_file(name) is not None for name in names):
            found[os.path.basename(path)] = path
    return found


def _check(
    disk: PlainDisk, data_dir: str, expected: Collection[str], stopped_cleanly: bool
) -> Iterator[Violation]:
    found = partition_dirs(data_dir)
    for name in sorted(set(expected) - set(found)):
        yield Violation(Rule.NO_PARTITION, name, f"nothing below {data_dir}")
    allowed = _NOTES_OF_A_CRASH if stopped_cleanly else _NOTES_UNTIL_OPENED
    for name, path in sorted(found.items()):
        for finding in verify_partition(disk, path):
            if finding.is_violation or finding.rule not in allowed:
                yield Violation(Rule.DISK, name, str(finding))
