"""Long native work leaves other Python threads running."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from ringlog.native import _kernel
from ringlog.records.columns import Column
from ringlog.records.decode import checked, decode, decode_columns
from ringlog.records.encode import encode_columns
from ringlog.records.scan import check, find_batch, stamp

COLUMN = Column(np.arange(100_001, dtype=np.int32) * 100, bytes(10_000_000))
BATCH = encode_columns(COLUMN, timestamps=0)

ROWS = checked(BATCH)[0]
TOPIC = _kernel.TopicText("topic")

WORK = {
    "crc32c": lambda: _kernel.crc32c(BATCH),
    "check": lambda: check(BATCH),
    "find": lambda: find_batch(BATCH, 1, min_offset=0),
    "stamp": lambda: stamp(BATCH, base_offset=0, leader_epoch=0, append_time_ms=1),
    "encode": lambda: encode_columns(COLUMN, timestamps=0),
    "decode": lambda: decode(BATCH, check_crc=False),
    "decode to columns": lambda: decode_columns(BATCH, check_crc=False),
    "decode to Arrow": lambda: _kernel.ArrowRecords(BATCH, ROWS, None, TOPIC, 0),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_another_thread_runs_while_the_work_is_done(work):
    started = threading.Event()
    other_ran = threading.Event()
    seen_within_work = []

    def do_it() -> None:
        started.set()
        for _ in range(500):  # the other thread may be slow to wake
            work()
            if other_ran.is_set():
                seen_within_work.append(True)
                return

    # Nobody is forced to give the GIL up, so the other thread gets it only if the work lets go of it.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    try:
        worker = threading.Thread(target=do_it)
        worker.start()
        started.wait()
        other_ran.set()
        worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert seen_within_work
