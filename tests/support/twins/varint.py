"""Zigzag varints of a given number of bits."""

from __future__ import annotations


def write(value: int) -> bytes:
    folded = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while True:
        rest = folded >> 7
        out.append(folded & 0x7F | (0x80 if rest else 0))
        if not rest:
            return bytes(out)
        folded = rest


def read(data: bytes, at: int, end: int, bits: int) -> tuple[int, int] | None:
    """The value and the byte behind it; None when it does not end before `end`, or has too many bits."""
    folded = 0
    for i in range((bits + 6) // 7):
        if at + i >= end:
            return None
        folded |= (data[at + i] & 0x7F) << (7 * i)
        if data[at + i] < 0x80:
            if folded >= 1 << bits:
                return None
            return (folded >> 1 if folded % 2 == 0 else -(folded >> 1) - 1), at + i + 1
    return None
