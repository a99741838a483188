"""A log of keyed records of 1 KB of which most are superseded, to be compacted."""

from __future__ import annotations

import numpy as np

from perf.micro.acked import append, run_until, wall_ms
from perf.micro.payload import Group, timestamps, values
from ringlog.limits import KIB, MIB
from ringlog.log.batch import batch_infos
from ringlog.log.settings import LogSettings
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition
from ringlog.records.columns import Column
from ringlog.records.encode import encode_columns
from ringlog.records.scan import check

VALUE_BYTES = 1_000
BATCH_BYTES = 64 * KIB
_GROUP_BATCHES = 16
_KEY_BYTES = 10
_TIMES_WRITTEN = 2
"""Each key, on average: half of the records go."""


def settings(*, compact: bool) -> LogSettings:
    return LogSettings(segment_bytes=64 * MIB, compact=compact, dirty_ratio_min=0.01)


def fill(store: LogStore, name: TopicPartition, nbytes: int, *, seed: int) -> int:
    """Open a log that is not compacted yet, and append until it has so many bytes in sealed segments."""
    log = store.open(name, settings(compact=False), now_ms=wall_ms())
    rng = np.random.default_rng(seed)
    per_batch = BATCH_BYTES // (VALUE_BYTES + _KEY_BYTES + 20)
    keys = max(nbytes // VALUE_BYTES // _TIMES_WRITTEN, 1)
    column, times = values(per_batch, VALUE_BYTES), timestamps(per_batch)
    while log.log_bytes < nbytes:
        made = [
            encode_columns(column, keys=_keys(rng, keys, per_batch), timestamps=times)
            for _ in range(_GROUP_BATCHES)
        ]
        data = memoryview(bytearray(b"".join(made)))
        run_until(store, {name: append(store, name, Group(data, batch_infos(check(data, level="crc"))))})
    log.roll(wall_ms())
    store.drain(now_ms=wall_ms())
    return log.log_bytes


def remove(store: LogStore, name: TopicPartition) -> None:
    """Remove a log, and wait until its files are deleted: the next round must not pay for that."""
    store.remove(name)
    store.drain(now_ms=wall_ms())
    while store.disk.in_flight:
        store.run(now_ms=wall_ms(), wait_s=0.01)


def _keys(rng: np.random.Generator, keys: int, count: int) -> Column:
    texts = np.char.zfill(rng.integers(0, keys, count).astype(f"S{_KEY_BYTES}"), _KEY_BYTES)
    offsets = np.arange(0, (count + 1) * _KEY_BYTES, _KEY_BYTES, dtype=np.int32)
    return Column(offsets, np.frombuffer(texts.tobytes(), np.uint8))
