"""Compression of a batch's records as Kafka's readers take it: gzip, xerial-framed snappy, lz4 frames, zstd.

Unfolding writes into memory that was bounded before: at first a little, then only as much as the records
unfolded so far claim, while nothing is wrong with them; never more than DECOMPRESSED_BYTES_MAX. So a bomb
that unfolds to anything but records is refused after its first bytes. A raw snappy block is unfolded in one
step, but says its size before, and holds at most 22 times its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import cramjam

from ringlog import limits
from ringlog.errors import CorruptBatch, InvalidRequest
from ringlog.model import Codec
from ringlog.native import _kernel
from ringlog.records.format import codec_of

GZIP_LEVEL = 6
LZ4_LEVEL = 1
ZSTD_LEVEL = 3

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * limits.KIB

_MAGICS = {Codec.GZIP: b"\x1f\x8b\x08", Codec.LZ4: b"\x04\x22\x4d\x18", Codec.ZSTD: b"\x28\xb5\x2f\xfd"}
"""What frames of these begin with. Snappy has none of its own, but xerial's."""

_SNAPPY_RATIO_MAX = 22
"""Snappy's densest element makes 64 bytes out of 3."""

_FIRST_STEP_BYTES = 256 * limits.KIB
"""Memory for a batch of whose records nothing is known yet. Codecs take about as much for themselves."""

_UNTOUCHED = b"\x9d\x17 ringlog \xe3\xb0\xc4\x5a\x00"
"""Laid at the end of the memory to unfold into: when it is still there, the codec did not run out of room."""


class _Full(Exception):
    """The records unfold to more than the memory holds. So much of it holds the first of them."""

    def __init__(self, bytes_filled: int, bytes_needed: int) -> None:
        super().__init__(bytes_filled, bytes_needed)
        self.bytes_filled = bytes_filled
        self.bytes_needed = bytes_needed


class _Garbage(Exception):
    """What the codec said about bytes that it could not read."""


def fold(codec: Codec, records: Any, level: int | None = None) -> Any:
    """Compress the records of a batch. The level means what the codec makes of it; None: a balanced one.

    >>> bytes(fold(Codec.SNAPPY, b"a" * 100))[:8]
    b'\\x82SNAPPY\\x00'
    """
    match codec:
        case Codec.GZIP:
            return cramjam.gzip.compress(records, level=GZIP_LEVEL if level is None else level)
        case Codec.SNAPPY:
            return _fold_snappy(records)
        case Codec.LZ4:
            # Kafka's Java reader refuses frames whose blocks need the blocks before them.
            compressor = cramjam.lz4.Compressor(
                level=LZ4_LEVEL if level is None else level, content_checksum=False, block_linked=False
            )
            compressor.compress(bytes(records))  # it takes no other buffer
            return compressor.finish()
        case Codec.ZSTD:
            return cramjam.zstd.compress(records, level=ZSTD_LEVEL if level is None else level)
        case Codec.NONE:
            raise InvalidRequest("there is nothing to compress with")


def unfold(payload: Any, row: Any, bytes_max: int = limits.DECOMPRESSED_BYTES_MAX) -> memoryview:
    """Decompress the records of the batch that `row`, a BATCH_TABLE row, describes.

    Raises CorruptBatch for bytes that the codec cannot read, for too many of them, and for records that are
    seen to be wrong before all of them are unfolded.

    >>> from ringlog.records.encode import encode
    >>> from ringlog.records.scan import check
    >>> batch = encode([b"hello"], timestamps=0, codec=Codec.ZSTD)
    >>> bytes(unfold(batch[61:], check(batch)[0]))
    b'\\x16\\x00\\x00\\x00\\x01\\nhello\\x00'
    """
    codec = codec_of(int(row["attributes"]))
    position = int(row["position"]) + limits.BATCH_HEADER_BYTES
    view = memoryview(payload)
    capacity = min(_FIRST_STEP_BYTES, bytes_max)
    while True:
        memory = bytearray(capacity)
        try:
            return memoryview(memory)[: _UNFOLDERS[codec](view, memory)]
        except _Garbage as garbage:
            raise CorruptBatch("records", position, f"not {codec.name.lower()}: {garbage}") from None
        except _Full as full:
            first = memoryview(memory)[: full.bytes_filled]
            needed, likely = _kernel.records_bytes_needed(first, row.tobytes())
            del first, memory  # given back before more is taken
            needed = max(needed, full.bytes_needed)
            if needed > bytes_max:
                reason = f"unfold to more than {bytes_max} bytes"
                raise CorruptBatch("records", position, reason) from None
            capacity = min(bytes_max, max(needed, likely, 2 * capacity))


def check_beginning(codec: Codec, payload: memoryview, position: int) -> None:
    """Raise CorruptBatch unless compressed records begin as their codec has it. Costs next to nothing: a node does this
    for every batch that it takes, and leaves it to readers to unfold.

    >>> check_beginning(Codec.ZSTD, memoryview(fold(Codec.ZSTD, b"records")), 61)
    """
    magic = _MAGICS.get(codec)
    if magic is not None:
        right = payload[: len(magic)] == magic
    elif payload[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
        right = True
    else:
        right = _is_raw_snappy(payload)
    if not right:
        raise CorruptBatch("records", position, f"do not begin as {codec.name.lower()} does")


def _is_raw_snappy(payload: memoryview) -> bool:
    try:
        size = cramjam.snappy.decompress_raw_len(payload)
    except cramjam.DecompressionError:
        return False
    return 0 < size <= _SNAPPY_RATIO_MAX * payload.nbytes


def _streamed(decompress_into: Callable[[Any, Any], int]) -> Callable[[memoryview, bytearray], int]:
    """Unfold with a codec that writes as it reads and stops when the memory is full."""

    def unfold_into(payload: memoryview, memory: bytearray) -> int:
        memory[-len(_UNTOUCHED) :] = _UNTOUCHED
        try:
            return decompress_into(payload, memory)
        except cramjam.DecompressionError as error:
            if memory.endswith(_UNTOUCHED):
                raise _Garbage(str(error)) from None
            raise _Full(len(memory), len(memory) + 1) from None

    return unfold_into


def _fold_snappy(records: Any) -> bytearray:
    view = memoryview(records)
    folded = bytearray(_XERIAL_HEADER)
    for begin in range(0, view.nbytes, _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[begin : begin + _XERIAL_BLOCK_BYTES]))
        folded += struct.pack(">i", len(block))
        folded += block
    return folded


def _snappy_blocks(payload: memoryview) -> Iterator[memoryview]:
    """The raw blocks of a xerial stream. Some clients send one raw block without the stream's header."""
    if bytes(payload[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield payload
        return
    at = len(_XERIAL_HEADER)
    while at < payload.nbytes:
        size = int.from_bytes(payload[at : at + 4], "big", signed=True)
        at += 4
        if not 0 <= size <= payload.nbytes - at:
            raise _Garbage(f"a block of {size} bytes where {max(0, payload.nbytes - at)} are left")
        yield payload[at : at + size]
        at += size


def _unfold_snappy(payload: memoryview, memory: bytearray) -> int:
    view = memoryview(memory)
    filled = 0
    for block in _snappy_blocks(payload):
        try:
            size = cramjam.snappy.decompress_raw_len(block)
            if size > _SNAPPY_RATIO_MAX * block.nbytes:
                raise _Garbage(f"a block of {block.nbytes} bytes claims to hold {size}")
            if size > len(memory) - filled:
                raise _Full(filled, filled + size)
            filled += cramjam.snappy.decompress_raw_into(block, view[filled : filled + size])
        except cramjam.DecompressionError as error:
            raise _Garbage(str(error)) from None
    return filled


_UNFOLDERS: dict[Codec, Callable[[memoryview, bytearray], int]] = {
    Codec.GZIP: _streamed(cramjam.gzip.decompress_into),
    Codec.SNAPPY: _unfold_snappy,
    Codec.LZ4: _streamed(cramjam.lz4.decompress_into),
    Codec.ZSTD: _streamed(cramjam.zstd.decompress_into),
}
