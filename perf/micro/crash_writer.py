"""The process that the crash benchmark kills: `python -m perf.micro.crash_writer DIR PARTITIONS BYTES`.

Appends to all partitions without end; says one line when BYTES are acknowledged.
"""

from __future__ import annotations

import sys

from perf.micro.acked import append, run_until, wall_ms
from perf.micro.payload import group
from ringlog.disk.choose import open_disk
from ringlog.limits import KIB
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition

BATCH_BYTES = 64 * KIB


def names(partitions: int) -> list[TopicPartition]:
    return [TopicPartition("crash", number) for number in range(partitions)]


def write_for_ever(directory: str, partitions: list[TopicPartition], tell_at_bytes: int) -> None:
    made = group(BATCH_BYTES, BATCH_BYTES, 1_000)
    store = LogStore(open_disk(), directory)
    for name in partitions:
        store.open(name, now_ms=wall_ms())
    acked_bytes = 0
    told = False
    acked = {name: append(store, name, made) for name in partitions}
    while True:
        following = {name: append(store, name, made) for name in partitions}
        run_until(store, acked)
        acked = following
        acked_bytes += len(partitions) * made.data.nbytes
        if acked_bytes >= tell_at_bytes and not told:
            told = True
            print(acked_bytes, flush=True)


if __name__ == "__main__":
    write_for_ever(sys.argv[1], names(int(sys.argv[2])), int(sys.argv[3]))
