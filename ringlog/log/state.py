"""The content of `partition.state`: what must be known before a byte of the log is read.

It is replaced as a whole, atomically, at every seal, checkpoint and stop. When it is missing or unreadable
the log is scanned from its first byte instead: nothing is ever deleted for want of it.
"""

from __future__ import annotations

import msgspec

from ringlog.log import envelope
from ringlog.log.epochs import EpochStart

STATE_MAGIC = b"RLS1"


class SealedEntry(msgspec.Struct, array_like=True, frozen=True):
    """A sealed segment as it was when it was sealed. A file that differs was not left by us."""

    base_offset: int
    next_offset: int
    bytes: int
    max_timestamp: int
    index_crc: int
    time_index_crc: int
    quarantined: bool = False
    tombstones_since_ms: int = 0
    """When compaction first kept records without a value here; 0: not compacted yet, or none are left."""
    created_ms: int = 0
    """When its first batch came, by the node's clock; 0: nobody knows any more."""


class SavedIndexes(msgspec.Struct, array_like=True, frozen=True):
    """What of a growing segment's indexes is in their files, and the checksum over it."""

    index_entries: int = 0
    index_crc: int = 0
    time_index_entries: int = 0
    time_index_crc: int = 0
    position: int = 0
    """They cover the segment's bytes below it."""


class ActivePoint(msgspec.Struct, array_like=True, frozen=True):
    """The recovery point: all of the active segment below `position` was flushed, and holds no bad batch."""

    base_offset: int
    next_offset: int
    position: int
    created_ms: int
    max_timestamp: int
    max_timestamp_offset: int
    indexes: SavedIndexes


class PartitionState(msgspec.Struct, array_like=True, frozen=True):
    """Everything in the file. `clean`: the active segment was truncated to exactly `active.position`."""

    generation: int
    """Counts the saves of this file; what moves the recovery point in between names the one that it belongs to."""
    clean: bool
    log_start_offset: int
    reach_bytes: int
    """How far one write can reach beyond what is flushed; 0 where writes may be lost in any number."""
    sealed: list[SealedEntry]
    active: ActivePoint
    epochs: list[EpochStart]
    has_producers: bool
    """A snapshot of producers' state stands beside it, named by `active.next_offset`."""
    compacted_offset: int = 0
    """Below it each key has one record, as far as compaction has come."""
    swapping: list[int] = []
    """Base offsets of sealed segments whose files may still have the names that compaction gives first."""
    gaps_at_append: bool = False
    """Offsets may skip also in what was appended since, as a leader's compaction left them."""

    has_gaps: bool = False
    """Offsets may skip in what the log has, however it came to that. It stays so when the log is cut."""

    @property
    def may_skip(self) -> bool:
        """`has_gaps`, also of a state that was saved before there was such a word."""
        compacted = self.compacted_offset > 0 or any(entry.tombstones_since_ms for entry in self.sealed)
        return self.has_gaps or self.gaps_at_append or compacted

    def encode(self) -> bytes:
        return envelope.seal(STATE_MAGIC, self)

    @classmethod
    def decode(cls, data: bytes) -> PartitionState:
        """Raises CorruptFile for anything that `encode` did not make."""
        return envelope.unseal(STATE_MAGIC, data, cls)
