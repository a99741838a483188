"""Which records of a log have had their time: by age, by size, whichever comes first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ringlog.log.segment import ActiveSegment, SealedSegment, Segment
from ringlog.log.settings import LogSettings


class RetentionPlan(NamedTuple):
    """What is to be done now."""

    start_offset: int
    """Where the log shall begin."""
    roll: bool
    """Close the active segment: all that it holds is too old, and only sealed segments are deleted."""


def plan_retention(
    segments: Sequence[Segment], log_start_offset: int, settings: LogSettings, now_ms: int
) -> RetentionPlan:
    """Look at the oldest segments of a log. Whole sealed segments go, never a part of one.

    >>> from ringlog.log.segment import ActiveSegment
    >>> plan_retention([ActiveSegment(0, 0)], 0, LogSettings(retention_ms=1), now_ms=5)
    RetentionPlan(start_offset=0, roll=False)
    """
    start = log_start_offset
    if settings.retention_ms is None and settings.retention_bytes is None:
        return RetentionPlan(start, roll=False)
    surplus = -1
    if settings.retention_bytes is not None:
        held = sum(segment.position for segment in segments if segment.next_offset > start)
        surplus = held - settings.retention_bytes
    for segment, following in pairwise(segments):
        if segment.next_offset <= start:
            continue
        if not isinstance(segment, SealedSegment):
            return RetentionPlan(start, roll=False)
        if not _is_old(segment, following, settings, now_ms) and surplus < segment.position:
            return RetentionPlan(start, roll=False)
        surplus -= segment.position
        start = segment.next_offset
    return RetentionPlan(start, roll=_has_had_its_time(segments[-1], settings, now_ms))


def _has_had_its_time(active: Segment, settings: LogSettings, now_ms: int) -> bool:
    """Whether all of the active segment is old. Records of long ago that came in only now (an import, a test) have
    the whole retention time from then on, whatever their timestamps say."""
    if settings.retention_ms is None or active.position == 0 or not isinstance(active, ActiveSegment):
        return False
    held_ms = now_ms - active.created_ms
    return held_ms > settings.retention_ms and _is_old(active, active, settings, now_ms)


def _is_old(segment: Segment, following: Segment, settings: LogSettings, now_ms: int) -> bool:
    if settings.retention_ms is None:
        return False
    youngest_ms = segment.max_timestamp
    if segment.quarantined or youngest_ms < 0:
        # Not all of its timestamps are known, or there are none: what came after it is younger.
        youngest_ms = max(youngest_ms, following.max_timestamp)
    return youngest_ms >= 0 and now_ms - youngest_ms > settings.retention_ms
