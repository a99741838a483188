"""Unfolds record batches for a node that must look into them, and gives them the codec that their topic wants.

Native per record; Python per batch. What is unfolded is checked as strictly as batches that came uncompressed: from
then on nobody doubts it. One batch is unfolded at a time, and all of a request to no more than a bound: thousands of
small bombs may fit into one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ringlog import limits
from ringlog.errors import BatchTooLarge
from ringlog.model import Codec
from ringlog.native import _kernel
from ringlog.records import codecs
from ringlog.records.format import CODEC_MASK, codec_of
from ringlog.records.scan import check


def plain_batches(data: memoryview, table: npt.NDArray[np.void]) -> Iterator[memoryview | bytearray]:
    """Each batch of a BATCH_TABLE, as a producer made it, uncompressed. Raises CorruptBatch for records that do not
    unfold to what a batch may hold, BatchTooLarge for too many of them.

    >>> from ringlog.records.decode import decode
    >>> from ringlog.records.encode import encode
    >>> batch = memoryview(encode([b"on", b"off"], timestamps=0, codec=Codec.GZIP))
    >>> [decode(plain)[1].value for plain in plain_batches(batch, check(batch))]
    [b'off']
    """
    left = limits.DECOMPRESSED_BYTES_MAX
    for row in table:
        batch = _batch(data, row)
        if codec_of(int(row["attributes"])) is Codec.NONE:
            yield batch
            continue
        records = codecs.unfold(batch[limits.BATCH_HEADER_BYTES :], row, limits.LOOKED_INTO_BYTES_MAX)
        left -= len(records)
        if left < 0:
            raise BatchTooLarge(
                f"the batches of one request unfold to more than {limits.DECOMPRESSED_BYTES_MAX} bytes: "
                "send fewer at once"
            )
        plain = _kernel.fold(batch, records, Codec.NONE)
        del records
        check(plain, level="full", gapless=True, bytes_max=len(plain))
        yield plain


def needs_recompression(table: npt.NDArray[np.void], codec: Codec) -> bool:
    """Whether one of the batches of a BATCH_TABLE has another codec than this."""
    return bool(np.any(_others(table, codec)))


def recompress(data: memoryview, table: npt.NDArray[np.void], codec: Codec, bytes_max: int) -> bytearray:
    """Whole batches with their records under another codec; all else they say is kept. Those that have it already are
    copied. Raises what `plain_batches` does, and BatchTooLarge for more than `bytes_max`.

    >>> from ringlog.records.decode import decode
    >>> from ringlog.records.encode import encode
    >>> batch = memoryview(encode([b"on", b"off"] * 100, timestamps=0, codec=Codec.GZIP))
    >>> made = recompress(batch, check(batch), Codec.ZSTD, bytes_max=10_000)
    >>> codec_of(int(check(made)[0]["attributes"])).name, decode(made)[:] == decode(batch)[:]
    ('ZSTD', True)
    """
    made = bytearray()
    others = _others(table, codec)
    plains = plain_batches(data, table[others])
    for row, is_other in zip(table, others.tolist(), strict=True):
        made += _compressed(next(plains), codec) if is_other else _batch(data, row)
        if len(made) > bytes_max:
            raise BatchTooLarge(
                f"{len(made)} bytes and more in one append, {codec.name.lower()} as the topic wants them; "
                f"at most {bytes_max} are taken"
            )
    return made


def _compressed(plain: memoryview | bytearray, codec: Codec) -> memoryview | bytearray:
    if codec is Codec.NONE:
        return plain
    folded = codecs.fold(codec, memoryview(plain)[limits.BATCH_HEADER_BYTES :])
    return _kernel.fold(plain, folded, codec)


def _others(table: npt.NDArray[np.void], codec: Codec) -> npt.NDArray[np.bool_]:
    """Which rows have another codec."""
    return np.asarray((table["attributes"] & CODEC_MASK) != codec)


def _batch(data: memoryview, row: np.void) -> memoryview:
    begin = int(row["position"])
    return data[begin : begin + int(row["length"])]
