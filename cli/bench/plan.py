"""What a benchmark is asked to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass

CHUNK_BYTES = 255 * 1024
"""Records of so many bytes go to the producer in one call: they fill one batch, and leave no rest for a second."""
RECORD_OVERHEAD_BYTES = 12
BATCH_OVERHEAD_BYTES = 128
"""More than a batch of one record has beside its value."""
CHUNK_RECORDS_MAX = 10_000
COUNT_DEFAULT = 1_000_000
TOPIC_DEFAULT = "bench"
"""Of `produce`, and of `consume`, which makes no other."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of `ringlog bench`; with neither count nor seconds, COUNT_DEFAULT records."""

    bootstrap: str
    topic: str
    record_size: int
    count: int | None
    seconds: float | None
    rate: float | None
    acks: str
    codec: str
    producers: int
    partitions: int

    @property
    def count_max(self) -> int | None:
        """After so many records it ends; None: only time ends it."""
        if self.count is None and self.seconds is None:
            return COUNT_DEFAULT
        return self.count

    @property
    def batch_bytes_min(self) -> int:
        """What a topic must take as one batch: a record is never cut, but compressed it may be smaller."""
        return self.record_size + BATCH_OVERHEAD_BYTES

    @property
    def chunk_records(self) -> int:
        """Records of one call: enough to be cheap, few enough that each has a latency worth the name."""
        by_bytes = max(CHUNK_BYTES // (self.record_size + RECORD_OVERHEAD_BYTES), 1)
        if self.rate is not None:
            # A hundred calls a second, so that the pace is even.
            by_bytes = min(by_bytes, max(int(self.rate / self.producers / 100), 1))
        return min(by_bytes, CHUNK_RECORDS_MAX)

    def share(self, number: int) -> tuple[int | None, float | None]:
        """The count and the rate of one producer of several.

        >>> plan = Plan("a:1", "bench", 100, 10, None, 300.0, "all", "none", 3, 16)
        >>> [plan.share(number)[0] for number in range(3)], plan.share(0)[1]
        ([4, 3, 3], 100.0)
        """
        count = self.count_max
        if count is not None:
            count = count // self.producers + (number < count % self.producers)
        return count, None if self.rate is None else self.rate / self.producers
