"""The process that the storage demo kills: `python -m cli.demo_writer DIR`.

Appends without end. Prints a line for each acknowledgement, after it: the offset below which all is flushed, the
bytes of those records, how long the newest of them waited, in microseconds, and the monotonic nanosecond.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import NoReturn

from cli.demo_records import BATCH_RECORDS, batch
from cli.failures import exit_code, failure_line
from ringlog.disk.choose import open_disk
from ringlog.errors import RinglogError
from ringlog.limits import MIB
from ringlog.log.batch import batch_infos
from ringlog.log.events import Fenced, Progress, Quarantined
from ringlog.log.settings import LogSettings
from ringlog.log.store import LogStore
from ringlog.model import TopicPartition
from ringlog.records.scan import check

NAME = TopicPartition("demo", 0)
SETTINGS = LogSettings(segment_bytes=64 * MIB)
UNACKNOWLEDGED_BATCHES_MAX = 16


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def append(store: LogStore, first_offset: int) -> int:
    """Append the batch that belongs at an offset; its bytes."""
    data = memoryview(batch(first_offset))
    store.append(NAME, data, batch_infos(check(data)), now_ms=wall_ms())
    return data.nbytes


def write_for_ever(directory: str) -> NoReturn:
    store = LogStore(open_disk(), directory)
    store.open(NAME, SETTINGS, now_ms=wall_ms())
    waiting: deque[tuple[int, int, float]] = deque()
    """(offset behind it, bytes, when it was appended) of each batch without an acknowledgement."""
    next_offset = acknowledged_bytes = 0
    while True:
        while len(waiting) < UNACKNOWLEDGED_BATCHES_MAX:
            nbytes = append(store, next_offset)
            next_offset += BATCH_RECORDS
            waiting.append((next_offset, nbytes, time.perf_counter()))
            events = store.run(now_ms=wall_ms())
            if events:
                break
        else:
            events = store.run(now_ms=wall_ms(), wait_s=None)
        for event in events:
            if isinstance(event, Fenced | Quarantined):
                raise event.error
            if not isinstance(event, Progress):
                continue
            waited_s = 0.0
            while waiting and waiting[0][0] <= event.offset:
                _, nbytes, appended_at = waiting.popleft()
                acknowledged_bytes += nbytes
                waited_s = time.perf_counter() - appended_at
            print(event.offset, acknowledged_bytes, int(waited_s * 1e6), time.monotonic_ns(), flush=True)


def main(directory: str) -> int:
    """Append until that fails; the exit code of what it failed by."""
    try:
        write_for_ever(directory)
    except (RinglogError, OSError) as error:
        print(failure_line(error), file=sys.stderr)
        return exit_code(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
