"""Reads a demo log back, by offset and by time, and compares every byte with what must be there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cli.demo_records import FIRST_TIMESTAMP_MS, RECORDS_PER_MS, VALUE_BYTES, timestamps, values
from cli.demo_writer import NAME
from ringlog.limits import MIB
from ringlog.log.store import LogStore
from ringlog.records.checksum import crc32c
from ringlog.records.decode import decode_columns

READ_BYTES = 1 * MIB


class WrongRecord(Exception):
    """A record is missing, or not what was appended."""


class ReadBack(NamedTuple):
    """What reading the whole log found."""

    records: int
    nbytes: int
    checksum: int
    """Of the values of the acknowledged records, as they were read."""


def read_by_offset(store: LogStore, acknowledged_offset: int) -> ReadBack:
    """Read all records from the first to the last. Raises WrongRecord at the first that is not right."""
    offset = nbytes = checksum = 0
    end = store.logs[NAME].next_offset
    while offset < end:
        with store.read_now(NAME, offset, READ_BYTES) as slices:
            nbytes += slices.nbytes
            found = decode_columns(slices.tobytes(), columns=("offset", "timestamp", "value"))
        assert found.offset is not None and found.timestamp is not None and found.value is not None
        count = found.count
        _must_equal(found.offset, np.arange(offset, offset + count), "offset", offset)
        _must_equal(found.timestamp, timestamps(offset, count), "timestamp", offset)
        _must_equal(found.value.data, values(offset, count).reshape(-1), "value", offset)
        promised = max(min(acknowledged_offset - offset, count), 0)
        checksum = crc32c(memoryview(found.value.data)[: promised * VALUE_BYTES], checksum)
        offset += count
    return ReadBack(offset, nbytes, checksum)


def expected_checksum(acknowledged_offset: int) -> int:
    """The checksum of the values that were acknowledged, made anew and not read."""
    checksum, step = 0, 10_000
    for first in range(0, acknowledged_offset, step):
        checksum = crc32c(values(first, min(step, acknowledged_offset - first)), checksum)
    return checksum


def find_by_time(store: LogStore, offset: int) -> int:
    """Look for the first record of the millisecond that a record was made in; the offset that was found."""
    timestamp = FIRST_TIMESTAMP_MS + offset // RECORDS_PER_MS
    found = store.find_time_now(NAME, timestamp)
    wanted = offset - offset % RECORDS_PER_MS
    if found is None or (found.offset, found.timestamp) != (wanted, timestamp):
        raise WrongRecord(f"the first record at {timestamp} ms is at offset {wanted}, but {found} was found")
    return found.offset


def _must_equal(found: np.ndarray, wanted: np.ndarray, what: str, offset: int) -> None:
    if not np.array_equal(found, wanted):
        raise WrongRecord(f"a {what} at or behind offset {offset} is not what was appended")
