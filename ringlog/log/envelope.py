"""The envelope of small state files: a magic, a checksum, a msgpack body. Bad bytes give a typed error.

0        4          8          12
├────────┼──────────┼──────────┼──────────────┤
│ magic  │ CRC32C   │ body     │ body         │
│ 4 B    │ of body  │ bytes    │ (msgpack)    │
"""

from __future__ import annotations

import struct
from typing import TypeVar

import msgspec

from ringlog.errors import CorruptFile
from ringlog.records.checksum import crc32c

T = TypeVar("T")
_HEAD = struct.Struct("<4sII")


def seal(magic: bytes, body: object) -> bytes:
    """Wrap a msgspec structure."""
    data = msgspec.msgpack.encode(body)
    return _HEAD.pack(magic, crc32c(data), len(data)) + data


def unseal(magic: bytes, data: bytes, kind: type[T]) -> T:
    """Unwrap what `seal` made; raises CorruptFile, naming the field, for anything else."""
    if len(data) < _HEAD.size:
        raise CorruptFile(
            "envelope", len(data), f"{len(data)} bytes are shorter than the {_HEAD.size} of its head"
        )
    found, crc, length = _HEAD.unpack_from(data)
    if found != magic:
        raise CorruptFile("magic", 0, f"found {found!r}, wanted {magic!r}")
    body = data[_HEAD.size :]
    if length != len(body):
        raise CorruptFile("body bytes", 8, f"says {length}, but {len(body)} follow")
    return _open(body, crc, kind)


def unseal_prefix(magic: bytes, data: bytes, kind: type[T]) -> T:
    """Unwrap what `seal` made and something else follows, as in a slot that is longer than its content."""
    if len(data) < _HEAD.size:
        raise CorruptFile(
            "envelope", len(data), f"{len(data)} bytes are shorter than the {_HEAD.size} of its head"
        )
    length = _HEAD.unpack_from(data)[2]
    return unseal(magic, data[: _HEAD.size + length], kind)


def _open(body: bytes, crc: int, kind: type[T]) -> T:
    if crc32c(body) != crc:
        raise CorruptFile("checksum", 4, "does not fit the body")
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptFile("body", _HEAD.size, str(error)) from error
