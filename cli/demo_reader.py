"""The consumer of the demo, a process of its own: reads every record; reports what is missing, twice or out of order.

`python -m cli.demo_reader BOOTSTRAP TOPIC PARTITIONS RECORDS` prints one line of JSON when it has them all.
"""

from __future__ import annotations

import sys
import time

import msgspec
import numpy as np

from ringlog.client.consumer import Consumer

PATIENCE_S = 30.0
"""How long to go on without a new record."""


class ReadReport(msgspec.Struct):
    """What a reader of the demo found."""

    read: int
    seconds: float
    missing: int = 0
    repeated: int = 0
    disordered: int = 0


def read_all(bootstrap: str, topic: str, partitions: int, records: int) -> ReadReport:
    """Read until every number from 0 to `records` was seen, or none comes any more."""
    seen = np.zeros(records, dtype=np.uint8)
    last = np.full(partitions, -1, dtype=np.int64)
    report = ReadReport(read=0, seconds=0.0)
    began = heard = time.perf_counter()
    with Consumer(bootstrap=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, partition, 0) for partition in range(partitions)])
        while report.read < records and time.perf_counter() - heard < PATIENCE_S:
            polled = consumer.poll(timeout_ms=500, max_records=100_000)
            if not polled:
                continue
            heard = time.perf_counter()
            count = len(polled)
            numbers = np.fromiter(
                (int.from_bytes((r.value or b"")[:8], "big") for r in polled), np.int64, count
            )
            homes = np.fromiter((r.partition for r in polled), np.int64, count)
            np.add.at(seen, numbers, 1)
            for home in np.unique(homes):
                run = np.concatenate(([last[home]], numbers[homes == home]))
                report.disordered += int((np.diff(run) <= 0).sum())
                last[home] = run[-1]
            report.read += count
    report.seconds = time.perf_counter() - began
    report.missing = int((seen == 0).sum())
    report.repeated = int((seen > 1).sum())
    return report


if __name__ == "__main__":
    bootstrap, topic, partitions, records = sys.argv[1:]
    print(msgspec.json.encode(read_all(bootstrap, topic, int(partitions), int(records))).decode(), flush=True)
