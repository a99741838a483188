"""Prints the exchange in hex that docs/PROTOCOL.md ends with, made by the code itself: a produce, a fetch, an error."""

from __future__ import annotations

import struct

from ringlog.errors import OffsetOutOfRange
from ringlog.model import Durability
from ringlog.net.framing import Acks, Api, Flag, pack_header
from ringlog.net.messages import (
    FETCH_ROW_PACK,
    CreateTopicRequest,
    FetchPartition,
    FetchRequest,
    ProduceReply,
    encode_body,
    pack_fetch_head,
)
from ringlog.net.wire_errors import error_reply, number_of
from ringlog.records.encode import encode
from ringlog.records.scan import stamp

_HEADER_FIELDS = (
    ("version", "<B"),
    ("api_key", "<B"),
    ("flags", "<H"),
    ("partition", "<I"),
    ("correlation", "<Q"),
    ("received", "<Q"),
    ("deadline_ms", "<I"),
    ("body_bytes", "<I"),
)


def _dump(data: bytes, at: int) -> list[str]:
    return [f"{at + i:4}  {data[i : i + 16].hex(' ')}" for i in range(0, len(data), 16)]


def _frame(title: str, header: bytes, body: bytes) -> str:
    lines, at = [title, "", "```"], 0
    for name, form in _HEADER_FIELDS:
        (value,) = struct.unpack_from(form, header, at)
        size = struct.calcsize(form)
        shown = f"{value:#06x}" if name == "flags" else value
        lines.append(f"{at:4}  {header[at : at + size].hex(' '):<24} {name} {shown}")
        at += size
    return "\n".join([*lines, *_dump(body, 32), "```", ""])


def example() -> str:
    """The whole section.

    >>> "base_offset" in example()
    True
    """
    create = encode_body(CreateTopicRequest("greetings", partitions=1))
    batch = encode([b"hello", b"world"], timestamps=1_700_000_000_000)
    produce_header = pack_header(
        Api.PRODUCE,
        correlation=2,
        body_bytes=len(batch),
        partition=1,
        flags=Acks.ALL,
        received=64,
        deadline_ms=30_000,
    )
    sent = bytes(batch)
    produced = ProduceReply(
        base_offset=40, append_time_ms=-1, log_start_offset=0, durability=Durability.FLUSHED
    ).pack()
    asked = encode_body(
        FetchRequest(
            0, wait_ms=500, bytes_min=1, bytes_max=1 << 20, partitions=[FetchPartition(1, 41, 65536)]
        )
    )
    stamp(batch, base_offset=40, leader_epoch=0)
    row = FETCH_ROW_PACK.pack(1, 0, 0, 0, 42, 42, len(batch), 0)
    fetched = pack_fetch_head(7, [row]) + bytes(batch)
    bad_row = FETCH_ROW_PACK.pack(1, number_of(OffsetOutOfRange("")), 0, 0, 42, -1, 0, 0)
    outside = pack_fetch_head(7, [bad_row])
    refused = encode_body(error_reply(OffsetOutOfRange("offset 99 is beyond 42")))
    reply, error = Flag.REPLY, Flag.REPLY | Flag.ERROR

    def reply_header(api: Api, correlation: int, body: bytes, flags: int) -> bytes:
        return pack_header(api, correlation=correlation, body_bytes=len(body), partition=1, flags=flags)

    parts = (
        _frame(
            "CREATE_TOPIC `greetings` with one partition; the body is `[name, 1, 1, {}, false]`:",
            pack_header(Api.CREATE_TOPIC, correlation=1, body_bytes=len(create), deadline_ms=30_000),
            create,
        ),
        _frame(
            "PRODUCE, acks 2, of `hello` and `world` to the partition with id 1; the body is one batch:",
            produce_header,
            sent,
        ),
        _frame(
            "Its reply: base_offset 40, no append time, log start 0, flushed, not repeated:",
            reply_header(Api.PRODUCE, 2, produced, reply),
            produced,
        ),
        _frame(
            "FETCH from offset 41, with a new session, for up to 500 ms:",
            pack_header(
                Api.FETCH, correlation=3, body_bytes=len(asked), partition=1, received=128, deadline_ms=30_000
            ),
            asked,
        ),
        _frame(
            "Its reply: session 7, one row, and a batch that begins at 40, below what was asked for:",
            reply_header(Api.FETCH, 3, fetched, reply),
            fetched,
        ),
        _frame(
            "A fetch reply whose only row has error 7:", reply_header(Api.FETCH, 4, outside, reply), outside
        ),
        _frame("An error reply:", reply_header(Api.FETCH, 5, refused, error), refused),
    )
    return "\n".join(parts)


if __name__ == "__main__":
    print(example(), end="")
