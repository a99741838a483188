"""The byte layout of Kafka's record batch v2, and the table that describes batches, one row each.

All integers of a batch are big-endian::

     0  base_offset          i64   stamped by the broker, not under the CRC
     8  batch_length         i32   bytes that follow this field
    12  leader_epoch         i32   stamped by the broker, not under the CRC
    16  magic                i8    always 2
    17  crc                  u32   CRC32C of everything from byte 21 on
    21  attributes           i16   bits 0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon
    23  last_offset_delta    i32
    27  base_timestamp       i64
    35  max_timestamp        i64
    43  producer_id          i64   -1: none
    51  producer_epoch       i16   -1: none
    53  base_sequence        i32   -1: none
    57  record_count         i32   0 where compaction has removed every record
    61  records                    compressed as a whole when the codec says so

A record; varint and varlong are zigzag-encoded, as in protocol buffers::

    length           varint    bytes that follow
    attributes       i8        unused
    timestamp_delta  varlong   from base_timestamp
    offset_delta     varint    from base_offset
    key_length       varint    -1: null; then the key
    value_length     varint    -1: null; then the value
    header_count     varint    then so many headers:
        key_length   varint    never null; then the key, UTF-8
        value_length varint    -1: null; then the value
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from ringlog.model import Codec

MAGIC = 2
CRC_BEGIN = 21
"""The CRC covers a batch from here on."""
LENGTH_PREFIX_BYTES = 12
"""Bytes of a batch that its batch_length does not count."""

CODEC_MASK = 0x07
APPEND_TIME_BIT = 1 << 3
TRANSACTIONAL_BIT = 1 << 4
CONTROL_BIT = 1 << 5
DELETE_HORIZON_BIT = 1 << 6

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

BATCH_TABLE = np.dtype(
    [
        ("position", "<i8"),  # byte where the batch starts in the buffer
        ("base_offset", "<i8"),
        ("last_offset", "<i8"),
        ("base_timestamp", "<i8"),
        ("max_timestamp", "<i8"),
        ("producer_id", "<i8"),
        ("length", "<i4"),  # of the whole batch, its first 12 bytes included
        ("leader_epoch", "<i4"),
        ("base_sequence", "<i4"),
        ("record_count", "<i4"),
        ("producer_epoch", "<i2"),
        ("attributes", "<i2"),
        ("crc", "<u4"),
    ]
)
"""One row per batch, as `scan` returns them."""


class BatchRow(NamedTuple):
    """A row of a BATCH_TABLE, for those who look at few batches: a table of numpy costs more than they do."""

    position: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    length: int
    leader_epoch: int
    base_sequence: int
    record_count: int
    producer_epoch: int
    attributes: int
    crc: int


BATCH_ROW = struct.Struct("<6q4i2hI")
assert BatchRow._fields == BATCH_TABLE.names and BATCH_ROW.size == BATCH_TABLE.itemsize


def codec_of(attributes: int) -> Codec:
    """The codec that a batch's attributes name.

    >>> codec_of(0b1_0100)
    <Codec.ZSTD: 4>
    """
    return Codec(attributes & CODEC_MASK)
