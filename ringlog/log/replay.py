"""Brings what is derived from a log (indexes, producers, epochs) up to batches that are already in it.

The counterpart of `PartitionLog.append`, for whole tables of batches at once.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from ringlog.limits import INDEX_INTERVAL_BYTES, PRODUCER_BATCHES_KEPT
from ringlog.log.batch import batch_infos
from ringlog.log.epochs import EpochHistory
from ringlog.log.index import SegmentIndex
from ringlog.log.producers import ProducerTable
from ringlog.records.format import APPEND_TIME_BIT


def replay_index(index: SegmentIndex, table: np.ndarray) -> None:
    """Add the batches of a BATCH_TABLE whose positions count from the start of the segment."""
    if not len(table):
        return
    timestamps = table["max_timestamp"]
    highest = np.maximum.accumulate(np.maximum(timestamps, index.max_timestamp))
    rises = timestamps > np.concatenate(([index.max_timestamp], highest[:-1]))
    # For each batch the last one up to it that raised the highest timestamp; -1: one of an earlier table did.
    peaks = np.maximum.accumulate(np.where(rises, np.arange(len(table)), -1))
    offsets = np.where(peaks >= 0, table["last_offset"][peaks], index.max_timestamp_offset)
    rows = _entry_rows(table["position"].tolist(), index.next_position)
    for last_offset, position, timestamp, offset in zip(
        table["last_offset"][rows].tolist(),
        table["position"][rows].tolist(),
        highest[rows].tolist(),
        offsets[rows].tolist(),
        strict=True,
    ):
        index.add_entry(last_offset, position, timestamp, offset)
    index.max_timestamp, index.max_timestamp_offset = int(highest[-1]), int(offsets[-1])


def _entry_rows(positions: list[int], next_position: int) -> list[int]:
    """The batches that make an entry: each the first that begins INDEX_INTERVAL_BYTES behind the one before."""
    rows = []
    row = bisect_left(positions, next_position)
    while row < len(positions):
        rows.append(row)
        row = bisect_left(positions, positions[row] + INDEX_INTERVAL_BYTES, lo=row + 1)
    return rows


def replay_epochs(epochs: EpochHistory, table: np.ndarray) -> None:
    """Note where the leader epoch changes."""
    if not len(table) or (table["leader_epoch"] == epochs.latest).all():
        return
    changes = np.flatnonzero(np.diff(table["leader_epoch"], prepend=table["leader_epoch"][:1] - 1))
    for row in changes:
        epochs.note(int(table["leader_epoch"][row]), int(table["base_offset"][row]))


def replay_producers(producers: ProducerTable, table: np.ndarray, now_ms: int) -> None:
    """Note the last batches of every producer; earlier ones could not be recognised any more anyway."""
    rows = table[table["producer_id"] >= 0]
    if not len(rows):
        return
    # Sorted by producer and stably, so that a batch's place from its producer's last one is its distance to that.
    order = np.argsort(rows["producer_id"], kind="stable")
    ids = rows["producer_id"][order]
    ends = np.append(np.flatnonzero(np.diff(ids)), len(ids) - 1)
    from_last = ends[np.searchsorted(ends, np.arange(len(ids)))] - np.arange(len(ids))
    kept = rows[
        np.sort(order[from_last < PRODUCER_BATCHES_KEPT])
    ]  # in the order of the log, as they were noted first
    # Compaction leaves fewer records than a batch had; its sequences went as far as its offsets still go.
    kept["record_count"] = kept["last_offset"] - kept["base_offset"] + 1
    by_append = kept["attributes"] & APPEND_TIME_BIT != 0
    append_times_ms = np.where(by_append, kept["max_timestamp"], -1).tolist()
    offsets = kept["base_offset"].tolist()
    for batch, base_offset, append_time_ms in zip(batch_infos(kept), offsets, append_times_ms, strict=True):
        producers.note(batch, base_offset, now_ms, append_time_ms)
