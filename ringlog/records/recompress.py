"""Gives record batches the codec that their topic wants. Native per record; Python per batch.

What is unfolded for it is checked as strictly as batches that came uncompressed: from then on nobody doubts it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ringlog import limits
from ringlog.model import Codec
from ringlog.native import _kernel
from ringlog.records import codecs
from ringlog.records.format import CODEC_MASK, codec_of
from ringlog.records.scan import check


def needs_recompression(table: npt.NDArray[np.void], codec: Codec) -> bool:
    """Whether one of the batches of a BATCH_TABLE has another codec than this."""
    return bool(np.any((table["attributes"] & CODEC_MASK) != codec))


def recompress(data: memoryview, table: npt.NDArray[np.void], codec: Codec) -> bytearray:
    """Whole batches, as a producer made them, with their records under another codec; all else they say is kept. Those
    that have it already are copied. Raises CorruptBatch for records that do not unfold to what a batch may hold, or to
    more than RECOMPRESSED_BYTES_MAX.

    >>> from ringlog.records.decode import decode
    >>> from ringlog.records.encode import encode
    >>> batch = memoryview(encode([b"on", b"off"] * 100, timestamps=0, codec=Codec.GZIP))
    >>> made = recompress(batch, check(batch), Codec.ZSTD)
    >>> codec_of(int(check(made)[0]["attributes"])).name, decode(made)[:] == decode(batch)[:]
    ('ZSTD', True)
    """
    made = bytearray()
    for row in table:
        begin = int(row["position"])
        batch = data[begin : begin + int(row["length"])]
        made += batch if codec_of(int(row["attributes"])) is codec else _recompressed(batch, row, codec)
    return made


def _recompressed(batch: memoryview, row: np.void, codec: Codec) -> memoryview | bytearray:
    plain: memoryview | bytearray = batch
    if codec_of(int(row["attributes"])) is not Codec.NONE:
        records = codecs.unfold(batch[limits.BATCH_HEADER_BYTES :], row, limits.RECOMPRESSED_BYTES_MAX)
        plain = _kernel.fold(batch, records, Codec.NONE)
        check(plain, level="full", gapless=True, bytes_max=len(plain))
    if codec is Codec.NONE:
        return plain
    folded = codecs.fold(codec, memoryview(plain)[limits.BATCH_HEADER_BYTES :])
    return _kernel.fold(plain, folded, codec)
