"""Facts of a machine that was never probed: smooth curves, so that advice can be checked by hand."""

from __future__ import annotations

import msgspec

from tuning.doctor.facts import Core, StorageFacts, SystemFacts
from tuning.probe.measured import (
    BUFFERED,
    DSYNC,
    FLUSH,
    FRESH,
    PLAIN,
    REUSED,
    CorePair,
    Facts,
    Measured,
    ReadPoint,
    WirePoint,
    WritePoint,
)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = (4 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB)
DEPTHS = (1, 4, 16, 64)


def rate(size: int, depth: int, best: float) -> float:
    """Bytes per second: half the best at 128 KiB in flight, and nine tenths at a little more than a MiB."""
    in_flight = size * depth
    return best * in_flight / (in_flight + 128 * KIB)


def point(method: str, space: str, size: int, depth: int, best: float, factor: float = 1.0) -> WritePoint:
    found = rate(size, depth, best) / factor
    p50_us = size * depth / found * 1e6
    return WritePoint(
        method=method,
        space=space,
        size_bytes=size,
        depth=depth,
        count=100,
        p50_us=round(p50_us, 1),
        p99_us=round(p50_us * 3, 1),
        bytes_per_s=round(found),
    )


def writes(best: float) -> tuple[WritePoint, ...]:
    made = []
    for space, quicker in ((FRESH, 1.0), (REUSED, 0.7)):
        made += [point(DSYNC, space, size, depth, best, quicker) for size in SIZES for depth in DEPTHS]
        for method, factor in ((FLUSH, 1.3), (BUFFERED, 2.0)):
            made += [
                point(method, space, size, 1, best, factor * quicker) for size in (4 * KIB, 64 * KIB, MIB)
            ]
        made += [point(PLAIN, space, size, 16, best, 4.0) for size in (4 * KIB, 64 * KIB)]
    return tuple(made)


def facts(*, cores: int = 8, disk_bytes_per_s: float = 1e9, **system) -> Facts:
    """A server with an NVMe disk; `system` are fields of SystemFacts."""
    storage = system.pop("storage", {})
    return Facts(
        probed_at="2026-11-16T12:00:00+00:00",
        system=SystemFacts(
            **{
                "kernel": "6.8.0",
                "cpu_model": "A Processor",
                "cores": tuple(Core(number=n, physical=n) for n in range(cores)),
                "memory_total_bytes": 64 * GIB,
                "memory_available_bytes": 48 * GIB,
                "shm_free_bytes": 32 * GIB,
                "open_files_hard": 524288,
                "huge_pages": "madvise",
                "clock_source": "tsc",
                **system,
            },
            storage=StorageFacts(
                **{
                    "directory": "/data",
                    "file_system": "xfs",
                    "mount_point": "/data",
                    "device": "nvme0n1",
                    "model": "A Fast Disk",
                    "scheduler": "none",
                    "schedulers": ("none", "mq-deadline"),
                    "write_cache": "write through",
                    "free_bytes": 800 * GIB,
                    "total_bytes": 1000 * GIB,
                    **storage,
                }
            ),
        ),
        measured=Measured(
            engine="io_uring",
            budget_s=30.0,
            took_s=29.5,
            writes=writes(disk_bytes_per_s),
            reads=(
                ReadPoint(size_bytes=4 * KIB, depth=1, count=9, p50_us=80.0, p99_us=120.0, bytes_per_s=5e7),
                ReadPoint(size_bytes=MIB, depth=4, count=9, p50_us=900.0, p99_us=1200.0, bytes_per_s=4e9),
            ),
            memcpy_bytes_per_s=1.1e10,
            hop_sleeping_us=30.0,
            hop_spinning_us=3.0,
            wire_round_trip_us={"tcp": 90.0, "ipc": 70.0},
            wires=tuple(
                WirePoint(scheme=scheme, frame_bytes=size, bytes_per_s=best * size / (size + 64 * KIB))
                for scheme, best in (("tcp", 2e9), ("ipc", 3e9))
                for size in (KIB, 64 * KIB, MIB)
            ),
            core_pairs=(CorePair(first=0, second=1, round_trip_us=0.4),),
        ),
    )


def without(measured_facts: Facts, **fields) -> Facts:
    """The same facts with other measurements."""
    return msgspec.structs.replace(
        measured_facts, measured=msgspec.structs.replace(measured_facts.measured, **fields)
    )
