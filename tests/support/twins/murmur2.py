"""murmur2 with the seed and the signedness of Kafka's producers."""

from __future__ import annotations

import struct

MIX = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    value = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        word = word * MIX & MASK
        word ^= word >> 24
        word = word * MIX & MASK
        value = value * MIX & MASK ^ word
    rest = key[whole:]
    if rest:
        value ^= int.from_bytes(rest, "little")
        value = value * MIX & MASK
    value ^= value >> 13
    value = value * MIX & MASK
    value ^= value >> 15
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
