"""The tables and the hex of docs/PROTOCOL.md are those of the code."""

from __future__ import annotations

import re
import struct

import msgspec
import numpy as np
import pytest

from ringlog import errors, limits
from ringlog.net import group_messages, messages, move_messages, wire_errors
from ringlog.net.framing import Api, Flag, Header
from ringlog.records.encode import encode
from ringlog.records.scan import scan
from ringlog.ring.frame import FRAME_HEADER
from scripts.protocol_example import example
from tests.support.markdown import DOCS, tables

TEXT = (DOCS / "PROTOCOL.md").read_text(encoding="utf-8")
_NUMPY = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "i64": "<i8"}


def rows(heading: str, table: int = 0) -> list[list[str]]:
    return tables(TEXT, heading)[table][1:]


def layout(dtype: np.dtype) -> list[tuple[int, str, str]]:
    fields = [(name, *dtype.fields[name][:2]) for name in dtype.names]
    return [(at, kind.str.replace("|", "<"), name) for name, kind, at in fields]


def documented(table: list[list[str]]) -> list[tuple[int, str, str]]:
    return [(int(at), _NUMPY[kind], name) for at, kind, name, *_ in table]


def test_the_header_of_the_document_is_that_of_the_code():
    found = documented(rows("The header"))
    ring_name = [(at, kind, name.replace("received", "session")) for at, kind, name in found]
    assert ring_name == layout(FRAME_HEADER), "in a ring the same bytes are the client's session"
    assert [name for _, _, name in found] == list(Header._fields)


def test_the_flags_of_the_document_are_those_of_the_code():
    assert {name: int(bits, 16) for name, bits, _ in rows("The header", 1)} == {
        flag.name: flag.value for flag in Flag
    }


def test_the_api_keys_of_the_document_are_those_of_the_code():
    assert {int(key): name for key, name, *_ in rows("The header", 2)} == {api.value: api.name for api in Api}


def test_the_error_numbers_of_the_document_are_those_of_the_code():
    found = {code: (int(number), retriable) for number, code, retriable, _ in rows("Errors", 1)}
    kinds = {
        kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")
    }
    assert found == {
        code: (number, "yes" if kinds[code].retriable else "no")
        for code, number in wire_errors.NUMBERS.items()
    }


def test_every_error_says_what_a_client_does():
    assert all(len(what) > 10 for *_, what in rows("Errors", 1))


def test_the_fetch_row_of_the_document_is_that_of_the_code():
    assert documented(rows("Fetch (1)", 2)) == layout(messages.FETCH_ROW)


def test_the_produce_reply_of_the_document_is_that_of_the_code():
    fields = rows("Produce (0)", 1)[:-1]
    assert [name for _, _, name, _ in fields] == list(messages.ProduceReply._fields)
    body = bytearray(messages.PRODUCE_REPLY_BYTES)
    for number, (at, kind, _, _) in enumerate(fields, 1):
        struct.pack_into({"i64": "<q", "u8": "<B"}[kind], body, int(at), number)
    assert messages.ProduceReply.unpack(bytes(body)) == (1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("heading", "table", "kind"),
    [
        ("Fetch (1)", 0, messages.FetchRequest),
        ("List offsets (2)", 0, messages.ListOffsetsRequest),
        ("List offsets (2)", 1, messages.ListOffsetsReply),
        ("Metadata (3)", 0, messages.MetadataRequest),
        ("Metadata (3)", 1, messages.MetadataReply),
        ("Metadata (3)", 2, messages.TopicMetadata),
        ("Metadata (3)", 3, messages.PartitionMetadata),
        ("Metadata (3)", 4, messages.BrokerMetadata),
        ("Init producer (4)", 0, messages.InitProducerReply),
        ("Topics (5 to 8)", 0, messages.CreateTopicRequest),
        ("Topics (5 to 8)", 1, messages.DeleteTopicRequest),
        ("Topics (5 to 8)", 2, messages.AlterTopicRequest),
        ("Topics (5 to 8)", 3, messages.AddPartitionsRequest),
        ("Topics (5 to 8)", 4, messages.TopicReply),
        ("Describe partitions (9)", 0, messages.DescribePartitionsRequest),
        ("Describe partitions (9)", 1, messages.PartitionDescription),
        ("Heartbeats (10)", 0, group_messages.GroupHeartbeatRequest),
        ("Heartbeats (10)", 1, group_messages.GroupHeartbeatReply),
        ("Offsets (11, 12)", 0, group_messages.OffsetCommitRequest),
        ("Offsets (11, 12)", 1, group_messages.OffsetCommitReply),
        ("Offsets (11, 12)", 2, group_messages.OffsetFetchRequest),
        ("Offsets (11, 12)", 3, group_messages.CommittedOffset),
        ("Looking at groups and changing them (13 to 16)", 0, group_messages.GroupListReply),
        ("Looking at groups and changing them (13 to 16)", 1, group_messages.GroupSummary),
        ("Looking at groups and changing them (13 to 16)", 2, group_messages.GroupDescribeReply),
        ("Looking at groups and changing them (13 to 16)", 3, group_messages.MemberDescription),
        ("Looking at groups and changing them (13 to 16)", 4, group_messages.GroupResetRequest),
        ("Looking at groups and changing them (13 to 16)", 5, group_messages.GroupDeleteRequest),
        ("Delete records (20)", 0, messages.DeleteRecordsRequest),
        ("Delete records (20)", 1, messages.DeleteRecordsReply),
        ("Split points (25)", 0, messages.SplitPointsRequest),
        ("Split points (25)", 1, messages.SplitPointsReply),
        ("Split points (25)", 2, messages.FoundSplit),
        ("Moving replicas (26 to 28)", 0, move_messages.ReassignRequest),
        ("Moving replicas (26 to 28)", 1, move_messages.DrainNodeRequest),
        ("Moving replicas (26 to 28)", 2, move_messages.ReassignReply),
        ("Moving replicas (26 to 28)", 3, move_messages.MoveResult),
        ("Moving replicas (26 to 28)", 4, move_messages.AlterClusterRequest),
        ("Moving replicas (26 to 28)", 6, move_messages.AlterClusterReply),
        ("Shared memory (29)", 0, messages.ShareMemoryRequest),
        ("Shared memory (29)", 1, messages.ShareMemoryReply),
        ("Errors", 0, messages.ErrorReply),
    ],
)
def test_the_fields_of_a_control_body_stand_in_the_order_of_the_code(heading, table, kind):
    names, found = tables(TEXT, heading)[table][0], rows(heading, table)
    fields = msgspec.structs.fields(kind)
    assert [row[0] for row in found] == [field.name for field in fields]
    if "default" in names:
        assert [bool(row[2]) for row in found] == [not field.required for field in fields]
    else:
        assert all(field.required for field in fields), "a field with a default needs the column"


@pytest.mark.parametrize(
    ("heading", "table", "column", "kind"),
    [
        ("Fetch (1)", 0, "partitions", messages.FetchPartition),
        ("List offsets (2)", 0, "queries", messages.OffsetQuery),
        ("List offsets (2)", 1, "found", messages.FoundOffset),
        ("Delete records (20)", 0, "partitions", messages.PartitionStart),
        ("Delete records (20)", 1, "deleted", messages.DeletedRecords),
        ("Split points (25)", 0, "queries", messages.SplitQuery),
    ],
)
def test_the_structures_inside_a_body_have_the_fields_of_the_code(heading, table, column, kind):
    (cell,) = [row[1] for row in rows(heading, table) if row[0] == column]
    assert re.findall(r"(\w+) int", cell) == [field.name for field in msgspec.structs.fields(kind)]


def test_the_bounds_of_the_document_are_those_of_the_code():
    found = {name: int(value) for name, value, _ in rows("Bounds")}
    assert found == {name: getattr(limits, name) for name in found}
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", TEXT)) & set(vars(limits))
    assert named <= set(found), "a bound that the text names has its value in the table"


def test_the_batch_header_of_the_document_is_that_of_the_code():
    batch = encode(
        [b"a", b"b", b"c"],
        timestamps=[50, 70, 60],
        base_offset=11,
        leader_epoch=12,
        producer_id=13,
        producer_epoch=14,
        base_sequence=15,
        append_time=True,
    )
    (known,) = scan(batch, level="headers").table
    forms = {"i64": ">q", "i32": ">i", "i16": ">h", "i8": ">b", "u32": ">I"}
    found, end = {}, 0
    for offset, kind, name, *_ in rows("Record batches")[:-1]:
        assert int(offset) == end, name
        (found[name],) = struct.unpack_from(forms[kind], batch, end)
        end += struct.calcsize(forms[kind])
    assert end == int(rows("Record batches")[-1][0]) == limits.BATCH_HEADER_BYTES
    same = ("base_offset", "leader_epoch", "crc", "attributes", "base_timestamp", "max_timestamp")
    same += ("producer_id", "producer_epoch", "base_sequence", "record_count")
    assert {name: found.pop(name) for name in same} == {name: known[name] for name in same}
    assert found == {"batch_length": len(batch) - 12, "magic": 2, "last_offset_delta": 2}


def test_the_exchange_in_hex_is_what_the_code_sends():
    assert TEXT.endswith(example()), "put the output of `python -m scripts.protocol_example` there"
