"""Records of a consumer: fields decode as the whole record would, and a copy stands for itself."""

from __future__ import annotations

import gc
import pickle

import pytest
from hypothesis import given

from ringlog.client.chunk import Chunk
from ringlog.client.records import ConsumerRecord, Source, records_of
from ringlog.errors import CorruptBatch
from ringlog.model import Codec, TopicPartition
from ringlog.native import _kernel
from ringlog.records.decode import decode
from ringlog.records.encode import encode
from tests.support.batches import buffers

TP = TopicPartition("t", 3)


def batch(base: int, values: list[bytes], **more) -> bytes:
    return bytes(encode(values, timestamps=17, base_offset=base, **more))


def opened(data: bytes) -> list[ConsumerRecord]:
    records = decode(data)
    return records_of(Source(*TP, records), 0, len(records))


@given(buffers())
def test_single_fields_are_those_of_the_whole_record(data):
    wanted = [tuple(record) for record in decode(data)]
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in opened(data)] == wanted


@given(buffers())
def test_a_record_is_found_by_its_offset(data):
    offsets = [record.offset for record in decode(data)]
    if offsets != sorted(offsets):
        return
    index = decode(data).fields
    for i, offset in enumerate(offsets):
        assert offsets[index.find(offset)] == offset
        assert index.find(offset + 1) == next(
            (j for j in range(i, len(offsets)) if offsets[j] > offset), len(offsets)
        )


def test_a_field_of_no_record_is_an_index_error():
    index = decode(batch(0, [b"a"])).fields
    for field in (index.offset, index.timestamp, index.key, index.value, index.headers):
        for i in (-1, 1):
            with pytest.raises(IndexError):
                field(i)


def test_pairs_are_made_only_of_tuples_without_fields_of_their_own():
    class WithDict(tuple):
        pass

    for wrong in (list, int, WithDict):
        with pytest.raises(TypeError):
            _kernel.tuple_pairs(wrong, None, 0, 1)
    assert _kernel.tuple_pairs(tuple, "owner", 2, 4) == [("owner", 2), ("owner", 3)]
    assert _kernel.tuple_pairs(tuple, "owner", 4, 2) == []


def test_the_collector_does_not_look_at_records():
    assert not any(gc.is_tracked(record) for record in opened(batch(0, [b"a"] * 10)))


def test_a_record_is_equal_to_its_copy_and_survives_pickling():
    record = opened(batch(5, [b"on"], keys=[b"lamp"], headers=[[("by", None)]]))[0]
    for other in (record.copy(), pickle.loads(pickle.dumps(record))):
        assert other == record
        assert hash(other) == hash(record)
        assert repr(other) == repr(record)
    assert record != opened(batch(5, [b"off"], keys=[b"lamp"], headers=[[("by", None)]]))[0]
    assert "offset=5" in repr(record)
    assert "b'on'" in repr(record)


def test_a_copy_does_not_keep_the_fetched_buffer():
    buffer = bytearray(batch(0, [b"a", b"b"]))
    record = opened(buffer)[1].copy()
    buffer.clear()  # a buffer that someone holds cannot be resized
    assert record.value == b"b"


def test_a_chunk_begins_at_the_position_not_where_its_first_batch_does():
    chunk = Chunk(TP, memoryview(batch(10, [b"a", b"b", b"c"])), 13)
    assert [r.offset for r in chunk.take(11, None)[0]] == [11, 12]
    assert chunk.take_arrow(11, None)[0]["offset"].to_pylist() == [11, 12]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_chunk_is_taken_in_parts_as_records_and_as_arrow_in_turn(codec):
    data = batch(10, [b"a", b"b"], codec=codec) + batch(12, [b"c", b"d"], codec=codec)
    chunk = Chunk(TP, memoryview(data), 14)
    first, position = chunk.take(10, 1)
    middle, position = chunk.take_arrow(position, 2)
    last, position = chunk.take(position, 5)
    assert [r.value for r in first] + middle["value"].to_pylist() + [r.value for r in last] == [
        b"a",
        b"b",
        b"c",
        b"d",
    ]
    assert position == 14


def test_a_chunk_of_control_records_moves_the_position_alone():
    chunk = Chunk(TP, memoryview(batch(10, [b"a"], control=True)), 11)
    assert chunk.take(10, None) == ([], 11)
    assert chunk.take_arrow(10, None)[0].num_rows == 0


def test_a_chunk_whose_crc_is_wrong_is_refused():
    data = bytearray(batch(0, [b"abc"]))
    data[-2] ^= 1
    chunk = Chunk(TP, memoryview(data), 1)
    with pytest.raises(CorruptBatch):
        chunk.take(0, None)
    with pytest.raises(CorruptBatch):
        chunk.take_arrow(0, None)


def test_arrow_has_all_columns_of_a_record():
    data = batch(5, [b"on", None], keys=[b"lamp", None], headers=[[("by", b"ann")], []])
    table = Chunk(TP, memoryview(data), 7).take_arrow(5, None)[0]
    table.validate(full=True)
    rows = table.to_pylist()
    assert rows[0].pop("timestamp").timestamp() == 0.017
    assert rows[0] == {
        "topic": "t",
        "partition": 3,
        "offset": 5,
        "key": b"lamp",
        "value": b"on",
        "headers": [{"key": "by", "value": b"ann"}],
    }
    assert (rows[1]["key"], rows[1]["value"], rows[1]["headers"]) == (None, None, [])
