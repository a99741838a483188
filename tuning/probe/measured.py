"""What a probe found, as it is saved and as advice reads it."""

from __future__ import annotations

import msgspec

from tuning.doctor.facts import SystemFacts

DSYNC, FLUSH, BUFFERED, PLAIN = "direct-dsync", "direct-flush", "buffered-flush", "plain-dsync"
FRESH, REUSED = "fresh", "reused"


class WritePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Durable writes of one size, so many at a time, each to a file of its own, as a shard does it."""

    method: str
    """`direct-dsync`: O_DIRECT with RWF_DSYNC, what a node does; `direct-flush`: O_DIRECT, then fdatasync;
    `buffered-flush`: through the page cache, then fdatasync; `plain-dsync`: the first one without io_uring."""
    space: str
    """`fresh`: reserved and never written; `reused`: written before."""
    size_bytes: int
    depth: int
    count: int
    p50_us: float
    p99_us: float
    bytes_per_s: float


class ReadPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Direct reads of one size, so many at a time."""

    size_bytes: int
    depth: int
    count: int
    p50_us: float
    p99_us: float
    bytes_per_s: float


class WirePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Frames of one size from a DEALER to a ROUTER in another process."""

    scheme: str
    frame_bytes: int
    bytes_per_s: float


class CorePair(msgspec.Struct, frozen=True, kw_only=True):
    """How long a byte takes from one core to another and back, in a loop of Python: compare pairs, not clocks."""

    first: int
    second: int
    round_trip_us: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """All that was measured. None, or nothing: the time did not suffice, or there is nothing to measure."""

    engine: str
    budget_s: float
    took_s: float
    writes: tuple[WritePoint, ...] = ()
    reads: tuple[ReadPoint, ...] = ()
    memcpy_bytes_per_s: float | None = None
    hop_sleeping_us: float | None = None
    """One way through a ring to a process that sleeps: the median."""
    hop_spinning_us: float | None = None
    """The same to one that does not."""
    wire_round_trip_us: dict[str, float] = {}
    """Of 1 KiB, by scheme."""
    wires: tuple[WirePoint, ...] = ()
    core_pairs: tuple[CorePair, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, seen and measured: all that advice is made from."""

    probed_at: str
    system: SystemFacts
    measured: Measured
