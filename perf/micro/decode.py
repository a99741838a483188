"""Decoding 100-byte records to columns, beside a CRC32C and a copy of the same bytes.

A call decodes what a fetch of 1 MB brings: four batches of 256 KB. One core: the figure is records per second of
CPU time, so that others who want the core do not change it.
"""

from __future__ import annotations

from perf.micro.payload import timestamps, values
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate, core_seconds
from perf.micro.scale import Bench
from ringlog.records.checksum import crc32c
from ringlog.records.decode import decode_columns
from ringlog.records.encode import encode_columns

VALUE_BYTES = 100
BATCH_RECORDS = 2_500
FETCH_BATCHES = 4


def run(bench: Bench) -> Result:
    fetches = max(bench.scale.compute_bytes // (VALUE_BYTES * BATCH_RECORDS * FETCH_BATCHES), 1)
    count = fetches * FETCH_BATCHES * BATCH_RECORDS
    one = encode_columns(values(BATCH_RECORDS, VALUE_BYTES), timestamps=timestamps(BATCH_RECORDS))
    step = len(one) * FETCH_BATCHES
    data = memoryview(bytes(one) * FETCH_BATCHES * fetches)
    copy = bytearray(step)

    def ours() -> None:
        for start in range(0, len(data), step):
            decode_columns(data[start : start + step])

    def limit() -> None:
        for start in range(0, len(data), step):
            crc32c(data[start : start + step])
            copy[:] = data[start : start + step]

    samples, limits = alternate(
        lambda: count / core_seconds(ours) / 1e6,
        lambda: count / core_seconds(limit) / 1e6,
        bench.scale.rounds,
    )
    return result_of(
        "decode",
        f"decode {VALUE_BYTES} B records to all columns, 1 MB at a time",
        "M rec/s",
        samples,
        "CRC32C and copy of the same bytes",
        limits,
        Goal.at_least(20, "M rec/s"),
        {"gb_per_s": len(data) / count * samples[-1] / 1e3},
    )
