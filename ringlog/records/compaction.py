"""Compaction of record batches: the latest record of each key stays, with its offset. Native per record.

Two passes over batches: `note` puts the keys into an OffsetMap, `filter_batches` copies what is still wanted. Records
without a key are never superseded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ringlog import limits
from ringlog.errors import CorruptBatch
from ringlog.native import _kernel
from ringlog.records import codecs
from ringlog.records.codecs import unfold
from ringlog.records.format import CODEC_MASK, codec_of

OffsetMap = _kernel.OffsetMap


class Rules(NamedTuple):
    """Which records may go."""

    end_offset: int
    """Records from here on stay: the map says nothing of them."""
    drop_tombstones: bool
    """Records with a key and no value were kept long enough."""
    live: npt.NDArray[np.int64]
    """Base offsets, ascending, of batches that stay even when they are empty: the last ones of producers."""


class Kept(NamedTuple):
    """What `filter_batches` wrote."""

    nbytes: int
    changed: bool
    """Something was left out."""


def note(keys: OffsetMap, data: Any, table: npt.NDArray[np.void], start_offset: int) -> int | None:
    """Put the keys of whole, checked batches into the map, from an offset on. Returns the first offset that found no
    room, None when all did. Raises CorruptBatch for records that are not what they must be.

    >>> from ringlog.records.encode import encode
    >>> from ringlog.records.scan import check
    >>> batch = encode([b"on", b"off"], keys=[b"lamp", b"lamp"], timestamps=0)
    >>> keys = OffsetMap(1024, bytes(16))
    >>> note(keys, batch, check(batch), 0), keys.get(b"lamp")
    (None, 1)
    """
    for rows in _runs(table):
        payloads = None
        if is_compressed(rows):
            payload = _payload(data, rows)
            if payload is None:
                continue
            payloads = [payload]
        full_at = keys.note(data, rows.tobytes(), payloads, start_offset)
        if full_at >= 0:
            return full_at
    return None


def filter_batches(
    keys: OffsetMap, data: Any, table: npt.NDArray[np.void], rules: Rules, out: memoryview
) -> Kept:
    """Copy whole, checked batches to `out`, which is as large as they are, without records that have a later one.

    >>> from ringlog.records.decode import decode
    >>> from ringlog.records.encode import encode
    >>> from ringlog.records.scan import check
    >>> batch = encode([b"on", b"off"], keys=[b"lamp", b"lamp"], timestamps=0)
    >>> keys, out = OffsetMap(1024, bytes(16)), memoryview(bytearray(len(batch)))
    >>> note(keys, batch, check(batch), 0)
    >>> kept = filter_batches(keys, batch, check(batch), Rules(2, False, np.empty(0, np.int64)), out)
    >>> [(record.offset, record.value) for record in decode(out[: kept.nbytes])]
    [(1, b'off')]
    """
    written, changed = 0, False
    for rows in _runs(table):
        if is_compressed(rows):
            batch = _filter_compressed(keys, data, rows, rules)
            original = _batch(data, rows[0])
            if batch is None or len(batch) > len(original):
                batch = original  # what is superseded does no harm; a batch that grows might
            else:
                changed = True
            nbytes = len(batch)
            out[written : written + nbytes] = batch
        else:
            nbytes, _, dropped = keys.filter(
                data, rows.tobytes(), rules.end_offset, rules.drop_tombstones, rules.live, out[written:]
            )
            changed |= dropped
        written += nbytes
    return Kept(written, changed)


def _runs(table: npt.NDArray[np.void]) -> Iterator[npt.NDArray[np.void]]:
    """The rows in pieces: neighbours that are not compressed together, and each compressed one alone."""
    start = 0
    for row in np.flatnonzero(table["attributes"] & CODEC_MASK).tolist():
        if start < row:
            yield table[start:row]
        yield table[row : row + 1]
        start = row + 1
    if start < len(table):
        yield table[start:]


def is_compressed(rows: npt.NDArray[np.void]) -> bool:
    """Whether a run of rows is a compressed batch."""
    return bool(int(rows["attributes"][0]) & CODEC_MASK)


def _filter_compressed(
    keys: OffsetMap, data: Any, row: npt.NDArray[np.void], rules: Rules
) -> bytes | bytearray | None:
    """What is left of a compressed batch, compressed as it was; None when all of it is."""
    payload = _payload(data, row)
    if payload is None:
        return None
    base = int(row["base_offset"][0])
    at = int(np.searchsorted(rules.live, base))
    keep_empty = at < len(rules.live) and int(rules.live[at]) == base
    left = keys.filter_unfolded(
        data, row.tobytes(), payload, rules.end_offset, rules.drop_tombstones, keep_empty
    )
    if left is None or len(left) <= limits.BATCH_HEADER_BYTES:
        return left
    codec = codec_of(int(row["attributes"][0]))
    return _kernel.fold(left, codecs.fold(codec, memoryview(left)[limits.BATCH_HEADER_BYTES :]), codec)


def _payload(data: Any, row: npt.NDArray[np.void]) -> memoryview | None:
    """What a compressed batch unfolds to; None for one that cannot be read. It is as its producer sent it, which a node
    does not check: it stays as it is, and tells nothing of its keys."""
    try:
        payload = unfold(_batch(data, row[0])[limits.BATCH_HEADER_BYTES :], row[0])
        _kernel.RecordIndex(data, row.tobytes(), [payload], tuple)
    except CorruptBatch:
        return None
    return payload


def _batch(data: Any, row: Any) -> memoryview:
    begin = int(row["position"])
    return memoryview(data).cast("B")[begin : begin + int(row["length"])]
