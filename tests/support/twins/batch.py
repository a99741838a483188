"""Record batch v2 in plain Python: encode, check, decode and stamp."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ringlog import limits
from tests.support.twins import varint
from tests.support.twins.crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
INT64_MAX = 2**63 - 1


class Header(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


FIELD_BEGINS = dict(zip(Header._fields, (0, 8, 12, 16, 17, 21, 23, 27, 35, 43, 51, 53, 57), strict=True))
FIELD_CODES = dict(zip(Header._fields, "qiibIhiqqqhii", strict=True))


class Item(NamedTuple):
    """A record as it lies in a batch: deltas, not offsets and times."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Refused(Exception):
    def __init__(self, name: str, position: int, incomplete: bool = False) -> None:
        super().__init__(f"{name} at byte {position}")
        self.name, self.position, self.incomplete = name, position, incomplete


# -- encode ------------------------------------------------------------------------------------------------


def sized(data: bytes | None) -> bytes:
    return varint.write(-1) if data is None else varint.write(len(data)) + data


def encode_item(item: Item) -> bytes:
    body = b"\x00" + varint.write(item.timestamp_delta) + varint.write(item.offset_delta)
    body += sized(item.key) + sized(item.value) + varint.write(len(item.headers))
    for key, value in item.headers:
        body += sized(key.encode()) + sized(value)
    return varint.write(len(body)) + body


def seal(header: Header, records: bytes) -> bytes:
    """The batch of a header and its records, with length and CRC made right."""
    draft = HEADER.pack(*header._replace(batch_length=HEADER.size - 12 + len(records), crc=0)) + records
    return draft[:17] + struct.pack(">I", crc32c(draft[21:])) + draft[21:]


def encode(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None],
    headers: Sequence[list[tuple[str, bytes | None]]],
    timestamps: Sequence[int],
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    records = b"".join(
        encode_item(Item(timestamps[i] - timestamps[0], i, keys[i], values[i], headers[i]))
        for i in range(len(values))
    )
    header = Header(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(values) - 1,
        base_timestamp=timestamps[0],
        max_timestamp=max(timestamps),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(values),
    )
    return seal(header, records)


# -- check -------------------------------------------------------------------------------------------------


@dataclass
class Rules:
    level: str = "full"
    expected_offset: int | None = None
    dense: bool = True
    min_epoch: int = -1
    gapless: bool = False
    bytes_max: int = limits.BATCH_BYTES_MAX


@dataclass
class Scanned:
    batches: list[tuple[int, Header]] = field(default_factory=list)
    end: int = 0
    refused: Refused | None = None


def check_field(name: str, seen: dict[str, int], rules: Rules, expected: int | None, epoch: int) -> bool:
    """Whether a header's field may have its value, given the fields before it."""
    value = seen[name]
    match name:
        case "base_offset":
            if expected is not None and (value < expected or (rules.dense and value != expected)):
                return False
            return value >= 0
        case "batch_length":
            return HEADER.size - 12 <= value <= rules.bytes_max - 12
        case "leader_epoch":
            return value >= -1 and (expected is None or value >= epoch)
        case "magic":
            return value == 2
        case "attributes":
            return value & 7 <= 4
        case "last_offset_delta":
            return value >= 0 and seen["base_offset"] + value + 1 <= INT64_MAX
        case "producer_id" | "producer_epoch" | "base_sequence":
            return value >= -1
        case "record_count":
            offsets = seen["last_offset_delta"] + 1
            if not 0 <= value <= min(offsets, limits.RECORDS_PER_BATCH_MAX):
                return False
            if rules.gapless and value != offsets:
                return False
            room = seen["batch_length"] + 12 - HEADER.size
            return seen["attributes"] & 7 != 0 or value * 7 <= room
    return True  # crc and timestamps: any value


def check_header(data: bytes, at: int, rules: Rules, expected: int | None, epoch: int) -> Header:
    seen: dict[str, int] = {}
    for name, begin in FIELD_BEGINS.items():
        code = struct.Struct(">" + FIELD_CODES[name])
        if at + begin + code.size > len(data):
            raise Refused("batch_length", at + 8, incomplete=True)
        (seen[name],) = code.unpack_from(data, at + begin)
        if not check_field(name, seen, rules, expected, epoch):
            raise Refused(name, at + begin)
    if at + 12 + seen["batch_length"] > len(data):
        raise Refused("batch_length", at + 8, incomplete=True)
    return Header(**seen)


class Reader:
    """Reads the records of one batch; refuses with the position in `data`."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def number(self, name: str, bits: int = 32) -> int:
        read = varint.read(self.data, self.at, self.end, bits)
        if read is None:
            raise Refused(name, self.at)
        value, self.at = read
        return value

    def sized(self, name: str, nullable: bool = True) -> bytes | None:
        begin = self.at
        length = self.number(name)
        if length < -1 or length > self.end - self.at or (length == -1 and not nullable):
            raise Refused(name, begin)
        if length == -1:
            return None
        self.at += length
        return self.data[self.at - length : self.at]


def read_records(data: bytes, at: int, end: int, header: Header, gapless: bool = False) -> list[Item]:
    reader = Reader(data, at, end)
    items: list[Item] = []
    for _ in range(header.record_count):
        reader.end = end
        start = reader.at
        length = reader.number("record_length")
        if length < 0 or length > end - reader.at:
            raise Refused("record_length", start)
        reader.end = reader.at + length
        if length == 0:
            raise Refused("record_attributes", reader.at)
        reader.at += 1

        begin = reader.at
        timestamp_delta = reader.number("timestamp_delta", 64)
        if not -(2**63) <= header.base_timestamp + timestamp_delta <= INT64_MAX:
            raise Refused("timestamp_delta", begin)
        begin = reader.at
        offset_delta = reader.number("offset_delta")
        lowest = items[-1].offset_delta + 1 if items else 0
        if not lowest <= offset_delta <= header.last_offset_delta or (gapless and offset_delta != lowest):
            raise Refused("offset_delta", begin)
        key = reader.sized("key_length")
        value = reader.sized("value_length")
        begin = reader.at
        header_count = reader.number("header_count")
        if not 0 <= header_count <= limits.HEADERS_PER_RECORD_MAX:
            raise Refused("header_count", begin)
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(header_count):
            name = reader.sized("header_key_length", nullable=False)
            assert name is not None
            try:
                text = name.decode("utf-8")
            except UnicodeDecodeError:
                raise Refused("header_key", reader.at - len(name)) from None
            headers.append((text, reader.sized("header_value_length")))
        if reader.at != reader.end:
            raise Refused("record_length", start)
        items.append(Item(timestamp_delta, offset_delta, key, value, headers))
    if reader.at != end:
        raise Refused("records", reader.at)
    return items


def scan(data: bytes, rules: Rules) -> Scanned:
    scanned = Scanned()
    expected, epoch = rules.expected_offset, rules.min_epoch
    while scanned.end < len(data):
        at = scanned.end
        try:
            header = check_header(data, at, rules, expected, epoch)
            end = at + 12 + header.batch_length
            if rules.level in ("crc", "full") and crc32c(data[at + 21 : end]) != header.crc:
                raise Refused("crc", at + 17)
            if rules.level == "full" and header.attributes & 7 == 0:
                read_records(data, at + HEADER.size, end, header, rules.gapless)
        except Refused as refused:
            scanned.refused = refused
            break
        scanned.batches.append((at, header))
        scanned.end = end
        if expected is not None:
            expected, epoch = header.base_offset + header.last_offset_delta + 1, header.leader_epoch
    return scanned


def find_batch(data: bytes, start: int, min_offset: int) -> int:
    for at in range(start, len(data) - HEADER.size + 1):
        try:
            header = check_header(data, at, Rules(dense=False), max(min_offset, 0), -1)
        except Refused:
            continue
        if crc32c(data[at + 21 : at + 12 + header.batch_length]) == header.crc:
            return at
    return -1


# -- decode and stamp --------------------------------------------------------------------------------------


def decode(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    """The records of uncompressed batches. All headers and CRCs are checked before any record is looked at,
    and the records of control batches not at all."""
    scanned = scan(data, Rules(level="crc"))
    if scanned.refused is not None:
        raise scanned.refused
    records = []
    for at, header in scanned.batches:
        if header.attributes & 1 << 5:
            continue
        for item in read_records(data, at + HEADER.size, at + 12 + header.batch_length, header):
            append_time = header.attributes & 1 << 3
            timestamp = header.max_timestamp if append_time else header.base_timestamp + item.timestamp_delta
            offset = header.base_offset + item.offset_delta
            records.append((offset, timestamp, item.key, item.value, item.headers))
    return records


def stamp(data: bytes, base_offset: int, leader_epoch: int, append_time_ms: int | None) -> tuple[bytes, int]:
    """The stamped batches and the next offset."""
    scanned = scan(data, Rules(level="headers"))
    stamped = b""
    for at, header in scanned.batches:
        batch = data[at : at + 12 + header.batch_length]
        if base_offset + header.last_offset_delta + 1 > INT64_MAX - 1:
            raise Refused("base_offset", at)
        header = header._replace(base_offset=base_offset, leader_epoch=leader_epoch)
        if append_time_ms is None:
            stamped += HEADER.pack(*header) + batch[HEADER.size :]
        else:
            header = header._replace(attributes=header.attributes | 1 << 3, max_timestamp=append_time_ms)
            stamped += seal(header, batch[HEADER.size :])
        base_offset += header.last_offset_delta + 1
    if scanned.refused is not None:
        raise scanned.refused
    return stamped, base_offset
