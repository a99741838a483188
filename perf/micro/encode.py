"""Encoding 100-byte records from columns, beside a copy and a CRC32C of the same bytes.

Batches of 256 KB, from the middle of what travels (64 KB to 1 MB). One core: the figure is records per second of
CPU time, so that others who want the core do not change it.
"""

from __future__ import annotations

from perf.micro.payload import timestamps, values
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate, core_seconds
from perf.micro.scale import Bench
from ringlog.records.checksum import crc32c
from ringlog.records.encode import encode_columns

VALUE_BYTES = 100
BATCH_RECORDS = 2_500


def run(bench: Bench) -> Result:
    batches = max(bench.scale.compute_bytes // (VALUE_BYTES * BATCH_RECORDS), 1)
    count = batches * BATCH_RECORDS
    column, times = values(count, VALUE_BYTES), timestamps(count)
    one = encode_columns(column, timestamps=times, stop=BATCH_RECORDS)
    source = bytes(one) * batches
    copy = bytearray(len(one))

    def ours() -> None:
        for start in range(0, count, BATCH_RECORDS):
            encode_columns(column, timestamps=times, start=start, stop=start + BATCH_RECORDS)

    def limit() -> None:
        view = memoryview(source)
        for start in range(0, len(source), len(one)):
            copy[:] = view[start : start + len(one)]
            crc32c(copy)

    samples, limits = alternate(
        lambda: count / core_seconds(ours) / 1e6,
        lambda: count / core_seconds(limit) / 1e6,
        bench.scale.rounds,
    )
    return result_of(
        "encode",
        f"encode {VALUE_BYTES} B records from columns, batches of {BATCH_RECORDS:,}",
        "M rec/s",
        samples,
        "copy and CRC32C of the same bytes",
        limits,
        Goal.at_least(20, "M rec/s"),
        {"gb_per_s": len(source) / count * samples[-1] / 1e3},
    )
