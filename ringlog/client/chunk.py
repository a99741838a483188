"""One partition's part of a fetch reply: checked and opened when it is polled, as records or as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringlog.client.records import ConsumerRecord, Source, records_of
from ringlog.model import TopicPartition
from ringlog.records.decode import Records, decode

if TYPE_CHECKING:
    import pyarrow


class Chunk:
    """Whole batches from a partition. Opening it checks every CRC; the poller's thread does that, not the I/O's."""

    __slots__ = ("_arrow", "_at", "_records", "_source", "data", "next_offset", "nbytes", "tp")

    def __init__(self, tp: TopicPartition, data: memoryview, next_offset: int) -> None:
        self.tp = tp
        self.data = data
        self.nbytes = data.nbytes
        self.next_offset = next_offset
        """The position behind all of it, which may lie above the last record's: control records are left out."""
        self._records: Records | None = None
        self._source: Source | None = None
        self._arrow: pyarrow.RecordBatch | None = None
        self._at = -1
        """What was taken of the form in use; -1 when only the position tells."""

    def take(self, position: int, most: int | None) -> tuple[list[ConsumerRecord], int]:
        """At most `most` records from a position on, and the position behind them. CorruptBatch: nothing is taken."""
        if self._records is None:
            self._records, self._arrow, self._at = decode(self.data), None, -1
            self._source = Source(*self.tp, self._records)
        source, index = self._source, self._records.index
        assert source is not None
        if self._at < 0:
            # The first batch may begin below what was asked for.
            self._at = index.find(position)
        start, count = self._at, len(index)
        stop = count if most is None else min(count, start + most)
        self._at = stop
        return records_of(source, start, stop), self._behind(stop, count, index.offset)

    def take_arrow(self, position: int, most: int | None) -> tuple[pyarrow.RecordBatch, int]:
        """As `take`, as a RecordBatch, which may be empty."""
        if self._arrow is None:
            from ringlog.client import arrow

            self._arrow, self._records, self._source = arrow.record_batch(self.tp, self.data), None, None
            self._at = arrow.find(self._arrow, position)
        batch = self._arrow
        start, count = self._at, batch.num_rows
        stop = count if most is None else min(count, start + most)
        self._at = stop
        behind = self._behind(stop, count, lambda i: batch["offset"][i].as_py())
        return batch if stop - start == count else batch.slice(start, stop - start), behind

    def _behind(self, stop: int, count: int, offset: object) -> int:
        return self.next_offset if stop == count else offset(stop - 1) + 1  # type: ignore[operator, no-any-return]
