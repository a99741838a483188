"""What compaction would do to a log, and whether it is time for it. Pure.

    │ compacted before (clean)      │ not yet (dirty)      │ too young, or active │
    0                     compacted_offset          end_offset                   next_offset

A pass notes the keys of the dirty part and rewrites all segments below its end. Tombstones go in a later pass, when
they have been kept for their time; since when is known for each segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ringlog.limits import RELATIVE_OFFSET_MAX
from ringlog.log.segment import SealedSegment, Segment
from ringlog.log.settings import LogSettings


class CompactionPlan(NamedTuple):
    """A pass over a log."""

    start_offset: int
    """The dirty part begins here."""
    segments: tuple[SealedSegment, ...]
    """All that are rewritten, ascending."""
    dirty_ratio: float
    """The share of bytes that was not compacted yet."""


def plan_compaction(
    segments: Sequence[Segment],
    log_start_offset: int,
    compacted_offset: int,
    settings: LogSettings,
    now_ms: int,
) -> CompactionPlan | None:
    """A pass that is due now, or None."""
    start = max(log_start_offset, compacted_offset)
    eligible: list[SealedSegment] = []
    clean_bytes = dirty_bytes = 0
    is_overdue = has_old_tombstones = False
    for segment in segments:
        if not isinstance(segment, SealedSegment):
            break
        if segment.next_offset <= log_start_offset:
            continue
        is_dirty = segment.next_offset > start
        if is_dirty and _is_too_young(segment, settings, now_ms):
            break
        if segment.quarantined:
            continue
        eligible.append(segment)
        if is_dirty:
            dirty_bytes += segment.position
            is_overdue |= _is_overdue(segment, settings, now_ms)
        else:
            clean_bytes += segment.position
            has_old_tombstones |= may_drop_tombstones(segment, start, settings, now_ms)
    if not eligible:
        return None
    ratio = dirty_bytes / max(clean_bytes + dirty_bytes, 1)
    is_due = dirty_bytes > 0 and (ratio >= settings.dirty_ratio_min or is_overdue)
    if not is_due and not has_old_tombstones:
        return None
    return CompactionPlan(start, tuple(eligible), ratio)


def _is_too_young(segment: SealedSegment, settings: LogSettings, now_ms: int) -> bool:
    lag_ms = settings.compaction_lag_min_ms
    return lag_ms > 0 and now_ms - segment.max_timestamp < lag_ms


def _is_overdue(segment: SealedSegment, settings: LogSettings, now_ms: int) -> bool:
    """Its segment took half of the time that records may wait; this is the other half."""
    if settings.compaction_lag_max_ms is None:
        return False
    return now_ms - segment.max_timestamp >= settings.compaction_lag_max_ms // 2


def may_drop_tombstones(
    segment: SealedSegment, start_offset: int, settings: LogSettings, now_ms: int
) -> bool:
    """Whether records without a value in a segment that was compacted before have been kept long enough."""
    since_ms = segment.entry.tombstones_since_ms
    is_clean = segment.next_offset <= start_offset
    return is_clean and since_ms > 0 and now_ms - since_ms >= settings.delete_retention_ms


def tombstones_since(segment: SealedSegment, start_offset: int, settings: LogSettings, now_ms: int) -> int:
    """Since when a segment's tombstones are kept, after a pass; 0: it has none."""
    if segment.next_offset > start_offset:
        return now_ms
    if may_drop_tombstones(segment, start_offset, settings, now_ms):
        return 0
    return segment.entry.tombstones_since_ms


class Group(NamedTuple):
    """Neighbours that become one segment."""

    segments: tuple[SealedSegment, ...]
    tombstones_since_ms: int

    @property
    def nbytes(self) -> int:
        return sum(segment.position for segment in self.segments)


def group_segments(plan: CompactionPlan, settings: LogSettings, now_ms: int) -> list[Group]:
    """Join small neighbours, so that a log that is compacted for ever does not end up as ever more empty files.

    Those whose tombstones are kept since different times stay apart: joined, the older would begin to wait anew,
    with each pass, and might never go."""
    groups: list[Group] = []
    for segment in plan.segments:
        since = tombstones_since(segment, plan.start_offset, settings, now_ms)
        last = groups[-1] if groups else None
        if last is not None and _fits(last, segment, since, settings):
            joined = (*last.segments, segment)
            groups[-1] = Group(joined, max(last.tombstones_since_ms, since))
        else:
            groups.append(Group((segment,), since))
    return groups


def _fits(group: Group, segment: SealedSegment, since_ms: int, settings: LogSettings) -> bool:
    first, last = group.segments[0], group.segments[-1]
    return (
        last.next_offset == segment.base_offset
        and group.nbytes + segment.position <= settings.segment_bytes
        and segment.next_offset - first.base_offset <= RELATIVE_OFFSET_MAX
        and (since_ms == group.tombstones_since_ms or 0 in (since_ms, group.tombstones_since_ms))
    )
