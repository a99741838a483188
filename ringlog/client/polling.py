"""Takes what was fetched: opens chunks on the poller's thread, outside of all locks, and moves positions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from ringlog.client.assigned import Assigned
from ringlog.client.consumer_settings import ConsumerSettings
from ringlog.client.fetch_driver import FetchDriver
from ringlog.client.records import ConsumerRecord
from ringlog.errors import CorruptBatch, UnreadableBatch
from ringlog.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow


class FetchedBatches(NamedTuple):
    """Whole batches of a partition, as the node sent them."""

    tp: TopicPartition
    data: memoryview
    """The first batch may begin below `position`: a batch is never cut."""
    position: int
    """What was read on from."""
    next_offset: int
    """What to read on from; above the last record where compaction has removed some."""
    topic_id: int
    """Of the topic that they are from: one that is made anew has the same name, and another id."""


class Poller:
    """Used by one thread, which is also the only one that seeks and assigns: a head stays a head meanwhile."""

    def __init__(self, driver: FetchDriver, settings: ConsumerSettings) -> None:
        self._driver = driver
        self._bytes_max = settings.fetch_max_bytes
        self.in_hand: dict[TopicPartition, int] = {}
        """From where on a poll that is under way has taken records: whoever commits meanwhile must not count them."""

    def records(self, timeout_s: float, most: int | None) -> list[ConsumerRecord]:
        """At most `most` records, of as many partitions as have some."""
        driver = self._driver
        records: list[ConsumerRecord] = []
        begun_at: dict[TopicPartition, int] = {}
        self.in_hand = begun_at
        taken_bytes = 0
        deadline_s = time.monotonic() + timeout_s
        try:
            # Without a bound: what was fetched by now, or one could take for ever what keeps arriving.
            while (most is None or len(records) < most) and taken_bytes < self._bytes_max:
                head = driver.next_head() if records else driver.head(deadline_s)
                if head is None:
                    break
                assigned, position = head
                chunk = assigned.chunks[0]
                try:
                    taken, behind = chunk.take(position, None if most is None else most - len(records))
                except CorruptBatch as wrong:
                    if records:
                        break  # these first; the next poll comes here again
                    self._split_or_raise(assigned, position, wrong)
                    continue
                begun_at.setdefault(assigned.tp, position)
                driver.advance(assigned, behind)
                taken_bytes += chunk.nbytes
                if records:
                    records += taken
                else:
                    records = taken
            return records
        except BaseException:
            # Ctrl-C between taking and returning: what was taken comes again.
            self._take_back(begun_at)
            raise
        finally:
            self.in_hand = {}

    def arrow(self, timeout_s: float, most: int | None) -> pyarrow.RecordBatch | None:
        """At most `most` records of one chunk."""
        driver = self._driver
        deadline_s = time.monotonic() + timeout_s
        while True:
            head = driver.head(deadline_s)
            if head is None:
                return None
            assigned, position = head
            try:
                batch, behind = assigned.chunks[0].take_arrow(position, most)
            except CorruptBatch as wrong:
                self._split_or_raise(assigned, position, wrong)
                continue
            try:
                driver.advance(assigned, behind)
                if batch.num_rows:
                    return batch
            except BaseException:
                self._take_back({assigned.tp: position})
                raise

    def batches(self, timeout_s: float) -> FetchedBatches | None:
        """One chunk as it came, from its first batch on: nothing in it is checked or opened."""
        head = self._driver.head(time.monotonic() + timeout_s)
        if head is None:
            return None
        assigned, position = head
        chunk = assigned.chunks[0]
        self._driver.advance(assigned, chunk.next_offset)
        return FetchedBatches(chunk.tp, chunk.data, position, chunk.next_offset, chunk.topic_id)

    def _take_back(self, begun_at: dict[TopicPartition, int]) -> None:
        if begun_at:
            self._driver.change(lambda fetcher: fetcher.seek_all(begun_at))

    def _split_or_raise(self, assigned: Assigned, position: int, wrong: CorruptBatch) -> None:
        """One bad batch does not keep the good ones before it back; when it is its turn, it is raised."""
        parts = assigned.chunks[0].split_at_fault(position)
        if parts is not None:
            self._driver.change(lambda _: assigned.replace_head(*parts))
            return
        behind = assigned.chunks[0].behind_fault(position)
        now_s = time.monotonic()
        self._driver.change(lambda fetcher: fetcher.refetch(assigned, now_s))
        where = f"{assigned.tp}, in the batch at offset {position}: {wrong.field}"
        hint = f"It will be fetched again; seek to {behind} to go on without it"
        reason = f"{wrong.reason}. {hint}"
        raise UnreadableBatch(where, wrong.position, reason, assigned.tp, position, behind) from wrong
