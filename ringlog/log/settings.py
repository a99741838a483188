"""The settings of one partition's log, checked when they are made."""

from __future__ import annotations

import re

import msgspec

from ringlog.errors import InvalidRequest
from ringlog.limits import (
    BATCH_BYTES_MAX,
    BATCH_HEADER_BYTES,
    BLOCK_BYTES,
    MIB,
    SEGMENT_BYTES_DEFAULT,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
    SEGMENT_MS_DEFAULT,
    TOMBSTONE_MS_DEFAULT,
    WRITE_BYTES_TARGET,
)
from ringlog.model import Codec, Durability


class FlushPolicy(msgspec.Struct, frozen=True):
    """When written bytes are flushed, and so which durability an ack reports.

    >>> FlushPolicy.parse("ack").acks_at.name, FlushPolicy.parse("interval:50").interval_ms
    ('FLUSHED', 50)
    """

    on_ack: bool
    interval_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> FlushPolicy:
        """`ack` (flush before each ack), `interval:MS`, or `os` (leave it to the kernel)."""
        if text == "ack":
            return cls(on_ack=True)
        if text == "os":
            return cls(on_ack=False)
        found = re.fullmatch(r"interval:([1-9]\d{0,6})", text)
        if not found:
            raise InvalidRequest(f"flush={text!r}: use ack, interval:MS (1 to 9999999) or os")
        return cls(on_ack=False, interval_ms=int(found[1]))

    @property
    def acks_at(self) -> Durability:
        return Durability.FLUSHED if self.on_ack else Durability.WRITTEN


class LogSettings(msgspec.Struct, frozen=True):
    """What users may choose for a partition. The defaults are Kafka's, but for the flush."""

    segment_bytes: int = SEGMENT_BYTES_DEFAULT
    segment_ms: int = SEGMENT_MS_DEFAULT
    batch_bytes_max: int = 1 * MIB + BATCH_HEADER_BYTES
    flush: FlushPolicy = FlushPolicy(on_ack=True)
    append_time: bool = False
    """Stamp records with the time of their append instead of the producer's."""
    retention_ms: int | None = None
    """Sealed segments whose records are all older than this are deleted; None: at no age."""
    retention_bytes: int | None = None
    """The oldest sealed segments of a log larger than this are deleted; None: at no size."""
    compact: bool = False
    """Of each key only the latest record stays."""
    gaps_at_append: bool = False
    """A replica of a compacted log: what it fetches has gaps already."""
    delete_retention_ms: int = TOMBSTONE_MS_DEFAULT
    """How long a record without a value is kept after it was first compacted."""
    dirty_ratio_min: float = 0.5
    """Compact when this share of the bytes was not compacted yet."""
    compaction_lag_min_ms: int = 0
    compaction_lag_max_ms: int | None = None
    codec: Codec | None = None
    """What batches are compressed with when they are appended by a producer; None: as they came."""

    def __post_init__(self) -> None:
        if not SEGMENT_BYTES_MIN <= self.segment_bytes <= SEGMENT_BYTES_MAX:
            raise InvalidRequest(
                f"segment_bytes={self.segment_bytes}: use {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"
            )
        if self.segment_ms < 1:
            raise InvalidRequest(f"segment_ms={self.segment_ms}: use 1 or more")
        if not BATCH_HEADER_BYTES <= self.batch_bytes_max <= BATCH_BYTES_MAX:
            raise InvalidRequest(
                f"batch_bytes_max={self.batch_bytes_max}: use {BATCH_HEADER_BYTES} to {BATCH_BYTES_MAX}"
            )
        if not 0 <= self.dirty_ratio_min <= 1:
            raise InvalidRequest(f"dirty_ratio_min={self.dirty_ratio_min}: use 0 to 1")

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is closed. Half of the time that records may stay uncompacted: the other half is
        what compaction has."""
        if not self.compact or self.compaction_lag_max_ms is None:
            return self.segment_ms
        return max(1, min(self.segment_ms, self.compaction_lag_max_ms // 2))

    @property
    def append_bytes_max(self) -> int:
        """The batches of one append together: what is in one append is also in one write."""
        return max(self.batch_bytes_max, WRITE_BYTES_TARGET)

    @property
    def reach_bytes(self) -> int:
        """How far beyond the flushed end a single write can reach; 0 where unflushed writes may be many."""
        if not self.flush.on_ack:
            return 0
        return WRITE_BYTES_TARGET + self.append_bytes_max + 2 * BLOCK_BYTES


DEFAULT_SETTINGS = LogSettings()
