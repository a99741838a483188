"""A range of one partition, which one task reads: the same records whoever reads it, and how often."""

from __future__ import annotations

from typing import NamedTuple

from ringlog.model import TopicPartition


class OffsetRange(NamedTuple):
    """Offsets from `start` up to, and without, `end`.

    >>> str(OffsetRange("orders", 0, 5, 9)), OffsetRange("orders", 0, 5, 9).offsets
    ('orders-0 [5, 9)', 4)
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: int | None = None
    """Of the topic that had this name when the range was planned: one that is made anew has another. None: whichever
    has the name."""

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> int:
        return max(0, self.end - self.start)

    def without(self, gap: OffsetRange) -> OffsetRange:
        """What is left when its front, its end or all of it is missing.

        >>> whole = OffsetRange("orders", 0, 5, 9)
        >>> [str(whole.without(whole._replace(**gap))) for gap in ({"end": 7}, {"start": 7}, {})]
        ['orders-0 [7, 9)', 'orders-0 [5, 7)', 'orders-0 [9, 9)']
        """
        return self._replace(start=gap.end) if gap.start <= self.start else self._replace(end=gap.start)

    def is_of(self, topic_id: int) -> bool:
        """Whether records of this topic are those that were planned."""
        return self.topic_id is None or self.topic_id == topic_id

    def __str__(self) -> str:
        return f"{self.tp} [{self.start}, {self.end})"
