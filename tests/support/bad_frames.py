"""Frames that no honest client sends: a table of those with a known answer, and endless ones from a seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import cramjam
import msgspec

from ringlog.limits import CONTROL_BODY_BYTES_MAX, FETCH_PARTITIONS_MAX, FRAME_BYTES_MAX
from ringlog.model import Codec
from ringlog.net.framing import HEADER_BYTES, Acks, Api, Flag, pack_header
from ringlog.net.messages import (
    AddPartitionsRequest,
    AlterTopicRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    DescribePartitionsRequest,
    FetchPartition,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetQuery,
    encode_body,
)
from ringlog.records.checksum import crc32c
from ringlog.records.encode import encode

CORRELATION = 77
DEADLINE_MS = 2_000
NOWHERE = 2**32 - 1
"""A partition id that no node gives."""


def frame(api: int, body: bytes = b"", *, partition: int = 0, correlation: int = CORRELATION) -> bytes:
    """A frame with a right header."""
    flags = Acks.ALL if api == Api.PRODUCE else 0
    return pack_header(
        api,
        correlation=correlation,
        body_bytes=len(body),
        partition=partition,
        flags=flags,
        deadline_ms=DEADLINE_MS,
    ) + bytes(body)


def with_field(data: bytes, at: int, layout: str, value: int) -> bytes:
    """Bytes with one number in them replaced.

    >>> with_field(bytes(4), 1, "<H", 258).hex()
    '00020100'
    """
    packed = struct.pack(layout, value)
    return data[:at] + packed + data[at + len(packed) :]


def batch(values: int = 3, **fields: int) -> bytes:
    """A good batch, then changed: `length`, `last_delta`, `count` are the header's numbers; the CRC is right again."""
    data = bytes(encode([b"value %d" % number for number in range(values)], timestamps=1))
    for name, value in fields.items():
        data = with_field(data, {"length": 8, "last_delta": 23, "count": 57}[name], ">i", value)
    return resealed(data)


def resealed(data: bytes) -> bytes:
    """A batch with the CRC that it should have."""
    return with_field(data, 17, ">I", crc32c(data[21:]))


def bomb(codec: Codec, unfolded_bytes: int) -> bytes:
    """A batch whose records unfold to so many zeros."""
    zeros = bytes(unfolded_bytes)
    packed = bytes(
        {
            Codec.GZIP: cramjam.gzip.compress,
            Codec.SNAPPY: cramjam.snappy.compress_raw,
            Codec.LZ4: cramjam.lz4.compress,
            Codec.ZSTD: cramjam.zstd.compress,
        }[codec](zeros)
    )
    return compressed(codec, packed)


def compressed(codec: Codec, records: bytes, like: bytes | None = None) -> bytes:
    """A batch with these bytes for its compressed records, whatever they are; else it is `like` another."""
    head = (like or bytes(encode([b"x"], timestamps=1)))[:61]
    head = with_field(head, 8, ">i", 61 - 12 + len(records))
    head = with_field(head, 21, ">h", int(codec))
    return resealed(head + records)


def known(partition: int, topic: str) -> dict[str, bytes]:
    """Frames that must be answered with a typed error, by what is wrong with them; `partition` is one of `topic`."""
    good = frame(Api.METADATA, encode_body(MetadataRequest([])))
    produced = frame(Api.PRODUCE, batch(), partition=partition)
    body = batch()

    def control(api: Api, request: msgspec.Struct, at: int = partition) -> bytes:
        return frame(api, encode_body(request), partition=at)

    def fetch(*, offset: int = 0, at: int = partition, **changes: object) -> bytes:
        fields = {
            "session": 0,
            "wait_ms": 0,
            "bytes_min": 1,
            "bytes_max": 1 << 20,
            "partitions": [FetchPartition(at, offset, 1 << 20)],
        }
        return control(Api.FETCH, FetchRequest(**{**fields, **changes}), at)  # type: ignore[arg-type]

    return {
        # the header
        "version 0": with_field(good, 0, "<B", 0),
        "version 255": with_field(good, 0, "<B", 255),
        "api key 10": frame(10),
        "api key 255": frame(255, b"x" * 100),
        "a reply as a request": with_field(good, 2, "<H", Flag.REPLY),
        "body length 2^31-1": with_field(good, 28, "<I", 2**31 - 1),
        "body length -1": with_field(good, 28, "<I", 2**32 - 1),
        "body length too small": with_field(produced, 28, "<I", 10),
        "a header and half a body": produced[: HEADER_BYTES + 30],
        # batches
        "no batch": frame(Api.PRODUCE, partition=partition),
        "garbage for a batch": frame(Api.PRODUCE, b"\xa5" * 500, partition=partition),
        "a batch cut in the middle": frame(Api.PRODUCE, body[:-5], partition=partition),
        "a batch and a half": frame(Api.PRODUCE, body + body[:40], partition=partition),
        "a wrong CRC": frame(Api.PRODUCE, body[:-1] + bytes([body[-1] ^ 1]), partition=partition),
        "batch length 2^31-1": frame(Api.PRODUCE, batch(length=2**31 - 1), partition=partition),
        "batch length -1": frame(Api.PRODUCE, batch(length=-1), partition=partition),
        "2^31-1 records": frame(Api.PRODUCE, batch(count=2**31 - 1), partition=partition),
        "-1 records": frame(Api.PRODUCE, batch(count=-1), partition=partition),
        "a last offset delta of 2^31-1": frame(Api.PRODUCE, batch(last_delta=2**31 - 1), partition=partition),
        "a partition that is not there": frame(Api.PRODUCE, body, partition=NOWHERE),
        # control bodies
        "garbage for a body": frame(Api.METADATA, b"\xc1" * 40),
        "an array that says 2^32-1": frame(Api.METADATA, b"\x91\xdd\xff\xff\xff\xff"),
        "a string that says 2^32-1": frame(Api.CREATE_TOPIC, b"\x91\xdb\xff\xff\xff\xff"),
        "arrays 100,000 deep": frame(Api.METADATA, b"\x91" * 100_000),
        "a map for an array": frame(Api.CREATE_TOPIC, msgspec.msgpack.encode({"name": "x"})),
        "a control body of 2 MiB": frame(Api.METADATA, b"\x91\xa1" + bytes(2 * CONTROL_BODY_BYTES_MAX)),
        "an empty control body": frame(Api.CREATE_TOPIC),
        # fetches
        "a fetch of nowhere": fetch(at=NOWHERE),
        "a fetch session that is not there": fetch(session=123_456_789),
        "a negative fetch session": fetch(session=-1),
        "a fetch of too many partitions": fetch(
            partitions=[FetchPartition(partition, 0, 1)] * (FETCH_PARTITIONS_MAX + 1)
        ),
        "a fetch with a partition that is too large": fetch(partitions=[FetchPartition(2**63, 0, 1)]),
        # topics
        "a topic that leads elsewhere": control(Api.CREATE_TOPIC, CreateTopicRequest("../../etc", 1), 0),
        "a topic without a name": control(Api.CREATE_TOPIC, CreateTopicRequest("", 1), 0),
        "a topic with a long name": control(Api.CREATE_TOPIC, CreateTopicRequest("x" * 5000, 1), 0),
        "a topic with a zero byte": control(Api.CREATE_TOPIC, CreateTopicRequest("a\0b", 1), 0),
        "a topic of 2^31-1 partitions": control(Api.CREATE_TOPIC, CreateTopicRequest("many", 2**31 - 1), 0),
        "a topic of -7 partitions": control(Api.CREATE_TOPIC, CreateTopicRequest("few", -7), 0),
        "a topic with 9 replicas": control(Api.CREATE_TOPIC, CreateTopicRequest("r9", 1, 9), 0),
        "a topic with an unknown config": control(
            Api.CREATE_TOPIC, CreateTopicRequest("odd", 1, 1, {"no.such": "1"}), 0
        ),
        "a topic with an impossible config": control(
            Api.CREATE_TOPIC, CreateTopicRequest("odd", 1, 1, {"segment.bytes": "minus one"}), 0
        ),
        "a topic with the name of the metadata": control(
            Api.CREATE_TOPIC, CreateTopicRequest("__cluster_metadata", 1), 0
        ),
        "a topic that is there": control(Api.CREATE_TOPIC, CreateTopicRequest(topic, 1), 0),
        "a change of an unknown topic": control(Api.ALTER_TOPIC, AlterTopicRequest("nobody", {}), 0),
        "a deletion of an unknown topic": control(Api.DELETE_TOPIC, DeleteTopicRequest("nobody"), 0),
        "a deletion of the metadata": control(Api.DELETE_TOPIC, DeleteTopicRequest("__cluster_metadata"), 0),
        "fewer partitions": control(Api.ADD_PARTITIONS, AddPartitionsRequest(topic, -1), 0),
        "2^40 partitions": control(Api.ADD_PARTITIONS, AddPartitionsRequest(topic, 2**40), 0),
    }


def rows_with_errors(partition: int) -> dict[str, tuple[Api, bytes]]:
    """Requests whose reply has rows, each with its own error number."""
    far = 2**62

    def fetch(offset: int, at: int) -> bytes:
        return encode_body(FetchRequest(0, 0, 1, 1 << 20, [FetchPartition(at, offset, 1 << 20)]))

    return {
        "a fetch far behind the end": (Api.FETCH, fetch(far, partition)),
        "a fetch at -5": (Api.FETCH, fetch(-5, partition)),
        "offsets of nowhere": (Api.LIST_OFFSETS, encode_body(ListOffsetsRequest([OffsetQuery(NOWHERE, -1)]))),
        "a description of nowhere": (
            Api.DESCRIBE_PARTITIONS,
            encode_body(DescribePartitionsRequest([NOWHERE])),
        ),
    }


def extreme(partition: int) -> dict[str, bytes]:
    """Frames with numbers at the ends of their ranges and lists as long as fit: any answer is right but a bug's."""
    most, long = 2**64 - 1, 200_000

    def control(api: Api, request: msgspec.Struct) -> bytes:
        return frame(api, encode_body(request), partition=partition)

    def fetch(offset: int = 0, bytes_max: int = 1 << 20, wait_ms: int = 0, bytes_min: int = 1) -> bytes:
        rows = [FetchPartition(partition, offset, bytes_max)]
        return control(Api.FETCH, FetchRequest(0, wait_ms, bytes_min, bytes_max, rows, [most, -1]))

    def offsets(*timestamps: int) -> bytes:
        queries = [OffsetQuery(partition, timestamp) for timestamp in timestamps]
        return control(Api.LIST_OFFSETS, ListOffsetsRequest(queries))

    good = frame(Api.METADATA, encode_body(MetadataRequest([])))
    return {
        "correlation 2^64-1": with_field(good, 8, "<Q", most),
        "2^64-1 bytes received": with_field(good, 16, "<Q", most),
        "deadline 0": with_field(good, 24, "<I", 0),
        "deadline 2^32-1": with_field(good, 24, "<I", 2**32 - 1),
        "all flags of acks": with_field(frame(Api.PRODUCE, batch(), partition=partition), 2, "<H", 3),
        "a fetch at 2^64-1": fetch(offset=most),
        "a fetch at -2^63": fetch(offset=-(2**63)),
        "a fetch of -1 bytes": fetch(bytes_max=-1),
        "a fetch of 2^64-1 bytes": fetch(bytes_max=most),
        "a fetch that waits for -1 ms": fetch(wait_ms=-1),
        "a fetch of at least 2^64-1 bytes": fetch(bytes_min=most, wait_ms=1),
        "a fetch of partition -1": control(Api.FETCH, FetchRequest(0, 0, 1, 1, [FetchPartition(-1, 0, 1)])),
        "a fetch of partition 2^32": control(
            Api.FETCH, FetchRequest(0, 0, 1, 1, [FetchPartition(2**32, 0, 1)])
        ),
        "a fetch of nothing": control(Api.FETCH, FetchRequest(0, 1, 1, 1, [])),
        "offsets of no partitions": offsets(),
        "offsets at the ends of time": offsets(2**63 - 1, -(2**63), most, -3),
        "very many offsets": offsets(*[1] * long),
        "descriptions of very many partitions": control(
            Api.DESCRIBE_PARTITIONS, DescribePartitionsRequest([partition] * long)
        ),
        "descriptions of very many odd partitions": control(
            Api.DESCRIBE_PARTITIONS, DescribePartitionsRequest([most, -1] * 40_000)
        ),
        "metadata of very many topics": frame(Api.METADATA, encode_body(MetadataRequest(["no"] * long))),
        "creation of topics with bad names": frame(
            Api.METADATA, encode_body(MetadataRequest(["../x", "", "a\0"] * 50, True))
        ),
    }


def fuzzed(rng: random.Random, partition: int, topic: str) -> Iterator[bytes]:
    """Frames without end: bytes, halves and mutants of good frames and of the table."""
    table = list(known(partition, topic).values())
    # A mutant may name any partition: these must not be able to delete or spoil what the good client uses.
    good = [
        frame(Api.METADATA, encode_body(MetadataRequest(None))),
        frame(Api.METADATA, encode_body(MetadataRequest(["fuzz"]))),
        frame(Api.PRODUCE, batch(), partition=partition),
        frame(Api.PRODUCE, bomb(Codec.ZSTD, 1 << 20), partition=partition),
        frame(
            Api.FETCH, encode_body(FetchRequest(0, 5, 1, 1 << 16, [FetchPartition(partition, 0, 1 << 16)]))
        ),
        frame(
            Api.LIST_OFFSETS,
            encode_body(ListOffsetsRequest([OffsetQuery(partition, -1)])),
            partition=partition,
        ),
        frame(Api.INIT_PRODUCER, b"\x90"),
        frame(
            Api.DESCRIBE_PARTITIONS, encode_body(DescribePartitionsRequest([partition])), partition=partition
        ),
    ]
    while True:
        kind = rng.randrange(5)
        if kind == 0:
            yield rng.randbytes(rng.choice((0, 1, 31, 32, 33, 100, 5000)))
            continue
        data = bytearray(rng.choice(good if kind < 4 else table))
        if kind == 1:
            del data[rng.randrange(len(data) + 1) :]
        elif kind == 2:  # any byte, right lengths
            _spoil(rng, data, HEADER_BYTES)
        elif kind == 3:
            _spoil(rng, data, 0)
        else:
            data += rng.randbytes(rng.randrange(64))
            if len(data) >= HEADER_BYTES and rng.random() < 0.5:
                data[28:32] = struct.pack("<I", len(data) - HEADER_BYTES)
        yield bytes(data)


def _spoil(rng: random.Random, data: bytearray, start: int) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        if start < len(data):
            data[rng.randrange(start, len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


OVERSIZE = bytes(FRAME_BYTES_MAX + 1)
"""A message that is larger than any frame."""
