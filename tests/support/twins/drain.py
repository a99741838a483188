"""The twin of the drain: one frame at a time, in Python.

Batches are checked by `records.scan`, which has a twin of its own; here the walk, the frame's header, what is
asked of several batches in one frame, and the grouping are proven.
"""

from __future__ import annotations

import struct
from typing import Any

from ringlog.records.scan import scan
from ringlog.ring.drain import NO_PARTITION, DrainStatus
from tests.support.twins.ring import Reader

Row = dict[str, Any]

NEAR = 4

HEADER_NAMES = ("version", "api_key", "flags", "partition", "correlation", "session", "deadline_ms")
NO_BATCHES = {
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
    "last_sequence": -1,
    "max_timestamp": -1,
    "batch_count": 0,
    "record_count": 0,
    "attributes_any": 0,
}


def drain(reader: Reader, messages_max: int, bytes_max: int) -> tuple[list[Row], list[tuple[int, int, int]]]:
    """Rows by partition, and (partition, first row, rows) of each."""
    rows: list[Row] = []
    walked_bytes = 0
    while len(rows) < messages_max and walked_bytes < bytes_max:
        found = reader.walk(1)
        if not found:
            break
        ((kind, offset, size),) = found
        message = bytes(reader.memory.buffer[offset : offset + size])
        rows.append(describe(kind, offset, message))
        walked_bytes += size + named_bytes(rows[-1], message)
    rows.sort(key=lambda row: row["partition"])  # stable: the order of arrival stays
    groups = []
    for partition in sorted({row["partition"] for row in rows}):
        places = [i for i, row in enumerate(rows) if row["partition"] == partition]
        groups.append((partition, places[0], len(places)))
    return rows, groups


def describe(kind: int, offset: int, message: bytes) -> Row:
    row: Row = dict.fromkeys(HEADER_NAMES, 0)
    row |= NO_BATCHES | {"kind": kind, "zero": 0, "partition": NO_PARTITION}
    row |= {"body_position": offset, "body_bytes": len(message)}
    if len(message) < 32:
        return refused(row, DrainStatus.FRAME_SHORT, len(message))
    *fields, body_bytes = struct.unpack("<BBHIQQII", message[:32])
    row |= dict(zip(HEADER_NAMES, fields, strict=True))
    body = message[32:]
    row |= {"body_position": offset + 32, "body_bytes": len(body)}
    if row["version"] != 1:
        return refused(row, DrainStatus.FRAME_VERSION, 0)
    if body_bytes != len(body):
        return refused(row, DrainStatus.FRAME_BODY_BYTES, 28)
    if row["api_key"] != 0 or row["flags"] & NEAR:
        return refused(row, DrainStatus.OK, 0)
    if not body:
        return refused(row, DrainStatus.NO_BATCH, 32)
    return with_batches(row, body)


def named_bytes(row: Row, message: bytes) -> int:
    """How much the batches have that a frame names instead of holding them."""
    is_near = row["api_key"] == 0 and row["flags"] & NEAR and row["status"] == 0
    return int.from_bytes(message[40:44], "little") if is_near and len(message) >= 44 else 0


def with_batches(row: Row, body: bytes) -> Row:
    scanned = scan(body, gapless=True)
    for batch in scanned.table:
        position = 32 + int(batch["position"])
        if row["batch_count"] == 0:
            row |= {name: int(batch[name]) for name in ("producer_id", "producer_epoch", "base_sequence")}
            row["max_timestamp"] = int(batch["max_timestamp"])
        else:
            same = all(row[name] == batch[name] for name in ("producer_id", "producer_epoch"))
            follows = -1 if row["last_sequence"] == -1 else (row["last_sequence"] + 1) % 2**31
            if not same:
                return refused(row, DrainStatus.MIXED_PRODUCERS, position + 43)
            if batch["base_sequence"] != follows:
                return refused(row, DrainStatus.MIXED_PRODUCERS, position + 53)
        records, base_sequence = int(batch["record_count"]), int(batch["base_sequence"])
        row["last_sequence"] = -1 if base_sequence == -1 else (base_sequence + records - 1) % 2**31
        row["max_timestamp"] = max(row["max_timestamp"], int(batch["max_timestamp"]))
        row["attributes_any"] |= int(batch["attributes"]) & 0xFFFF
        row["record_count"] += records
        row["batch_count"] += 1
    if scanned.fault is not None:
        return refused(row, DrainStatus.BAD_BATCH, 32 + scanned.fault.position)
    return refused(row, DrainStatus.OK, 0)


def refused(row: Row, status: DrainStatus, fault_position: int) -> Row:
    return row | {"status": int(status), "fault_position": fault_position}
