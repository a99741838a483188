"""A client that shares no code with ringlog: ZeroMQ, struct, and what docs/PROTOCOL.md says. It tries the document out.

Slow, small and synchronous on purpose. Where it needs a fact that the document does not give, the document is wrong.
"""

from __future__ import annotations

import struct
import time
from typing import Any, NamedTuple

import zmq

# -- msgpack: the few types that control bodies use ----------------------------------------------------------


def pack(value: Any) -> bytes:
    """One value as msgpack.

    >>> unpack(pack(["a", -1, 2**40, {"k": None}, True]))
    ['a', -1, 1099511627776, {'k': None}, True]
    """
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xcf" + struct.pack(">Q", value) if value >= 0 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, str):
        data = value.encode()
        return b"\xdb" + struct.pack(">I", len(data)) + data
    if isinstance(value, dict):
        flat = [part for pair in value.items() for part in pair]
        return b"\xdf" + struct.pack(">I", len(value)) + b"".join(map(pack, flat))
    return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))


def unpack(data: bytes) -> Any:
    """The one value that fills `data`."""
    value, at = _unpack_at(data, 0)
    assert at == len(data), "bytes are left over"
    return value


_NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_STRINGS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_ARRAYS = {0xDC: ">H", 0xDD: ">I"}
_MAPS = {0xDE: ">H", 0xDF: ">I"}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def _unpack_at(data: bytes, at: int) -> tuple[Any, int]:
    kind, at = data[at], at + 1
    if kind <= 0x7F:
        return kind, at
    if kind >= 0xE0:
        return kind - 0x100, at
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], at
    for table in (_NUMBERS, _STRINGS, _ARRAYS, _MAPS):
        if kind in table:
            (number,) = struct.unpack_from(table[kind], data, at)
            at += struct.calcsize(table[kind])
            break
    else:
        number = kind & 0x1F if 0xA0 <= kind <= 0xBF else kind & 0x0F
    if kind in _NUMBERS:
        return number, at
    if kind in _STRINGS or 0xA0 <= kind <= 0xBF:
        return data[at : at + number].decode(), at + number
    is_map = kind in _MAPS or 0x80 <= kind <= 0x8F
    items = []
    for _ in range(2 * number if is_map else number):
        item, at = _unpack_at(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if is_map else items), at


# -- record batches ------------------------------------------------------------------------------------------


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    """A zigzag varint.

    >>> varint(-1).hex(), varint(64).hex()
    ('01', '8001')
    """
    rest, out = value << 1 if value >= 0 else (-value << 1) - 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at


def make_batch(
    values: list[bytes], *, timestamp: int, producer: tuple[int, int] = (-1, -1), sequence: int = -1
) -> bytes:
    """An uncompressed batch of records without keys and headers, all of one time."""
    records = b""
    for at, value in enumerate(values):
        body = b"\0" + varint(0) + varint(at) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(body)) + body
    last = len(values) - 1
    covered = (
        struct.pack(">hiqqqhii", 0, last, timestamp, timestamp, *producer, sequence, len(values)) + records
    )
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, crc32c(covered)) + covered


class Record(NamedTuple):
    """One record of a fetch."""

    offset: int
    value: bytes


def read_batches(data: bytes, from_offset: int) -> list[Record]:
    """The records from an offset on, of uncompressed batches without keys."""
    found, at = [], 0
    while at < len(data):
        base, length = struct.unpack_from(">qi", data, at)
        batch = data[at : at + 12 + length]
        assert batch[16] == 2 and struct.unpack_from(">I", batch, 17)[0] == crc32c(batch[21:])
        (count,) = struct.unpack_from(">i", batch, 57)
        here = 61
        for _ in range(count):
            size, here = _read_varint(batch, here)
            end = here + size
            _, here = _read_varint(batch, here + 1)
            delta, here = _read_varint(batch, here)
            _, here = _read_varint(batch, here)
            value_bytes, here = _read_varint(batch, here)
            if base + delta >= from_offset:
                found.append(Record(base + delta, batch[here : here + value_bytes]))
            here = end
        at += len(batch)
    return found


# -- frames and requests -------------------------------------------------------------------------------------

HEADER = struct.Struct("<BBHIQQII")
REPLY, ERROR = 1 << 15, 1 << 14
PRODUCE, FETCH, LIST_OFFSETS, METADATA, INIT_PRODUCER = 0, 1, 2, 3, 4
CREATE_TOPIC, DELETE_TOPIC, ALTER_TOPIC, ADD_PARTITIONS, DESCRIBE_PARTITIONS = 5, 6, 7, 8, 9


class WireError(Exception):
    """An error reply."""

    def __init__(self, code: str, message: str, retriable: bool) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.retriable = code, message, retriable


class Row(NamedTuple):
    """One row of a fetch reply."""

    partition: int
    error: int
    log_start_offset: int
    readable_offset: int
    next_offset: int
    data: bytes


class ProtocolClient:
    """One connection, one request at a time; `send` and `receive` for those who want more."""

    def __init__(self, endpoint: str) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        for option, value in (
            (zmq.IMMEDIATE, 1),
            (zmq.LINGER, 0),
            (zmq.HEARTBEAT_IVL, 2000),
            (zmq.HEARTBEAT_TIMEOUT, 6000),
            (zmq.RCVTIMEO, 20_000),
            (zmq.SNDTIMEO, 10_000),
        ):
            self.socket.setsockopt(option, value)
        self.socket.connect(endpoint)
        self.received = 0
        self._correlation = 0

    def close(self) -> None:
        self.socket.close()
        self._context.term()

    def send(self, api: int, body: bytes, *, partition: int = 0, flags: int = 0) -> int:
        """Send one request; its correlation."""
        self._correlation += 1
        header = HEADER.pack(1, api, flags, partition, self._correlation, self.received, 20_000, len(body))
        self.socket.send(header + body)
        return self._correlation

    def receive(self, correlation: int) -> bytes:
        """The body of the reply to a request; raises what it says went wrong. Replies to others are dropped."""
        while True:
            frame = self.socket.recv()
            self.received += len(frame)
            version, _, flags, _, answered, zero, _, body_bytes = HEADER.unpack_from(frame)
            assert (version, zero, body_bytes) == (1, 0, len(frame) - 32) and flags & REPLY
            if answered == correlation:
                if flags & ERROR:
                    raise WireError(*unpack(frame[32:])[:3])
                return frame[32:]

    def ask(self, api: int, body: Any, *, partition: int = 0, flags: int = 0) -> Any:
        """A control request and its reply."""
        return unpack(self.receive(self.send(api, pack(body), partition=partition, flags=flags)))

    def produce(self, partition: int, batch: bytes, *, acks: int = 2) -> tuple[int, int, int, int, int]:
        """Base offset, append time, log start, durability, repeated."""
        reply = self.receive(self.send(PRODUCE, batch, partition=partition, flags=acks))
        return struct.unpack("<qqqBB6x", reply)

    def fetch(
        self,
        session: int,
        wants: list[list[int]],
        *,
        via: int,
        wait_ms: int = 0,
        forget: tuple[int, ...] = (),
    ) -> tuple[int, list[Row]]:
        """The session and the rows. `via`: any partition of the lane."""
        body = pack([session, wait_ms, 1, 1 << 20, wants, list(forget)])
        return self.read_fetch(self.receive(self.send(FETCH, body, partition=via)))

    @staticmethod
    def read_fetch(reply: bytes) -> tuple[int, list[Row]]:
        """The body of a fetch reply."""
        session, count = struct.unpack_from("<II", reply)
        at = 8 + 40 * count
        rows = []
        for partition, error, _, start, readable, following, size, _ in struct.iter_unpack(
            "<IHHqqqII", reply[8:at]
        ):
            rows.append(Row(partition, error, start, readable, following, reply[at : at + size]))
            at += size
        assert at == len(reply)
        return session, rows

    def partitions(self, topic: str, *, create: bool = False) -> list[list[int]]:
        """Index, id, lane and leader of each partition of a topic."""
        deadline = time.monotonic() + 10
        while True:
            found = self.ask(METADATA, [[topic], create])[6][0]
            if not found[1]:
                return found[3]
            if time.monotonic() > deadline:
                raise WireError(found[1], topic, False)
            time.sleep(0.02)
