"""All benchmarks, by name, in the order in which they run and are shown."""

from __future__ import annotations

from collections.abc import Callable

from perf.micro import (
    append_many,
    append_one,
    check,
    compaction,
    compaction_latency,
    crash,
    decode,
    encode,
    hot_read,
    open_clean,
    recovery_scan,
    ring,
)
from perf.micro.result import Result
from perf.micro.scale import Bench

BENCHMARKS: dict[str, Callable[[Bench], Result | list[Result]]] = {
    "encode": encode.run,
    "decode": decode.run,
    "check": check.run,
    "ring": ring.run,
    "append-one": append_one.run,
    "append-many": append_many.run,
    "hot-read": hot_read.run,
    "recovery-scan": recovery_scan.run,
    "crash": crash.run,
    "open-clean": open_clean.run,
    "compaction": compaction.run,
    "compaction-p99": compaction_latency.run,
}


def run_one(name: str, bench: Bench) -> list[Result]:
    """Run a benchmark in a directory of its own."""
    found = BENCHMARKS[name](bench)
    return found if isinstance(found, list) else [found]
