"""Offsets that a query cannot read any more: found by comparing what it had with what there is, and told of. Pure."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ringlog.errors import DataLoss
from ringlog.model import TopicPartition
from spark_bridge.options import Offsets
from spark_bridge.ranges import OffsetRange

log = logging.getLogger(__name__)

_ANEW = "the topic was deleted and made anew"


class Gap(NamedTuple):
    """What is missing, and why."""

    part: OffsetRange
    why: str


class GapPolicy:
    """Raises DataLoss for a gap, or counts it and says it in the log."""

    def __init__(self, fail_on_data_loss: bool, tell: Callable[[OffsetRange], str] | None = None) -> None:
        self._fail = fail_on_data_loss
        self._tell = tell
        """Notes a gap for others before it is skipped, and says where."""
        self.lost: Counter[TopicPartition] = Counter()
        """Offsets that were skipped, by partition."""

    def meet(self, gap: Gap) -> None:
        part, why = gap
        what = (
            f"{part.offsets} offsets of {part}" if part.offsets else f"what follows {part.start} of {part.tp}"
        )
        if self._fail:
            raise DataLoss(
                f"{what} cannot be read: {why}. Let retention keep more, or go on without "
                "them with option failOnDataLoss=false"
            )
        noted = f"; noted in group {self._tell(part)}" if self._tell is not None else ""
        self.lost[part.tp] += part.offsets
        log.warning("skipped, since failOnDataLoss=false: %s: %s%s", what, why, noted)

    def heard(self, tp: TopicPartition, offsets: int, lost: Iterable[tuple[int, int]]) -> None:
        """A task has skipped some, and noted which."""
        self.lost[tp] += offsets
        where = ", ".join(f"[{start}, {end})" for start, end in lost)
        log.warning(
            "%d offsets of %s were skipped by a task, since failOnDataLoss=false: %s", offsets, tp, where
        )

    def readable(
        self, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, int], earliest: Offsets
    ) -> list[OffsetRange]:
        """What can be read of ranges; the rest is met."""
        kept: list[OffsetRange] = []
        for part in ranges:
            other = of_another_topic(part, topic_ids)
            if other is not None:
                self.meet(other)
                continue
            gap = below_start(part, earliest.get(part.tp, 0))
            if gap is not None:
                self.meet(gap)
                part = part._replace(start=gap.part.end)
            if part.offsets:
                kept.append(part)
        return kept


def suspects(
    tasks: Iterable[OffsetRange], topic_ids: Mapping[str, int], earliest: Offsets, latest: Offsets
) -> list[OffsetRange]:
    """Of ranges that tasks were given, those that a log does not wholly have any more: their tasks may have met a gap.

    >>> tasks = [OffsetRange("t", 0, 5, 9), OffsetRange("t", 0, 9, 12), OffsetRange("t", 1, 0, 4)]
    >>> found = suspects(tasks, {"t": 1}, {TopicPartition("t", 0): 7}, {TopicPartition("t", 0): 20})
    >>> [str(task) for task in found]
    ['t-0 [5, 9)', 't-1 [0, 4)']
    """
    return [
        task
        for task in tasks
        if task.start < earliest.get(task.tp, 0)
        or task.end > latest.get(task.tp, 0)
        or of_another_topic(task, topic_ids) is not None
    ]


def made_anew(part: OffsetRange) -> Gap:
    """A range of a topic whose name another has by now."""
    return Gap(part, f"{_ANEW}; its records are not those that were planned")


def gone(part: OffsetRange) -> Gap:
    """A range of a topic that there is no more."""
    return Gap(part, "the topic was deleted")


def of_another_topic(part: OffsetRange, topic_ids: Mapping[str, int]) -> Gap | None:
    """A range whose topic is not the one that has its name now."""
    if part.topic not in topic_ids:
        return gone(part)
    return None if part.is_of(topic_ids[part.topic]) else made_anew(part)


def below_start(part: OffsetRange, log_start_offset: int) -> Gap | None:
    """What retention has taken from the front of a range."""
    end = min(log_start_offset, part.end)
    if end <= part.start:
        return None
    return Gap(part._replace(end=end), f"the log begins at {log_start_offset} by now")


def vanished(
    had: Offsets,
    had_ids: Mapping[str, int],
    latest: Offsets,
    topic_ids: Mapping[str, int],
    seen: Offsets | None = None,
) -> dict[TopicPartition, Gap]:
    """Partitions whose log is not the one that the query has read, or ends before what it has read. How much was not
    read of a log that is gone, nobody can tell: at least what was `seen` of it before."""
    found: dict[TopicPartition, Gap] = {}
    for tp, at in had.items():
        unread = OffsetRange(*tp, at, max(at, (seen or {}).get(tp, at)))
        if tp.topic in topic_ids and had_ids.get(tp.topic) != topic_ids[tp.topic]:
            found[tp] = Gap(unread, f"{_ANEW}; what was not read of the old one is gone")
        elif tp not in latest:
            found[tp] = Gap(unread, "the partition is gone, with all that was not read of it")
        elif latest[tp] < at:
            part = OffsetRange(*tp, latest[tp], at)
            found[tp] = Gap(part, f"the log ends at {latest[tp]}, before what was read of it")
    return found
