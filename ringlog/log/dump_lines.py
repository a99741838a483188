"""The lines that a dump is made of: one type for each kind of thing that a partition's files hold."""

from __future__ import annotations

from typing import NamedTuple

from ringlog.log.owner import Owner
from ringlog.log.point import MovedPoint
from ringlog.log.producers import ProducerEntry
from ringlog.log.state import PartitionState
from ringlog.model import Codec
from ringlog.records.decode import Record
from ringlog.records.format import (
    APPEND_TIME_BIT,
    BATCH_TABLE,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TRANSACTIONAL_BIT,
    codec_of,
)

assert BATCH_TABLE.names is not None and BATCH_TABLE.names.index("crc") == 12, "as Batch.of takes rows apart"

_FLAGS = {
    APPEND_TIME_BIT: "append-time",
    TRANSACTIONAL_BIT: "transactional",
    CONTROL_BIT: "control",
    DELETE_HORIZON_BIT: "delete-horizon",
}


class Batch(NamedTuple):
    """The header of one batch. All numbers are as the batch has them: −1 stands for none."""

    position: int
    nbytes: int
    base_offset: int
    last_offset: int
    record_count: int
    codec: Codec
    crc_ok: bool
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_timestamp: int
    max_timestamp: int
    flags: tuple[str, ...]

    @classmethod
    def of(cls, row: tuple[int, ...], *, crc_ok: bool = True) -> Batch:
        """From a BATCH_TABLE row, as `tolist()` gives it: several times faster than by field names."""
        position, base_offset, last_offset, base_timestamp, max_timestamp, producer_id = row[:6]
        nbytes, leader_epoch, base_sequence, record_count, producer_epoch, attributes = row[6:12]
        return cls(
            position=position,
            nbytes=nbytes,
            base_offset=base_offset,
            last_offset=last_offset,
            record_count=record_count,
            codec=codec_of(attributes),
            crc_ok=crc_ok,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            flags=tuple(name for bit, name in _FLAGS.items() if attributes & bit) if attributes >> 3 else (),
        )


class Unreadable(NamedTuple):
    """A part of a file that does not hold what it must, and where the next good part begins."""

    position: int
    end: int
    reason: str


class Preallocated(NamedTuple):
    """Zeros up to the end of the file: space that is reserved for appends."""

    position: int
    end: int


class IndexEntry(NamedTuple):
    """An entry of an offset index: the batch that ends with `offset` begins at `target`."""

    position: int
    offset: int
    target: int


class TimeIndexEntry(NamedTuple):
    """An entry of a time index: up to the batch that ends with `offset` this is the highest timestamp."""

    position: int
    timestamp: int
    offset: int


class SnapshotHead(NamedTuple):
    """What a snapshot of producers says before it lists them."""

    next_offset: int
    producers: int


Line = (
    Batch
    | Record
    | Unreadable
    | Preallocated
    | IndexEntry
    | TimeIndexEntry
    | SnapshotHead
    | ProducerEntry
    | PartitionState
    | MovedPoint
    | Owner
)
