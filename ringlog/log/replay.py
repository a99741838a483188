"""Brings what is derived from a log (indexes, producers, epochs) up to batches that are already in it.

The counterpart of `PartitionLog.append`, for whole tables of batches at once.
"""

from __future__ import annotations

import numpy as np

from ringlog.limits import PRODUCER_BATCHES_KEPT
from ringlog.log.batch import batch_infos
from ringlog.log.epochs import EpochHistory
from ringlog.log.index import SegmentIndex
from ringlog.log.producers import ProducerTable


def replay_index(index: SegmentIndex, table: np.ndarray) -> None:
    """Add the batches of a BATCH_TABLE whose positions count from the start of the segment."""
    positions = table["position"]
    highest = np.maximum.accumulate(table["max_timestamp"])
    done = 0
    while done < len(table):
        # The next batch that makes an entry; those before it only move the highest timestamp.
        entry = max(int(np.searchsorted(positions, index.next_position)), done)
        upto = min(entry + 1, len(table))
        if highest[upto - 1] > index.max_timestamp:
            peak = done + int(table["max_timestamp"][done:upto].argmax())
            if table["max_timestamp"][peak] > index.max_timestamp:
                index.max_timestamp = int(table["max_timestamp"][peak])
                index.max_timestamp_offset = int(table["last_offset"][peak])
        if entry < len(table):
            index.add_batch(
                int(table["last_offset"][entry]), int(positions[entry]), int(table["max_timestamp"][entry])
            )
        done = upto


def replay_epochs(epochs: EpochHistory, table: np.ndarray) -> None:
    """Note where the leader epoch changes."""
    changes = np.flatnonzero(np.diff(table["leader_epoch"], prepend=table["leader_epoch"][:1] - 1))
    for row in changes:
        epochs.note(int(table["leader_epoch"][row]), int(table["base_offset"][row]))


def replay_producers(producers: ProducerTable, table: np.ndarray, now_ms: int) -> None:
    """Note the last batches of every producer; earlier ones could not be recognised any more anyway."""
    rows = table[table["producer_id"] >= 0]
    for producer_id in np.unique(rows["producer_id"]):
        own = rows[rows["producer_id"] == producer_id][-PRODUCER_BATCHES_KEPT:]
        for batch, base_offset in zip(batch_infos(own), own["base_offset"].tolist(), strict=True):
            producers.note(batch, base_offset, now_ms)
