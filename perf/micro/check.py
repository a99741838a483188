"""Checking batches (CRC and the structure of every record), beside their CRC32C alone; per second of CPU time."""

from __future__ import annotations

from perf.micro.payload import group
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate, core_seconds
from perf.micro.scale import Bench
from ringlog.limits import KIB
from ringlog.records.checksum import crc32c
from ringlog.records.scan import check

VALUE_BYTES = 1_000
BATCH_BYTES = 64 * KIB


def run(bench: Bench) -> Result:
    data, _ = group(bench.scale.compute_bytes, BATCH_BYTES, VALUE_BYTES)
    samples, limits = alternate(
        lambda: data.nbytes / core_seconds(lambda: check(data, level="full")) / 1e9,
        lambda: data.nbytes / core_seconds(lambda: crc32c(data)) / 1e9,
        bench.scale.rounds,
    )
    return result_of(
        "check",
        f"check CRC and structure, {VALUE_BYTES} B records, batches of {BATCH_BYTES // KIB} KiB",
        "GB/s",
        samples,
        "CRC32C alone",
        limits,
        Goal.at_least(4, "GB/s"),
    )
