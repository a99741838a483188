"""Checks the inside of batches whose CRCs are right: structure, number, offsets and timestamps of records."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ringlog.errors import CorruptBatch
from ringlog.log.findings import Finding, Rule
from ringlog.log.walk import Run
from ringlog.records.decode import decode_columns
from ringlog.records.format import CODEC_MASK


def check_records(path: str, run: Run, rows: int, *, compacted: bool) -> Iterator[Finding]:
    """What is wrong with the records of the first `rows` batches of a run, compressed ones included."""
    table = run.table[:rows]
    if not compacted:
        yield from _check_counts(path, table)
    for start, stop in _groups((table["attributes"] & CODEC_MASK) != 0):
        yield from _check_group(path, run, start, stop, compacted)


def _check_counts(path: str, table: np.ndarray) -> Iterator[Finding]:
    offsets = table["last_offset"] - table["base_offset"] + 1
    for row in np.flatnonzero(table["record_count"] != offsets).tolist():
        count = f"{int(table['record_count'][row])} records for {int(offsets[row])} offsets"
        yield Finding(Rule.DENSE_OFFSETS, path, int(table["position"][row]), count)


def _groups(is_compressed: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of rows to decode together: plain batches in one go, and compressed ones, which may unfold to
    much more, one by one."""
    at = 0
    while at < len(is_compressed):
        stop = at + 1
        if not is_compressed[at]:
            following = np.flatnonzero(is_compressed[at:])
            stop = at + int(following[0]) if following.size else len(is_compressed)
        yield at, stop
        at = stop


def _check_group(path: str, run: Run, start: int, stop: int, compacted: bool) -> Iterator[Finding]:
    table = run.table[start:stop]
    first = int(table["position"][0]) - run.position
    data = run.data[first : first + int(table["length"].sum(dtype=np.int64))]
    try:
        columns = decode_columns(data, columns=("timestamp",), include_control=True, check_crc=False)
    except CorruptBatch as fault:
        if stop - start > 1:
            for row in range(start, stop):
                yield from _check_group(path, run, row, row + 1, compacted)
        else:
            at = int(table["position"][0]) + fault.position
            yield Finding(Rule.RECORDS, path, at, f"{fault.field}: {fault.reason}")
        return
    assert columns.timestamp is not None
    yield from _check_timestamps(path, table, columns.timestamp, compacted)


def _check_timestamps(
    path: str, table: np.ndarray, timestamps: np.ndarray, compacted: bool
) -> Iterator[Finding]:
    """Compaction may take the record that had the highest timestamp, but never adds a higher one."""
    filled = table[table["record_count"] > 0]
    if not len(filled):
        return
    ends = np.cumsum(filled["record_count"], dtype=np.int64)
    highest = np.maximum.reduceat(timestamps, ends - filled["record_count"])
    claimed = filled["max_timestamp"]
    for row in np.flatnonzero(highest > claimed if compacted else highest != claimed).tolist():
        found = f"{int(claimed[row])} in the header and {int(highest[row])} in the records"
        yield Finding(Rule.TIMESTAMPS, path, int(filled["position"][row]), found)
