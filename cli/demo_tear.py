"""Does to a log file what a power loss does: leaves half of a write that nobody was promised."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from cli.demo_records import batch
from ringlog.errors import check as must_hold
from ringlog.limits import SECTOR_BYTES
from ringlog.records.scan import scan, stamp


class Tear(NamedTuple):
    """What was torn: bytes of the batch from `position` on are there, bytes of it are gone."""

    position: int
    left_bytes: int
    gone_bytes: int


def tear_last_batch(log_path: str, acknowledged_offset: int) -> Tear:
    """Tear the last batch of a segment whose acknowledged records end at an offset. Never touches one of those.

    When the kill left no batch behind the acknowledged ones, the torn half of the next one is written there: the
    device may have got it and not the rest.
    """
    with open(log_path, "r+b") as file:
        data = file.read()
        found = scan(data, level="crc")
        unacknowledged = np.flatnonzero(found.table["base_offset"] >= acknowledged_offset)
        if unacknowledged.size:
            row = found.table[unacknowledged[-1]]
            position = int(row["position"])
            torn = data[position : position + int(row["length"])]
        else:
            position = found.end
            made = batch(acknowledged_offset)
            stamp(made, base_offset=acknowledged_offset, leader_epoch=0)
            torn = bytes(made)
        # Sectors are written whole: the tear lies where one begins.
        tear_at = position + len(torn) // 2
        tear_at -= tear_at % SECTOR_BYTES
        left, gone = tear_at - position, len(torn) - (tear_at - position)
        must_hold(0 < left < len(torn), "a torn batch has a part that is there and one that is gone")
        file.seek(position)
        file.write(torn[:left] + bytes(gone))
        file.flush()
        os.fsync(file.fileno())
    return Tear(position, left, gone)
