"""What a partition remembers of its idempotent producers. Pure.

A producer numbers its records. A batch that continues the numbering is new; one of the last
PRODUCER_BATCHES_KEPT batches is a repeat and is answered with its first offset; all else is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ringlog.errors import CorruptFile, OutOfOrderSequence, ProducerFenced
from ringlog.limits import PRODUCER_BATCHES_KEPT, PRODUCER_EXPIRY_MS, PRODUCERS_PER_PARTITION_MAX
from ringlog.log import envelope
from ringlog.log.batch import BatchInfo

SNAPSHOT_MAGIC = b"RLP1"
SEQUENCE_COUNT = 2**31
"""Sequences run from 0 to 2^31 − 1 and then begin anew at 0."""


class KeptBatch(msgspec.Struct, array_like=True, frozen=True):
    """A batch that can still be recognised when it is sent again."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    append_time_ms: int = -1
    """-1: its records have the producer's own times."""


class ProducerEntry(msgspec.Struct, array_like=True):
    """One producer: its epoch, its last batches (oldest first), and when it was last heard of."""

    producer_id: int
    epoch: int
    batches: list[KeptBatch]
    seen_ms: int


class Snapshot(msgspec.Struct, array_like=True):
    """The content of a snapshot file."""

    next_offset: int
    producers: list[ProducerEntry]


class Repeat(NamedTuple):
    """The batch was appended before, at these offsets, and at this time unless its records have their producer's."""

    base_offset: int
    last_offset: int
    append_time_ms: int = -1


def last_sequence(base_sequence: int, record_count: int) -> int:
    """The sequence of a batch's last record.

    >>> last_sequence(10, 5), last_sequence(2**31 - 1, 2)
    (14, 0)
    """
    return (base_sequence + max(record_count, 1) - 1) % SEQUENCE_COUNT


class ProducerTable:
    """All producers of one partition."""

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries = OrderedDict((entry.producer_id, entry) for entry in entries)
        """In the order of last use. Not a dict, whose first entry is found in more and more steps as others go."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> tuple[ProducerEntry, ...]:
        """All producers, the longest unused first."""
        return tuple(self._entries.values())

    def judge(self, batch: BatchInfo) -> Repeat | None:
        """None for a batch that may be appended, Repeat for one that was; raises for all else. Changes nothing."""
        entry = self._entries.get(batch.producer_id)
        if entry is None:
            # The producer is new, or its state expired: there is nothing to compare with, so any start is taken.
            return None
        if batch.producer_epoch < entry.epoch:
            raise ProducerFenced(
                f"producer {batch.producer_id}: epoch {batch.producer_epoch} is older than {entry.epoch}"
            )
        if batch.producer_epoch > entry.epoch:
            if batch.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {batch.producer_id}: new epoch {batch.producer_epoch} begins at sequence "
                    f"{batch.base_sequence}, not 0"
                )
            return None
        last = last_sequence(batch.base_sequence, batch.record_count)
        for kept in entry.batches:
            if kept.base_sequence == batch.base_sequence and kept.last_sequence == last:
                return Repeat(kept.base_offset, kept.last_offset, kept.append_time_ms)
        wanted = (entry.batches[-1].last_sequence + 1) % SEQUENCE_COUNT if entry.batches else 0
        if batch.base_sequence != wanted:
            raise OutOfOrderSequence(
                f"producer {batch.producer_id}: sequence {batch.base_sequence} came where {wanted} was due"
            )
        return None

    def note(self, batch: BatchInfo, base_offset: int, now_ms: int, append_time_ms: int = -1) -> None:
        """The batch stands in the log from this offset on; -1 for the time when its records keep their own."""
        kept = KeptBatch(
            batch.base_sequence,
            last_sequence(batch.base_sequence, batch.record_count),
            base_offset,
            base_offset + max(batch.record_count, 1) - 1,
            append_time_ms,
        )
        entry = self._entries.pop(batch.producer_id, None)
        if entry is None or entry.epoch != batch.producer_epoch:
            if entry is None and len(self._entries) >= PRODUCERS_PER_PARTITION_MAX:
                self._entries.popitem(last=False)
            entry = ProducerEntry(batch.producer_id, batch.producer_epoch, [], now_ms)
        entry.batches.append(kept)
        del entry.batches[:-PRODUCER_BATCHES_KEPT]
        entry.seen_ms = now_ms
        self._entries[batch.producer_id] = entry  # at the end

    def expire(self, now_ms: int) -> int:
        """Forget producers that were not heard of for a day; returns how many."""
        old = [e.producer_id for e in self._entries.values() if now_ms - e.seen_ms >= PRODUCER_EXPIRY_MS]
        for producer_id in old:
            del self._entries[producer_id]
        return len(old)

    def encode(self, next_offset: int) -> bytes:
        """A snapshot of the state that all batches below `next_offset` made."""
        return envelope.seal(SNAPSHOT_MAGIC, Snapshot(next_offset, list(self._entries.values())))

    @classmethod
    def decode(cls, data: bytes, next_offset: int) -> ProducerTable:
        """Read a snapshot back; raises CorruptFile unless it is whole and was taken at `next_offset`."""
        snapshot = envelope.unseal(SNAPSHOT_MAGIC, data, Snapshot)
        if snapshot.next_offset != next_offset:
            raise CorruptFile("next_offset", 0, f"says {snapshot.next_offset}, the name says {next_offset}")
        return cls(snapshot.producers)
