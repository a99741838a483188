"""Compaction of record batches: the latest record of each key stays, with its offset. Native per record.

Two passes over batches: `note` puts the keys into an OffsetMap, `filter_batches` copies what is still wanted. Records
without a key are never superseded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ringlog import limits
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
    full_at = keys.note(data, table.tobytes(), _payloads(data, table), start_offset)
    return full_at if full_at >= 0 else None


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
    compressed = np.flatnonzero(table["attributes"] & CODEC_MASK)
    written, changed, start = 0, False, 0
    for row in [*compressed.tolist(), len(table)]:
        if start < row:
            nbytes, _, dropped = keys.filter(
                data,
                table[start:row].tobytes(),
                rules.end_offset,
                rules.drop_tombstones,
                rules.live,
                out[written:],
            )
            written, changed = written + nbytes, changed or dropped
        if row < len(table):
            batch = _filter_compressed(keys, data, table[row : row + 1], rules)
            original = _batch(data, table[row])
            if batch is None or len(batch) > len(original):
                batch = original  # what is superseded does no harm; a batch that grows might
            else:
                changed = True
            out[written : written + len(batch)] = batch
            written += len(batch)
        start = row + 1
    return Kept(written, changed)


def _filter_compressed(
    keys: OffsetMap, data: Any, row: npt.NDArray[np.void], rules: Rules
) -> bytes | bytearray | None:
    """What is left of a compressed batch, compressed as it was; None when all of it is."""
    (payload,) = _payloads(data, row) or (None,)
    assert payload is not None
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


def _payloads(data: Any, table: npt.NDArray[np.void]) -> list[memoryview | None] | None:
    """For each batch what its records unfold to, None where they are not compressed."""
    compressed = table["attributes"] & CODEC_MASK
    if not compressed.any():
        return None
    return [
        unfold(_batch(data, row)[limits.BATCH_HEADER_BYTES :], row) if codec else None
        for row, codec in zip(table, compressed.tolist(), strict=True)
    ]


def _batch(data: Any, row: Any) -> memoryview:
    begin = int(row["position"])
    return memoryview(data).cast("B")[begin : begin + int(row["length"])]
