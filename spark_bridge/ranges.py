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

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> int:
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.tp} [{self.start}, {self.end})"
