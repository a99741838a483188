"""Records and deltas: they survive their encoding, and any bytes give a record or a typed error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.controller.records import (
    Delta,
    Identity,
    NextIds,
    Partition,
    ProducerIds,
    Topic,
    TopicConfig,
    TopicRemoved,
    decode_delta,
    decode_record,
    deltas_of,
    encode_delta,
    encode_record,
)
from ringlog.errors import CorruptFrame

ALL = [
    Topic(1, "orders", {"flush": "os"}),
    Partition(7, 1, 0, 3, 2),
    TopicConfig(1, {}),
    TopicRemoved(1),
    ProducerIds(2000),
    Identity("abc", 1),
    NextIds(2, 8),
]


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_a_record_survives_its_encoding(record):
    assert decode_record(encode_record(record)) == record


def test_a_delta_survives_its_encoding():
    delta = Delta(9, True, False, ALL)
    assert decode_delta(memoryview(encode_delta(delta))) == delta


@given(st.binary(max_size=60))
def test_any_bytes_give_a_record_or_a_typed_error(data):
    for decode in (decode_record, decode_delta):
        try:
            decode(data)
        except CorruptFrame:
            continue


@given(st.sampled_from(ALL), st.integers(0, 40), st.integers(0, 255))
def test_a_tampered_record_gives_a_record_or_a_typed_error(record, at, value):
    data = bytearray(encode_record(record))
    data[at % len(data)] = value
    try:
        decode_record(bytes(data))
    except CorruptFrame:
        return


def test_a_record_of_an_unknown_kind_is_refused():
    data = encode_record(ProducerIds(1)).replace(b"producer_ids", b"producer_idz")
    with pytest.raises(CorruptFrame):
        decode_record(data)


def test_nothing_is_still_one_delta():
    assert deltas_of(5, [], full=True) == [Delta(5, True, False, [])]


@given(st.integers(0, 30), st.integers(1, 7))
def test_pieces_of_a_delta_hold_all_records_in_order(count, records_max):
    records = [ProducerIds(number) for number in range(count)]
    pieces = deltas_of(3, records, full=True, records_max=records_max)
    assert [record for piece in pieces for record in piece.records] == records
    assert [piece.full for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert [piece.more for piece in pieces] == [True] * (len(pieces) - 1) + [False]
