"""Compaction of batches in plain Python: a dict of keys, and batches made anew from the records that stay."""

from __future__ import annotations

from collections.abc import Collection

from tests.support.twins import batch as twin


def siphash128(data: bytes, seed: bytes) -> bytes:
    """SipHash-2-4 with 128 bits."""
    mask = 2**64 - 1
    low, high = int.from_bytes(seed[:8], "little"), int.from_bytes(seed[8:], "little")
    v = [low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D ^ 0xEE]
    v += [low ^ 0x6C7967656E657261, high ^ 0x7465646279746573]

    def rotated(word: int, bits: int) -> int:
        return ((word << bits) | (word >> (64 - bits))) & mask

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & mask
            v[1] = rotated(v[1], 13) ^ v[0]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = rotated(v[1], 17) ^ v[2]
            v[2] = rotated(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return first.to_bytes(8, "little") + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")


def note(data: bytes, start_offset: int, keys: dict[bytes, int], capacity: int) -> int | None:
    """Put keys into a dict; the first offset that found no room."""
    for at, header in twin.scan(data, twin.Rules(level="crc")).batches:
        if header.attributes & 1 << 5:
            continue
        for item in twin.read_records(data, at + twin.HEADER.size, at + 12 + header.batch_length, header):
            offset = header.base_offset + item.offset_delta
            if offset < start_offset or item.key is None:
                continue
            if item.key not in keys and len(keys) >= capacity:
                return offset
            keys[item.key] = max(keys.get(item.key, -1), offset)
    return None


def filter_batches(
    data: bytes, keys: dict[bytes, int], end_offset: int, drop_tombstones: bool, live: Collection[int]
) -> bytes:
    """The batches without what is superseded."""
    out = b""
    for at, header in twin.scan(data, twin.Rules(level="crc")).batches:
        end = at + 12 + header.batch_length
        batch = data[at:end]
        if header.attributes & 1 << 5 or header.base_offset >= end_offset:
            out += batch
            continue
        items = twin.read_records(data, at + twin.HEADER.size, end, header)

        def stays(item: twin.Item, header: twin.Header = header) -> bool:
            offset = header.base_offset + item.offset_delta
            if item.key is None or offset >= end_offset:
                return True
            return keys.get(item.key, -1) <= offset and not (drop_tombstones and item.value is None)

        kept = [item for item in items if stays(item)]
        keep_empty = header.base_offset in live
        if len(kept) == len(items) and (items or keep_empty):
            out += batch
        elif kept or keep_empty:
            left = header._replace(record_count=len(kept))
            if kept and not header.attributes & 1 << 3:
                left = left._replace(
                    max_timestamp=header.base_timestamp + max(item.timestamp_delta for item in kept)
                )
            out += twin.seal(left, b"".join(map(twin.encode_item, kept)))
    return out
