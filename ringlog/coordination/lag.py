"""How far groups are behind the ends of the logs: in records, and in milliseconds. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from ringlog.coordination.state import Group
from ringlog.model import LogEnds, TopicPartition
from ringlog.net.group_messages import CommittedOffset, PartitionLag, TopicLag

Ends = Callable[[TopicPartition], LogEnds | None]
"""Where a partition's log begins and ends; None: it is not known now."""


class Behind(NamedTuple):
    """What a group has still to read: how many records, and how long ago the first of them came. Never negative."""

    records: int
    ms: int


def behind(committed: int, ends: LogEnds, now_ms: int) -> Behind:
    """What follows a committed offset, -1 for none: then it is all that the log has. What retention took nobody can
    read any more, and what was committed may be newer than what is known of the log.

    >>> ends = LogEnds(10, 100, [(10, 5_000), (60, 8_000)])
    >>> behind(40, ends, 9_000), behind(60, ends, 9_000), behind(120, ends, 9_000), behind(-1, ends, 4_000)
    (Behind(records=60, ms=4000), Behind(records=40, ms=1000), Behind(records=0, ms=0), Behind(records=90, ms=0))
    """
    at = max(committed, ends.log_start_offset)
    if at >= ends.readable_offset:
        return Behind(0, 0)
    mark = max(bisect_right(ends.marks, at, key=lambda mark: mark[0]) - 1, 0)
    return Behind(ends.readable_offset - at, max(0, now_ms - ends.marks[mark][1]))


def lags(group: Group, committed: list[CommittedOffset], ends: Ends, now_ms: int) -> list[TopicLag]:
    """How far a group is behind in every partition that it has committed to, or that a member holds."""
    offsets = {TopicPartition(row.topic, row.partition): row.offset for row in committed}
    held = {tp for member in group.members.values() for tp in member.holdings}
    found: dict[str, list[PartitionLag]] = {}
    for tp in sorted(offsets.keys() | held):
        known = ends(tp)
        rows = found.setdefault(tp.topic, [])
        if known is None:
            rows.append(PartitionLag(tp.partition, -1, -1, -1, -1))
        else:
            is_behind = behind(offsets.get(tp, -1), known, now_ms)
            rows.append(PartitionLag(tp.partition, known.log_start_offset, known.readable_offset, *is_behind))
    return [TopicLag(topic, rows) for topic, rows in found.items()]


def total(some: list[TopicLag]) -> Behind:
    """All records that a group is behind, and the longest time; partitions that are not known do not count."""
    rows = [row for topic in some for row in topic.partitions]
    records = sum(max(row.lag, 0) for row in rows)
    return Behind(records, max((max(row.lag_ms, 0) for row in rows), default=0))
