"""RabbitMQ's stream protocol as bytes: requests, publish frames, and the chunks that a subscription is sent.

Numbers are big-endian. A frame is its length in four bytes, then a key, a version and what belongs to the key; the
answer to a request has the key's highest bit set and a response code.

A publish frame holds entries. An entry is one record, or a batch of up to 65,535 of them under one publishing id:

    publishing id 8 | 0x80 + compression << 4, 1 | records 2 | bytes uncompressed 4 | bytes 4 | length 4, record; …
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from perf.compare.clients.pipeline import rows_between

VERSION = 1
DECLARE_PUBLISHER, PUBLISH, PUBLISH_CONFIRM, PUBLISH_ERROR = 0x01, 0x02, 0x03, 0x04
SUBSCRIBE, DELIVER, CREDIT = 0x07, 0x08, 0x09
CREATE, DELETE = 0x0D, 0x0E
PEER_PROPERTIES, SASL_HANDSHAKE, SASL_AUTHENTICATE, TUNE, OPEN = 0x11, 0x12, 0x13, 0x14, 0x15
ANSWER = 0x8000
OK = 1
FROM_FIRST = 1
PUBLISHERS_MAX = 256
"""Of one connection: their ids are a byte. The same for subscriptions."""

_LENGTH = struct.Struct(">I")
_KEY = struct.Struct(">HH")
_ENTRIES = struct.Struct(">BI")
_BATCH = struct.Struct(">QBHII")
_BATCH_IN_CHUNK = struct.Struct(">BHII")
_CHUNK = struct.Struct(">BBHIqQQIIII")
_BATCHED = 0x80
_COMPRESSION = 0x70


def text(words: str) -> bytes:
    """
    >>> text("ab")
    b'\\x00\\x02ab'
    """
    raw = words.encode()
    return struct.pack(">h", len(raw)) + raw


def properties(**values: str) -> bytes:
    """A map of texts."""
    return _LENGTH.pack(len(values)) + b"".join(text(name) + text(value) for name, value in values.items())


def frame(key: int, *content: bytes | memoryview) -> bytes:
    """
    >>> frame(CREDIT, b"\\x07", b"\\x00\\x01").hex(" ")
    '00 00 00 07 00 09 00 01 07 00 01'
    """
    body = _KEY.pack(key, VERSION) + b"".join(content)
    return _LENGTH.pack(len(body)) + body


def publish(
    publisher: int, first_id: int, values: npt.NDArray[np.uint8], entry_records: int
) -> tuple[bytes, int]:
    """A publish frame with all rows, so many to an entry, and how many entries these are.

    >>> data, entries = publish(5, 100, np.array([[97], [98], [99]], dtype=np.uint8), entry_records=2)
    >>> data[4:13].hex(" "), entries
    ('00 02 00 01 05 00 00 00 02', 2)
    >>> data[13:42].hex(" ")
    '00 00 00 00 00 00 00 64 80 00 02 00 00 00 0a 00 00 00 0a 00 00 00 01 61 00 00 00 01 62'
    """
    count, record_bytes = values.shape
    records = memoryview(rows_between(_LENGTH.pack(record_bytes), values))
    stride = _LENGTH.size + record_bytes
    parts: list[bytes | memoryview] = []
    for number, at in enumerate(range(0, count, entry_records)):
        batch = min(entry_records, count - at)
        size = batch * stride
        parts += [
            _BATCH.pack(first_id + number, _BATCHED, batch, size, size),
            records[at * stride : at * stride + size],
        ]
    entries = len(parts) // 2
    return frame(PUBLISH, _ENTRIES.pack(publisher, entries), *parts), entries


class Frames:
    """Cuts what a socket brings into frames, each without its length.

    >>> parts = Frames()
    >>> both = frame(CREDIT, b"abc") + frame(DELETE)
    >>> [key for key, _ in parts.feed(both[:-1])], [key for key, _ in parts.feed(both[-1:])]
    ([9], [14])
    """

    def __init__(self) -> None:
        self._left = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(key, what follows the version) of every frame that is whole by now."""
        self._left += data
        at, whole = 0, len(self._left)
        while at + _LENGTH.size <= whole:
            start = at + _LENGTH.size
            stop = start + _LENGTH.unpack_from(self._left, at)[0]
            if stop > whole:
                break
            yield _KEY.unpack_from(self._left, start)[0], bytes(self._left[start + _KEY.size : stop])
            at = stop
        del self._left[:at]


def confirmed(body: bytes) -> int:
    """How many entries a confirmation is of.

    >>> confirmed(b"\\x05" + (2).to_bytes(4, "big") + bytes(16))
    2
    """
    return int(_ENTRIES.unpack_from(body)[1])


def delivered(body: bytes) -> tuple[int, list[Any]]:
    """The subscription that a delivery is for, and the values of its chunk: a sequence for each entry.

    >>> rows = np.array([[97, 98], [99, 100]], dtype=np.uint8)
    >>> entry = publish(0, 0, rows, 2)[0][21:]
    >>> head = _CHUNK.pack(0x50, 0, 1, 2, 0, 0, 0, zlib.crc32(entry), len(entry), 0, 0)
    >>> number, entries = delivered(b"\\x07" + head + entry)
    >>> number, [bytes(value) for values in entries for value in values]
    (7, [b'ab', b'cd'])
    """
    _, kind, entries, _, _, _, _, crc, data_bytes, _, _ = _CHUNK.unpack_from(body, 1)
    start = 1 + _CHUNK.size
    data = memoryview(body)[start : start + data_bytes]
    if zlib.crc32(data) != crc:
        raise ValueError("a chunk from rabbitmq does not have its checksum")
    found: list[Any] = []
    at = 0
    for _ in range(entries if kind == 0 else 0):  # other kinds keep what the server notes for clients
        if data[at] & _BATCHED:
            head, records, _, size = _BATCH_IN_CHUNK.unpack_from(data, at)
            if head & _COMPRESSION:
                raise ValueError("rabbitmq sent a compressed batch; nobody here wrote one")
            at += _BATCH_IN_CHUNK.size
            found.append(batched(data[at : at + size], records))
        else:
            size = _LENGTH.unpack_from(data, at)[0]
            at += _LENGTH.size
            found.append([data[at : at + size]])
        at += size
    return body[0], found


def batched(body: memoryview, records: int) -> Any:
    """The values of a batch: as rows when all are of one length, one by one otherwise.

    >>> batched(memoryview(b"\\0\\0\\0\\1a\\0\\0\\0\\1b"), 2).tobytes()
    b'ab'
    >>> [bytes(value) for value in batched(memoryview(b"\\0\\0\\0\\1a\\0\\0\\0\\2bc"), 2)]
    [b'a', b'bc']
    """
    length = _LENGTH.unpack_from(body)[0]
    stride = _LENGTH.size + length
    if len(body) == records * stride:
        rows = np.frombuffer(body, dtype=np.uint8).reshape(records, stride)
        if (rows[:, : _LENGTH.size] == rows[0, : _LENGTH.size]).all():
            return rows[:, _LENGTH.size :]
    values, at = [], 0
    for _ in range(records):
        length = _LENGTH.unpack_from(body, at)[0]
        values.append(body[at + _LENGTH.size : at + _LENGTH.size + length])
        at += _LENGTH.size + length
    return values
