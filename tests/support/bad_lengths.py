"""Lengths and counts that no bytes follow, in every field that has one: of records, of batches, of control bodies."""

from __future__ import annotations

import struct

import cramjam

from ringlog.model import Codec
from ringlog.net.framing import Api
from tests.support.bad_frames import batch, compressed, frame

LENGTHS = (2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, -2, -(2**63))
RECORD_FIELDS = ("length", "key_bytes", "value_bytes", "headers", "header_key_bytes", "header_value_bytes")


def varint(value: int) -> bytes:
    """A number as records have it.

    >>> varint(0).hex(), varint(-1).hex(), varint(150).hex()
    ('00', '01', 'ac02')
    """
    left = (value << 1) ^ (value >> 63)
    left &= 2**64 - 1
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def record(**fields: int) -> bytes:
    """One record with a key, a value and a header; the lengths that are named here are wrong.

    >>> record().hex()
    '1c000000026b0476760204686b0268'
    """
    says = {
        "key_bytes": 1, "value_bytes": 2, "headers": 1, "header_key_bytes": 2, "header_value_bytes": 1, **fields,
    }  # fmt: skip
    body = bytes(1) + varint(0) + varint(0)
    body += varint(says["key_bytes"]) + b"k"
    body += varint(says["value_bytes"]) + b"vv"
    body += varint(says["headers"])
    body += varint(says["header_key_bytes"]) + b"hk"
    body += varint(says["header_value_bytes"]) + b"h"
    return varint(fields.get("length", len(body))) + body


def bad_records() -> dict[str, bytes]:
    """The records part of a batch of one record, by what is wrong."""
    return {f"{field} {value}": record(**{field: value}) for field in RECORD_FIELDS for value in LENGTHS}


def produced(partition: int) -> dict[str, bytes]:
    """Produce requests with a length that is not true."""
    found = {f"record: {what}": compressed(Codec.NONE, records) for what, records in bad_records().items()}
    for field in ("length", "last_delta", "count"):
        for value in (2**31 - 1, -1, -(2**31)):
            found[f"batch: {field} {value}"] = batch(**{field: value})
    return {what: frame(Api.PRODUCE, body, partition=partition) for what, body in found.items()}


def folded() -> dict[str, bytes]:
    """Batches with such records, compressed: a node does not look inside."""
    return {
        what: compressed(Codec.ZSTD, bytes(cramjam.zstd.compress(records)))
        for what, records in bad_records().items()
    }


def controls(partition: int) -> dict[str, bytes]:
    """Requests of every other kind, whose body is, or begins with, something of 2^32 - 1 bytes or entries."""
    heads = {"array": 0xDD, "map": 0xDF, "string": 0xDB, "bytes": 0xC6, "extension": 0xC9}
    huge = {what: bytes([head]) + struct.pack(">I", 2**32 - 1) for what, head in heads.items()}
    # A fetch has its lists behind four numbers, a topic its settings behind a name and two.
    fetch, forget, config = b"\x95\x00\x00\x01\x01", b"\x96\x00\x00\x01\x01\x90", b"\x94\xa1x\x01\x01"
    found: dict[str, bytes] = {}
    for what, data in huge.items():
        for api in Api:
            if api is not Api.PRODUCE:
                found[f"{api.name}: {what}"] = frame(api, data, partition=partition)
                found[f"{api.name}: {what} in an array"] = frame(api, b"\x91" + data, partition=partition)
        found[f"partitions of a fetch: {what}"] = frame(Api.FETCH, fetch + data, partition=partition)
        found[f"what a fetch forgets: {what}"] = frame(Api.FETCH, forget + data, partition=partition)
        found[f"settings of a topic: {what}"] = frame(Api.CREATE_TOPIC, config + data)
    return found


def headers(partition: int) -> dict[str, bytes]:
    """Frames whose header says that the body is as long as can be said."""
    good = frame(Api.PRODUCE, batch(), partition=partition)
    return {
        f"body_bytes {value}": good[:28] + struct.pack("<I", value) + good[32:]
        for value in (2**31 - 1, 2**32 - 1)
    }
