"""Encoding: equal to its twin, from objects and from every kind of column, and what it refuses."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog import limits
from ringlog.errors import BatchTooLarge, InvalidRequest
from ringlog.model import Codec
from ringlog.records.columns import Column
from ringlog.records.encode import encode, encode_columns, encode_empty
from ringlog.records.scan import check
from tests.support.batches import batch_fields, record_lists
from tests.support.twins import batch as twin

SWAPPED_HEADERS = pa.list_(pa.struct([("value", pa.string()), ("key", pa.string())]))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@given(record_lists(), batch_fields)
def test_encode_equals_its_twin(records, fields):
    assert encode(**records, **fields) == twin.encode(**records, **fields)


@given(record_lists(), st.booleans(), st.booleans(), st.booleans())
def test_the_attributes_say_what_was_asked_for(records, append_time, transactional, control):
    batch = encode(**records, append_time=append_time, transactional=transactional, control=control)
    attributes = append_time << 3 | transactional << 4 | control << 5
    assert batch == twin.encode(**records, attributes=attributes)


@given(
    record_lists(),
    st.sampled_from((pa.binary(), pa.large_binary())),
    st.sampled_from((pa.binary(), pa.large_binary())),
)
def test_arrow_columns_encode_as_their_objects_do(records, value_type, key_type):
    batch = encode_columns(
        pa.array(records["values"], type=value_type),
        pa.array(records["keys"], type=key_type),
        pa.array(records["headers"], type=HEADERS),
        timestamps=pa.array(records["timestamps"], type=pa.int64()),
    )
    assert batch == encode(**records)


@given(record_lists(), st.sampled_from((np.int32, np.int64)))
def test_numpy_columns_encode_as_their_objects_do(records, width):
    def column(items):
        made = Column.of(items)
        return Column(made.offsets.astype(width), made.data, made.valid)

    timestamps = np.array(records["timestamps"], dtype=np.int64)
    batch = encode_columns(column(records["values"]), column(records["keys"]), timestamps=timestamps)
    assert batch == encode(records["values"], records["keys"], timestamps=records["timestamps"])


@given(record_lists(max_size=9), st.data())
def test_a_slice_of_arrow_columns_is_a_range_of_their_records(records, data):
    count = len(records["values"])
    first = data.draw(st.integers(0, count - 1))
    start = data.draw(st.integers(0, count - first - 1))
    stop = data.draw(st.integers(start + 1, count - first))
    batch = encode_columns(
        pa.array(records["values"], type=pa.binary())[first:],
        pa.array(records["keys"], type=pa.large_binary())[first:],
        pa.array(records["headers"], type=HEADERS)[first:],
        timestamps=pa.array(records["timestamps"], type=pa.timestamp("ms", "UTC"))[first:],
        start=start,
        stop=stop,
        base_sequence=5,
    )
    wanted = {name: items[first + start : first + stop] for name, items in records.items()}
    assert batch == encode(**wanted, base_sequence=5)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_strings_are_encoded_as_utf8(kind):
    batch = encode_columns(pa.array(["é", None, "漢"], type=kind), timestamps=0)
    assert batch == encode(["é".encode(), None, "漢".encode()], timestamps=0)


def test_fixed_size_and_null_columns_are_taken():
    values = pa.array([b"abc", None, b"def"], type=pa.binary(3))[1:]
    batch = encode_columns(values, pa.nulls(2), timestamps=0)
    assert batch == encode([None, b"def"], [None, None], timestamps=0)


def test_large_lists_of_headers_are_taken():
    kind = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    headers = pa.array([[("a", b"1")], None, [("b", None), ("c", b"")]], type=kind)
    batch = encode_columns(pa.array([b"x", b"y", b"z"]), None, headers, timestamps=0)
    wanted = [[("a", b"1")], [], [("b", None), ("c", b"")]]
    assert batch == encode([b"x", b"y", b"z"], None, wanted, timestamps=0)


def test_a_large_column_cut_into_batches_holds_every_record_once():
    values = [b"%d" % i for i in range(1000)]
    column = Column.of(values)
    cut = b"".join(
        encode_columns(column, timestamps=0, start=start, stop=min(start + 64, 1000), base_offset=start)
        for start in range(0, 1000, 64)
    )
    assert check(cut, expected_offset=0, gapless=True)["record_count"].sum() == 1000


def test_one_timestamp_holds_for_all_records():
    assert encode([b"a", b"b"], timestamps=7) == encode([b"a", b"b"], timestamps=[7, 7])
    column = Column.of([b"a", b"b"])
    assert encode_columns(column, timestamps=7) == encode([b"a", b"b"], timestamps=[7, 7])


@pytest.mark.parametrize("size", [0, 1, 3, 4, 7, 8, 15, 16, 17, 63, 64, 255, 256, 257, 8191, 8192, 100_000])
def test_values_of_every_size_class_arrive_whole(size):
    value = np.random.default_rng(size).bytes(size)
    assert encode([value, b"next"], timestamps=0) == twin.encode(
        [value, b"next"], [None] * 2, [[], []], [0, 0]
    )


def test_an_empty_batch_keeps_its_offsets_and_producer():
    batch = encode_empty(base_offset=10, last_offset=19, max_timestamp=77, producer_id=3, producer_epoch=1)
    row = check(batch)[0]
    assert (row["base_offset"], row["last_offset"], row["record_count"]) == (10, 19, 0)
    assert (row["max_timestamp"], row["producer_id"], row["producer_epoch"]) == (77, 3, 1)


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"values": []},
        {"values": [b"a"], "keys": []},
        {"values": [b"a"], "headers": [[], []]},
        {"values": [b"a"], "timestamps": [1, 2]},
        {"values": [b"a"], "timestamps": 2**63},
        {"values": [b"a", b"b"], "timestamps": [-(2**62), 2**63 - 1]},
        {"values": [b"a"], "base_offset": -1},
        {"values": [b"a"], "leader_epoch": 2**31},
        {"values": [b"a"], "producer_id": -2},
        {"values": [b"a"], "producer_epoch": 2**15},
        {"values": [b"a"], "base_sequence": -2},
        {"values": [b"a"], "headers": [[("k", b"")] * (limits.HEADERS_PER_RECORD_MAX + 1)]},
    ],
)
def test_objects_that_make_no_batch_are_refused(arguments):
    with pytest.raises(InvalidRequest):
        encode(**{"timestamps": 0, **arguments})


@pytest.mark.parametrize(
    "arguments",
    [
        {"values": ["text"]},
        {"values": [b"a"], "keys": [5]},
        {"values": [b"a"], "headers": [[(b"key", b"")]]},
        {"values": [b"a"], "headers": [[("key", "text")]]},
        {"values": [b"a"], "headers": [["key"]]},
        {"values": [b"a"], "timestamps": ["now"]},
        {"values": 5},
    ],
)
def test_objects_of_other_types_are_named(arguments):
    with pytest.raises(TypeError):
        encode(**{"timestamps": 0, **arguments})


@pytest.mark.parametrize("offsets", [[0, 5], [-1, 2], [2, 1]])
@pytest.mark.parametrize("width", [np.int32, np.int64])
def test_column_offsets_that_lead_out_of_the_data_are_refused(offsets, width):
    column = Column(np.array(offsets, dtype=width), b"four")
    with pytest.raises(InvalidRequest, match="offsets"):
        encode_columns(column, timestamps=0)
    with pytest.raises(InvalidRequest, match="offsets"):
        encode_columns(Column.of([b"value"]), column, timestamps=0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"values": pa.array([1, 2])},
        {"values": pa.array([b"a"]), "keys": pa.array([b"a", b"b"])},
        {"values": pa.array([b"a"]), "headers": pa.array([b"a"])},
        {"values": pa.array([b"a"]), "headers": pa.array([None, None], type=HEADERS)},
        {"values": pa.array([b"a"]), "headers": pa.array([[(None, b"v")]], type=HEADERS)},
        {"values": pa.array([b"a"]), "headers": pa.array([[None]], type=HEADERS)},
        {"values": pa.array([b"a"]), "headers": pa.array([[("v", "k")]], type=SWAPPED_HEADERS)},
        {"values": pa.array([b"a"]), "timestamps": np.zeros(2, dtype=np.int64)},
        {"values": pa.array([b"a"]), "timestamps": np.zeros(1, dtype=np.float64)},
        {"values": pa.array([b"a"]), "timestamps": pa.array([None], type=pa.int64())},
        {"values": pa.array([b"a"]), "timestamps": pa.array([1], type=pa.timestamp("us"))},
        {"values": pa.array([b"a"]), "start": 1},
        {"values": pa.array([b"a"]), "start": -1},
        {"values": pa.array([b"a"]), "stop": 2},
        {"values": pa.array([b"a"]), "stop": -2},
    ],
)
def test_columns_that_do_not_fit_are_refused(arguments):
    with pytest.raises(InvalidRequest):
        encode_columns(**{"timestamps": 0, **arguments})


@pytest.mark.parametrize(
    ("offsets", "valid"),
    [
        (np.zeros(0, dtype=np.int32), None),
        (np.zeros(3, dtype=np.float64), None),
        (np.zeros((2, 2), dtype=np.int32), None),
        (np.zeros(20, dtype=np.int32)[::2], None),
        (np.zeros(20, dtype=np.int32), np.zeros(2, dtype=np.uint8)),
        (np.zeros(2, dtype=np.int32), np.zeros(2, dtype=np.bool_)),
    ],
)
def test_a_column_of_another_shape_is_refused(offsets, valid):
    with pytest.raises(InvalidRequest):
        Column(offsets, b"", valid)


def test_a_batch_that_no_log_accepts_is_not_made():
    value = bytes(limits.BATCH_BYTES_MAX)
    with pytest.raises(BatchTooLarge):
        encode([value], timestamps=0)
    with pytest.raises(BatchTooLarge):
        encode([value, value], timestamps=0, codec=Codec.ZSTD)  # it would unfold to more than is allowed
    # One that unfolds to no more than is allowed may be larger than a batch before it is compressed.
    assert len(encode([value], timestamps=0, codec=Codec.ZSTD)) < limits.MIB
