"""Decoding 100-byte records to columns, beside a CRC32C and a copy of the same bytes."""

from __future__ import annotations

from perf.micro.payload import timestamps, values
from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate, core_seconds
from perf.micro.scale import Bench
from ringlog.records.checksum import crc32c
from ringlog.records.decode import decode_columns
from ringlog.records.encode import encode_columns

VALUE_BYTES = 100
BATCH_RECORDS = 1_000


def run(bench: Bench) -> Result:
    batches = max(bench.scale.compute_bytes // (VALUE_BYTES * BATCH_RECORDS), 1)
    count = batches * BATCH_RECORDS
    one = encode_columns(values(BATCH_RECORDS, VALUE_BYTES), timestamps=timestamps(BATCH_RECORDS))
    data = memoryview(bytes(one) * batches)
    copy = bytearray(len(one))

    def ours() -> None:
        for start in range(0, len(data), len(one)):
            decode_columns(data[start : start + len(one)])

    def limit() -> None:
        for start in range(0, len(data), len(one)):
            crc32c(data[start : start + len(one)])
            copy[:] = data[start : start + len(one)]

    samples, limits = alternate(
        lambda: count / core_seconds(ours) / 1e6, lambda: count / core_seconds(limit) / 1e6, bench.scale.rounds
    )
    return result_of(
        "decode",
        f"decode {VALUE_BYTES} B records to all columns, batches of {BATCH_RECORDS}",
        "M records/s",
        samples,
        "CRC32C and copy of the same bytes",
        limits,
        Goal.at_least(20, "M records/s"),
        {"gb_per_s": len(data) / count * samples[-1] / 1e3},
    )
