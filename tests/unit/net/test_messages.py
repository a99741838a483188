"""Bodies: they survive their encoding, and any bytes give a body or a typed error."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import CorruptFrame
from ringlog.limits import CONTROL_BODY_BYTES_MAX
from ringlog.net import messages
from ringlog.net.messages import (
    FETCH_ROW_PACK,
    BrokerMetadata,
    CreateTopicRequest,
    MetadataReply,
    MetadataRequest,
    PartitionMetadata,
    ProduceReply,
    decode_body,
    encode_body,
    pack_fetch_head,
    unpack_fetch_reply,
)

KINDS = sorted(
    (kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, messages.Body)),
    key=lambda kind: kind.__name__,
)
i64 = st.integers(-(2**63), 2**63 - 1)
fetched_rows = st.lists(
    st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), i64, i64, i64, st.binary(max_size=30)),
    max_size=5,
)


def fetch_reply(session: int, rows) -> bytes:
    packed = [
        FETCH_ROW_PACK.pack(partition, error, 0, start, readable, after, len(data), 0)
        for partition, error, start, readable, after, data in rows
    ]
    return pack_fetch_head(session, packed) + b"".join(row[-1] for row in rows)


@given(st.integers(0, 2**32 - 1), fetched_rows)
def test_a_fetch_reply_survives_its_packing(session, rows):
    found, fetched = unpack_fetch_reply(memoryview(fetch_reply(session, rows)))
    assert found == session
    assert [(*row[:5], bytes(row.data)) for row in fetched] == rows


@given(st.binary(max_size=200))
def test_any_bytes_give_a_fetch_reply_or_a_typed_error(data):
    try:
        unpack_fetch_reply(memoryview(data))
    except CorruptFrame:
        return


@given(fetched_rows, st.integers(0, 300), st.integers(0, 255))
def test_a_tampered_fetch_reply_gives_rows_within_it_or_a_typed_error(rows, at, value):
    data = bytearray(fetch_reply(1, rows))
    data[at % len(data)] = value
    try:
        _, fetched = unpack_fetch_reply(memoryview(bytes(data)))
    except CorruptFrame:
        return
    assert sum(row.data.nbytes for row in fetched) <= len(data)


@given(i64, i64, i64, st.integers(0, 255), st.integers(0, 1))
def test_a_produce_reply_survives_its_packing(base, append_time, start, durability, repeated):
    reply = ProduceReply(base, append_time, start, durability, repeated)
    assert ProduceReply.unpack(reply.pack()) == reply


@given(st.binary(max_size=60))
def test_any_bytes_give_a_produce_reply_or_a_typed_error(data):
    try:
        ProduceReply.unpack(data)
    except CorruptFrame:
        return


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.binary(max_size=60))
def test_any_bytes_give_a_body_or_a_typed_error(kind, data):
    try:
        decode_body(data, kind)
    except CorruptFrame as error:
        assert kind.__name__ in str(error)


def test_a_field_that_a_newer_peer_added_is_skipped():
    body = encode_body(CreateTopicRequest("a"))
    newer = bytes([body[0] + 1]) + body[1:] + b"\x07"
    assert decode_body(newer, CreateTopicRequest) == CreateTopicRequest("a")


def test_fields_that_an_older_peer_left_out_have_their_defaults():
    assert decode_body(b"\x90", MetadataRequest) == MetadataRequest(None, False)


def test_a_node_that_knows_no_cluster_names_no_brokers_and_no_replicas():
    before = msgspec.msgpack.encode(["c", 0, 1, ["tcp://h:1"], "host", 9, [["t", "", 1, [[0, 7, 2, 0]], {}]]])
    reply = decode_body(before, MetadataReply)
    assert (reply.brokers, reply.controller_id) == ([], -1)
    assert reply.topics[0].partitions == [PartitionMetadata(0, 7, 2, 0, 0, [], [])]


def test_a_cluster_survives_its_encoding():
    place = PartitionMetadata(0, 7, 513, 2, 4, [2, 1, 3], [2, 3])
    topic = messages.TopicMetadata("t", "", 1, [place], {})
    brokers = [BrokerMetadata(1, ["tcp://h:1"], "host"), BrokerMetadata(2, [], "", "north", True, True)]
    reply = MetadataReply("c", 1, 5, [], "host", 9, [topic], {}, brokers, 2)
    assert decode_body(encode_body(reply), MetadataReply) == reply


def test_a_body_beyond_the_bound_is_refused_unread():
    with pytest.raises(CorruptFrame, match="at most"):
        decode_body(b"\0" * (CONTROL_BODY_BYTES_MAX + 1), MetadataRequest)


def test_depth_is_no_way_to_exhaust_the_stack():
    with pytest.raises(CorruptFrame):
        decode_body(b"\x91" * 100_000, MetadataRequest)
