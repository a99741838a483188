"""One partition's part of a fetch reply: checked and opened when it is polled, as records or as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringlog.client.records import ConsumerRecord, Source, records_of
from ringlog.errors import CorruptBatch
from ringlog.model import TopicPartition
from ringlog.records.decode import decode
from ringlog.records.scan import scan

if TYPE_CHECKING:
    import pyarrow

    from ringlog.client.arrow import Opened


class Chunk:
    """Whole batches from a partition. Opening it checks every CRC; the poller's thread does that, not the I/O's."""

    __slots__ = ("_arrow", "_source", "data", "nbytes", "next_offset", "topic_id", "tp")

    def __init__(self, tp: TopicPartition, data: memoryview, next_offset: int, topic_id: int = 0) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.data = data
        self.nbytes = data.nbytes
        self.next_offset = next_offset
        """The position behind all of it, which may lie above the last record's: control records are left out."""
        self._source: Source | None = None
        self._arrow: Opened | None = None

    # Where to go on is found by the position alone, also in the first batch, which may begin below what was asked
    # for: a poll that is interrupted leaves nothing half done here.

    def take(self, position: int, most: int | None) -> tuple[list[ConsumerRecord], int]:
        """At most `most` records from a position on, and the position behind them. Raises CorruptBatch."""
        source = self._source
        if source is None:
            source = self._source = Source(*self.tp, decode(self.data))
        start, count = source.find(position), source.count
        stop = count if most is None else min(count, start + most)
        behind = self.next_offset if stop == count else source.offset(stop - 1) + 1
        return records_of(source, start, stop), behind

    def split_at_fault(self, position: int) -> tuple[Chunk, Chunk] | None:
        """What lies before the first batch that cannot be read, and the rest; None when nothing at or above the
        position does: then it is that batch's turn to be told of."""
        at = 0
        for row in scan(self.data, level="headers").table:
            end, base = at + int(row["length"]), int(row["base_offset"])
            try:
                decode(self.data[at:end])
            except CorruptBatch:
                if base <= position:
                    return None
                rest = Chunk(self.tp, self.data[at:], self.next_offset, self.topic_id)
                return Chunk(self.tp, self.data[:at], base, self.topic_id), rest
            at = end
        return None

    def behind_fault(self, position: int) -> int:
        """Where to go on behind the first batch from a position on, which cannot be read: where the next one begins, if
        the batch is what its CRC says and merely holds what nobody can open; else the next offset."""
        at = 0
        for row in scan(self.data, level="headers").table:
            end, last = at + int(row["length"]), int(row["last_offset"])
            if last >= position:
                return last + 1 if scan(self.data[at:end], level="crc").fault is None else position + 1
            at = end
        return position + 1

    def take_arrow(self, position: int, most: int | None) -> tuple[pyarrow.RecordBatch, int]:
        """As `take`, as a RecordBatch, which may be empty."""
        from ringlog.client import arrow

        opened = self._arrow
        if opened is None:
            opened = self._arrow = arrow.open_batches(self.tp, self.data)
        batch = opened.batch
        if position <= opened.first_offset and (most is None or batch.num_rows <= most):
            return batch, self.next_offset
        offsets = arrow.offsets_of(batch)
        start, count = int(offsets.searchsorted(position)), len(offsets)
        stop = count if most is None else min(count, start + most)
        behind = self.next_offset if stop == count else int(offsets[stop - 1]) + 1
        return (batch if stop - start == count else batch.slice(start, stop - start)), behind
