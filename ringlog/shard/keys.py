"""Records of compacted topics have keys: a batch with one that has none is refused. Native per record."""

from __future__ import annotations

import numpy as np

from ringlog.errors import InvalidRecord
from ringlog.model import Codec, TopicPartition
from ringlog.records.decode import decode_columns
from ringlog.records.recompress import needs_recompression, plain_batches
from ringlog.records.scan import scan


def require_keys(data: memoryview, name: TopicPartition) -> None:
    """Raise InvalidRecord for a record without a key in whole, checked batches; CorruptBatch for those whose records
    cannot be read. A compressed batch is unfolded for it: nobody else would ever find out before compaction does.

    >>> from ringlog.records.encode import encode
    >>> require_keys(memoryview(encode([b"on"], keys=[b"lamp"], timestamps=0)), TopicPartition("lamps", 0))
    """
    table = scan(data, level="headers").table
    if not needs_recompression(table, Codec.NONE):
        _require(data, name)
        return
    for plain in plain_batches(data, table):
        _require(plain, name)


def _require(data: memoryview | bytearray, name: TopicPartition) -> None:
    found = decode_columns(data, columns=("key",), check_crc=False)
    valid = found.key.valid if found.key is not None else None
    if valid is None:
        return
    has_key = np.unpackbits(valid, count=found.count, bitorder="little")
    if not has_key.all():
        first = int(np.argmin(has_key))
        raise InvalidRecord(
            f"{name} is compacted, and record {first} of the batch has no key. Give every record a key"
        )
