"""How much a run measures: enough for a figure, a quick look, or just that it works."""

from __future__ import annotations

from typing import NamedTuple

from ringlog.limits import KIB, MIB


class Scale(NamedTuple):
    """The amounts of one run. Sizes of single batches, writes and messages are part of what is measured and
    the same at every scale."""

    name: str
    rounds: int
    compute_bytes: int
    """Batch bytes that a round of encode, decode or check goes through."""
    ring_bytes: int
    ring_messages: int
    """Both more than one drain can take: a rate counts from the first drain to the last."""
    append_bytes: int
    """Appended by a round of a durable append to one partition."""
    cycles: int
    """Of a round of durable appends to many partitions."""
    partitions: int
    tail_bytes: int
    scan_bytes: int
    crash_partitions: int
    crash_bytes: int
    """What the writer has acknowledged when it is killed."""
    clean_partitions: int
    compacted_bytes: int
    """Of a log that is compacted in one round."""
    paced_appends: int
    """Of a round that measures their latency."""


FULL = Scale(
    name="full",
    rounds=7,
    compute_bytes=64 * MIB,
    ring_bytes=2048 * MIB,
    ring_messages=4_000_000,
    append_bytes=128 * MIB,
    cycles=24,
    partitions=100,
    tail_bytes=128 * MIB,
    scan_bytes=256 * MIB,
    crash_partitions=16,
    crash_bytes=384 * MIB,
    clean_partitions=1_000,
    compacted_bytes=192 * MIB,
    paced_appends=2_000,
)

QUICK = FULL._replace(
    name="quick",
    rounds=3,
    compute_bytes=16 * MIB,
    ring_bytes=512 * MIB,
    ring_messages=1_000_000,
    append_bytes=32 * MIB,
    cycles=6,
    scan_bytes=64 * MIB,
    crash_bytes=128 * MIB,
    compacted_bytes=96 * MIB,
    paced_appends=800,
)

TINY = Scale(
    name="tiny",
    rounds=2,
    compute_bytes=256 * KIB,
    ring_bytes=16 * MIB,
    ring_messages=20_000,
    append_bytes=2 * MIB,
    cycles=1,
    partitions=3,
    tail_bytes=2 * MIB,
    scan_bytes=1 * MIB,
    crash_partitions=2,
    crash_bytes=1 * MIB,
    clean_partitions=3,
    compacted_bytes=3 * MIB,
    paced_appends=20,
)

SCALES = {scale.name: scale for scale in (FULL, QUICK, TINY)}


class Bench(NamedTuple):
    """What a benchmark is given."""

    scale: Scale
    directory: str
    """An empty directory of its own, on the disk that is measured."""
