"""Decoding: what was encoded comes back, as records and as columns, and broken bytes are refused."""

from __future__ import annotations

import datetime
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import CorruptBatch, InvalidRequest
from ringlog.model import Codec
from ringlog.native import _kernel
from ringlog.records import codecs
from ringlog.records.columns import Column
from ringlog.records.decode import COLUMNS, Record, decode, decode_columns
from ringlog.records.encode import encode, encode_columns, encode_empty
from ringlog.records.scan import stamp
from tests.support.batches import buffers, record_lists, reseal, tampered
from tests.support.twins import batch as twin


def rows(columns) -> list[tuple]:
    """Columns as the tuples that `decode` gives."""
    headers = columns.headers
    pairs = list(zip((k.decode() for k in headers.keys), headers.values, strict=True))
    return [
        (
            int(columns.offset[i]),
            int(columns.timestamp[i]),
            columns.key[i],
            columns.value[i],
            pairs[headers.offsets[i] : headers.offsets[i + 1]],
        )
        for i in range(len(columns))
    ]


def assert_as_the_twin_says(data: bytes) -> None:
    try:
        wanted = twin.decode(data)
    except twin.Refused as refused:
        for opened in (decode, decode_columns):
            with pytest.raises(CorruptBatch) as raised:
                opened(data)
            assert (raised.value.field, raised.value.position) == (refused.name, refused.position)
    else:
        assert [tuple(record) for record in decode(data)] == wanted
        assert rows(decode_columns(data)) == wanted


@given(tampered().filter(lambda data: not compressed(data)))
def test_records_equal_those_of_the_twin_or_are_refused_for_the_same_field(data):
    assert_as_the_twin_says(data)


def compressed(data: bytes) -> bool:
    """Whether a batch says that it is: the twin does not unfold."""
    return any(header.attributes & 7 for _, header in twin.scan(data, twin.Rules("crc")).batches)


@given(record_lists(), st.sampled_from(Codec), st.integers(0, 2**62))
def test_what_was_encoded_comes_back(records, codec, base_offset):
    batch = encode(**records, codec=codec, base_offset=base_offset)
    wanted = [
        Record(base_offset + i, records["timestamps"][i], records["keys"][i], records["values"][i], headers)
        for i, headers in enumerate(records["headers"])
    ]
    assert list(decode(batch)) == wanted
    assert rows(decode_columns(batch)) == [tuple(record) for record in wanted]


@given(buffers())
def test_columns_and_records_say_the_same(data):
    assert rows(decode_columns(data)) == [tuple(record) for record in decode(data)]


# -- shapes: the kernel reads records of the common shape by a shorter way ---------------------------------


def batch_of(items: list[twin.Item], base_timestamp: int = 1000, attributes: int = 0) -> bytes:
    last = items[-1].offset_delta
    header = twin.Header(7, 0, 3, 2, 0, attributes, last, base_timestamp, 2000, -1, -1, -1, len(items))
    return twin.seal(header, b"".join(twin.encode_item(item) for item in items))


SIZES = (0, 1, 31, 32, 63, 64, 255, 256, 257, 8191, 8192)
TIMES = (0, 63, -64, 64, -65, 8191, 8192, 2**20 - 1, -(2**20), 2**20, -(2**20) - 1, 2**40, -(2**40))
OFFSETS = (0, 1, 63, 64, 8191, 8192, 2**20 - 1, 2**20, 2**30, 2**31 - 1)
SHAPES = {
    "values": [twin.Item(0, i, None, b"v" * size, []) for i, size in enumerate(SIZES)],
    "keys": [twin.Item(0, i, b"k" * size, None, []) for i, size in enumerate(SIZES)],
    "both": [twin.Item(i, i, b"k" * size, b"v" * size, []) for i, size in enumerate(SIZES)],
    "timestamps": [twin.Item(time, i, b"k", b"v", []) for i, time in enumerate(TIMES)],
    "offsets": [twin.Item(0, offset, b"k", b"v", []) for offset in OFFSETS],
    "headers between": [twin.Item(0, i, None, b"v", [("h", None)] * (i % 3)) for i in range(12)],
    "smallest": [twin.Item(0, i, None, None, []) for i in range(5)],
}


@pytest.mark.parametrize("attributes", [0, 1 << 3], ids=["create time", "append time"])
@pytest.mark.parametrize("items", SHAPES.values(), ids=SHAPES)
def test_records_of_every_shape_are_read(items, attributes):
    data = batch_of(items, attributes=attributes)
    assert len(decode(data)) == len(items)
    assert_as_the_twin_says(data)
    assert_as_the_twin_says(data + data)


@pytest.mark.parametrize("bits", [0x01, 0x02, 0x03, 0x7F, 0x80, 0x81, 0xFF])
def test_any_byte_of_a_record_may_be_wrong(bits):
    items = [
        twin.Item(0, 0, None, b"a" * 12, []),
        twin.Item(70, 1, b"key", b"b" * 70, []),
        twin.Item(9000, 70, b"key", None, [("h", b"x")]),
        twin.Item(1, 9000, None, b"c", []),
    ]
    right = batch_of(items)
    for at in range(61, len(right)):
        wrong = bytearray(right)
        wrong[at] ^= bits
        reseal(wrong)
        assert_as_the_twin_says(bytes(wrong))


@pytest.mark.parametrize("base", [2**63 - 1, 2**63 - 64, -(2**63), -(2**63) + 63])
def test_a_timestamp_beyond_64_bits_is_refused_however_short_its_delta(base):
    for delta in (0, 1, -1, 63, -64):
        assert_as_the_twin_says(batch_of([twin.Item(delta, 0, None, b"value", [])], base_timestamp=base))


def several() -> bytes:
    return bytes(
        encode([b"a", b"b"], [None, b"k"], timestamps=[5, 6], base_offset=0)
        + encode_empty(base_offset=2, last_offset=4)
        + encode([b"c"], timestamps=7, base_offset=5, codec=Codec.GZIP)
        + encode([b"marker"], timestamps=8, base_offset=6, control=True)
        + encode([b"d" * 300, None], timestamps=9, base_offset=7, codec=Codec.LZ4)
    )


def test_several_batches_of_any_codec_are_one_sequence():
    records = decode(several())
    assert len(records) == 5
    assert [record.offset for record in records] == [0, 1, 5, 7, 8]
    assert records[2] == Record(5, 7, None, b"c", [])


def test_control_records_are_left_out_unless_asked_for():
    assert b"marker" not in [record.value for record in decode(several())]
    assert [record.offset for record in decode(several(), include_control=True)] == [0, 1, 5, 6, 7, 8]
    assert decode_columns(several(), include_control=True).offset.tolist() == [0, 1, 5, 6, 7, 8]


def test_the_next_offset_lies_behind_every_batch_shown_or_not():
    marker = encode([b"marker"], timestamps=8, base_offset=6, control=True)
    assert decode(marker).next_offset == 7
    assert len(decode(marker)) == 0
    assert decode_columns(several()).next_offset == 9
    assert decode(b"").next_offset is None


def test_records_are_reached_by_index_slice_and_from_behind():
    records = decode(several())
    every = list(records)
    assert records[-1] == every[-1]
    assert records[1:4] == every[1:4]
    assert records[::-2] == every[::-2]
    assert records[10:] == []
    assert Record(1, 6, b"k", b"b", []) in records
    for outside in (5, -6):
        with pytest.raises(IndexError):
            records[outside]


def test_iteration_crosses_its_chunks():
    values = [b"%d" % i for i in range(1000)]
    assert [record.value for record in decode(encode(values, timestamps=0))] == values


def test_a_record_is_a_tuple_that_can_be_pickled():
    record = decode(several())[1]
    assert tuple(record) == (1, 6, b"k", b"b", [])
    assert pickle.loads(pickle.dumps(record)) == record


def test_append_time_is_the_time_of_every_record():
    batch = encode([b"a", b"b"], timestamps=[1, 2])
    stamp(batch, base_offset=0, leader_epoch=0, append_time_ms=99)
    assert [record.timestamp for record in decode(batch)] == [99, 99]
    assert decode_columns(batch).timestamp.tolist() == [99, 99]


def test_columns_that_are_not_asked_for_are_not_decoded():
    columns = decode_columns(several(), columns=("offset", "value"))
    assert columns.offset.tolist() == [0, 1, 5, 7, 8]
    assert list(columns.value) == [b"a", b"b", b"c", b"d" * 300, None]
    assert (columns.timestamp, columns.key, columns.headers) == (None, None, None)
    with pytest.raises(InvalidRequest, match="valeu"):
        decode_columns(several(), columns=("valeu",))


def test_columns_without_nulls_have_no_bitmap():
    columns = decode_columns(encode([b"a"], timestamps=0))
    assert columns.value.valid is None
    assert columns.key.valid is not None


# -- Arrow -------------------------------------------------------------------------------------------------


def test_columns_become_a_record_batch_of_the_documented_schema():
    batch = pa.record_batch(decode_columns(several()))
    batch.validate(full=True)
    pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    assert batch.schema == pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(pa.field("item", pair, nullable=False)), nullable=False),
        ]
    )
    assert batch.num_rows == 5


@given(record_lists())
def test_arrow_holds_what_was_encoded(records):
    records["timestamps"] = [abs(time) % 2**41 for time in records["timestamps"]]
    batch = pa.record_batch(decode_columns(encode(**records)))
    batch.validate(full=True)
    assert batch["value"].to_pylist() == records["values"]
    assert batch["key"].to_pylist() == records["keys"]
    headers = [[(pair["key"], pair["value"]) for pair in row] for row in batch["headers"].to_pylist()]
    assert headers == records["headers"]
    assert batch["timestamp"].cast(pa.int64()).to_pylist() == records["timestamps"]


def test_arrow_shares_the_memory_of_the_columns():
    columns = decode_columns(several())
    batch = pa.record_batch(columns)
    assert batch["value"].buffers()[2].address == columns.value.data.ctypes.data
    assert batch["offset"].buffers()[1].address == columns.offset.ctypes.data


def test_arrow_outlives_the_columns():
    batch = pa.record_batch(decode_columns(several()))
    churn = [decode_columns(several()) for _ in range(50)]
    del churn
    assert batch["value"].to_pylist() == [b"a", b"b", b"c", b"d" * 300, None]
    assert batch["timestamp"][0].as_py() == datetime.datetime.fromtimestamp(0.005, datetime.UTC)


def test_arrow_capsules_that_nobody_takes_are_given_back():
    data = bytearray(b"abc")
    capsules = Column(np.array([0, 1, 3], dtype=np.int32), data).__arrow_c_array__()
    with pytest.raises(BufferError):
        data.append(0)  # a bytearray does not grow while something points into it
    del capsules
    data.append(0)


def test_only_the_columns_that_were_decoded_are_exported():
    batch = pa.record_batch(decode_columns(several(), columns=("value", "offset")))
    assert batch.schema.names == ["offset", "value"]


def test_a_single_column_is_an_arrow_array():
    assert pa.array(Column.of([b"a", None])).to_pylist() == [b"a", None]
    narrow = Column(np.array([0, 1, 3], dtype=np.int32), b"abc")
    assert pa.array(narrow).type == pa.binary()
    assert pa.array(narrow).to_pylist() == [b"a", b"bc"]


def test_decoded_columns_encode_again_to_the_same_batch():
    batch = encode([b"a", None, b"c"], [None, b"k", b""], timestamps=[1, 2, 3])
    columns = decode_columns(batch)
    assert encode_columns(columns.value, columns.key, timestamps=columns.timestamp) == batch
    arrow = pa.record_batch(columns)
    assert (
        encode_columns(arrow["value"], arrow["key"], arrow["headers"], timestamps=arrow["timestamp"]) == batch
    )


# -- refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [decode, decode_columns])
def test_a_wrong_crc_is_refused_unless_it_is_not_asked_for(opened):
    batch = encode([b"value"], timestamps=0)
    batch[17] ^= 1
    with pytest.raises(CorruptBatch) as raised:
        opened(batch)
    assert (raised.value.field, raised.value.position) == ("crc", 17)
    assert len(opened(batch, check_crc=False)) == 1


@pytest.mark.parametrize("opened", [decode, decode_columns])
def test_a_broken_record_is_refused_at_its_place_in_the_buffer(opened):
    first = encode([b"value"], timestamps=0)
    second = encode([b"value"], timestamps=0, base_offset=1)
    second[61] = 0
    reseal(second)
    with pytest.raises(CorruptBatch) as raised:
        opened(first + second)
    assert (raised.value.field, raised.value.position) == ("record_attributes", len(first) + 62)


@pytest.mark.parametrize("opened", [decode, decode_columns])
def test_a_broken_record_in_a_compressed_batch_names_both_places(opened):
    broken = encode([b"value", b"value"], timestamps=0)
    broken[61 + 12] = 1  # a negative length, of the second record
    batch = _kernel.fold(broken, codecs.fold(Codec.LZ4, broken[61:]), Codec.LZ4)
    with pytest.raises(CorruptBatch, match="at byte 12 when unfolded") as raised:
        opened(b"".join([encode([b"x"], timestamps=0), batch]))
    assert (raised.value.field, raised.value.position) == (
        "record_length",
        len(encode([b"x"], timestamps=0)) + 61,
    )


@pytest.mark.parametrize("opened", [decode, decode_columns])
def test_an_incomplete_batch_at_the_end_is_refused(opened):
    with pytest.raises(CorruptBatch):
        opened(several()[:-1])


def test_every_column_has_a_name():
    assert Record._fields == COLUMNS
