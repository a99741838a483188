"""A log of keyed records beside the oracle of compaction: a dict of what was sent, by offset and by key."""

from __future__ import annotations

import random

from ringlog.limits import MIB
from ringlog.log.events import Fenced, Progress, Quarantined
from ringlog.log.settings import LogSettings
from ringlog.model import Codec, Durability
from ringlog.records.encode import encode
from tests.support.logs import LogWorld

COMPACT = LogSettings(segment_bytes=1 * MIB, compact=True, dirty_ratio_min=0.1, delete_retention_ms=20_000)


class KeyedLog:
    """Produces records with few keys, and knows what readers may and must find."""

    def __init__(
        self, world: LogWorld, rng: random.Random, *, keys: int = 8, value_bytes: int = 100_000
    ) -> None:
        self.world = world
        self.rng = rng
        self.sent: dict[int, tuple[bytes, bytes | None]] = {}
        """Key and value by offset."""
        self.flushed_offset = 0
        self.sequence = 0
        self.compresses = True
        self._keys = [b"key-%d" % number for number in range(keys)]
        self._value_bytes = value_bytes

    def produce(self, count: int = 1, *, deletes: float = 0.1) -> None:
        """One batch of an idempotent producer."""
        rng = self.rng
        keys = [rng.choice(self._keys) for _ in range(count)]
        values = [
            None if rng.random() < deletes else rng.randbytes(8) + bytes(rng.randint(1, self._value_bytes))
            for _ in keys
        ]
        batch = encode(
            values,
            keys,
            timestamps=self.world.now_ms,
            producer_id=5,
            producer_epoch=0,
            base_sequence=self.sequence,
            codec=rng.choice([Codec.NONE, Codec.NONE, Codec.LZ4]) if self.compresses else Codec.NONE,
        )
        appended = self.world.append_raw(batch)
        self.sequence += count
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            self.sent[appended.base_offset + number] = (key, value)

    def note(self, events) -> None:
        """Remember what is acknowledged."""
        for event in events:
            assert not isinstance(event, Fenced | Quarantined), event.error
            if isinstance(event, Progress) and event.durability >= Durability.FLUSHED:
                self.flushed_offset = max(self.flushed_offset, event.offset)

    def run(self) -> None:
        self.note(self.world.run())

    def settle(self) -> None:
        self.note(self.world.settle())

    def compact(self, cycles: int = 5_000) -> None:
        """Let time pass until all that is due is compacted."""
        self.settle()
        upkeep = self.world.store.upkeep
        upkeep.check_now()
        for _ in range(cycles):
            self.world.now_ms += 20
            self.run()
            if upkeep.is_idle:
                self.settle()
                return
        raise AssertionError("compaction does not come to its end")

    def adopt(self, world: LogWorld) -> None:
        """Go on after a restart: what was not acknowledged may be gone."""
        self.world = world
        end = world.log.next_offset
        assert end >= self.flushed_offset
        self.sent = {offset: record for offset, record in self.sent.items() if offset < end}
        self.flushed_offset = end
        self.sequence = end

    def found(self) -> dict[int, tuple[bytes, bytes | None]]:
        """All records that a reader of the disk sees, in order, each once."""
        self.world.evict_all()
        found: dict[int, tuple[bytes, bytes | None]] = {}
        last = -1
        for record in self.world.records():
            assert record.offset > last, "offsets only increase"
            last = record.offset
            assert record.key is not None
            found[record.offset] = (record.key, record.value)
        return found

    def check(self, *, tombstones_may_be_gone: bool = False) -> None:
        """Nothing that was not sent, at no other offset; and the latest record of every key."""
        found = self.found()
        for offset, record in found.items():
            assert self.sent[offset] == record, f"offset {offset} holds what was sent"
        latest = {key: offset for offset, (key, _) in sorted(self.sent.items())}
        for key, offset in latest.items():
            is_tombstone = self.sent[offset][1] is None
            if offset not in found:
                assert is_tombstone and tombstones_may_be_gone, (
                    f"the latest of {key!r}, at {offset}, is there"
                )
                assert all(other != key for other, _ in found.values()), "no deleted value comes back"

    def superseded_below(self, end_offset: int) -> list[int]:
        """Offsets of records that a compaction up to an offset should have removed."""
        latest = {key: offset for offset, (key, _) in sorted(self.sent.items()) if offset < end_offset}
        return [o for o, (key, _) in self.found().items() if o < end_offset and latest[key] != o]
