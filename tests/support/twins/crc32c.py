"""CRC32C, bit by bit."""

from __future__ import annotations

POLYNOMIAL = 0x82F63B78  # Castagnoli, bit-reflected


def crc32c(data: bytes, seed: int = 0) -> int:
    crc = seed ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
