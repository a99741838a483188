"""Outside proof of the batch format: kafka-python and aiokafka read our batches, and we read theirs."""

from __future__ import annotations

from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaMemory
from kafka.record.memory_records import MemoryRecords as KafkaPythonMemory

from ringlog.model import Codec
from ringlog.records.decode import Record, decode
from ringlog.records.encode import encode, encode_empty
from ringlog.records.scan import check, stamp

RECORDS = [
    Record(0, 1_700_000_000_000, b"lamp", b"on", [("room", b"hall"), ("höhe", None)]),
    Record(1, 1_699_999_999_123, None, b"a value without a key", []),
    Record(2, 1_700_000_000_777, b"a tombstone", None, []),
    Record(3, 1_700_000_000_001, b"", b"", [("", b"")]),
    Record(4, 1_700_000_000_002, None, b"long " * 20_000, [("seen", b"\x00\xff")]),
    Record(5, 1_700_000_000_003, bytes(range(256)), None, []),
]

# aiokafka has two parsers: the compiled one and the Python one beside it.
READERS = {
    "kafka-python": kafka_python_records.DefaultRecordBatch,
    "aiokafka": aiokafka_records.DefaultRecordBatch,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchPy,
}
BUILDERS = {
    "kafka-python": kafka_python_records.DefaultRecordBatchBuilder,
    "aiokafka": aiokafka_records.DefaultRecordBatchBuilder,
    "aiokafka in Python": aiokafka_records._DefaultRecordBatchBuilderPy,
}
MEMORIES = {"kafka-python": KafkaPythonMemory, "aiokafka": AiokafkaMemory}

readers = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
builders = pytest.mark.parametrize("builder", BUILDERS.values(), ids=BUILDERS)
codecs = pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())


def ours(**keywords: Any) -> bytearray:
    return encode(
        [record.value for record in RECORDS],
        [record.key for record in RECORDS],
        [record.headers for record in RECORDS],
        timestamps=[record.timestamp for record in RECORDS],
        **keywords,
    )


def theirs(
    builder: Any, codec: Codec, *, transactional: bool = False, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytes:
    building = builder(2, int(codec), int(transactional), *producer, 1 << 20)
    for record in RECORDS:
        headers = [(key, value) for key, value in record.headers]
        assert building.append(record.offset, record.timestamp, record.key, record.value, headers) is not None
    return bytes(building.build())


def as_records(batch: Any) -> list[Record]:
    return [
        Record(record.offset, record.timestamp, record.key, record.value, list(record.headers))
        for record in batch
    ]


@readers
@codecs
def test_others_read_our_records(reader, codec):
    batch = reader(bytes(ours(codec=codec)))
    assert batch.validate_crc()
    assert batch.compression_type == codec
    assert as_records(batch) == RECORDS


@builders
@codecs
def test_we_read_the_records_of_others(builder, codec):
    batch = theirs(builder, codec)
    assert check(batch, gapless=True)["attributes"].tolist() == [codec]
    assert list(decode(batch)) == RECORDS


@builders
def test_an_uncompressed_batch_of_others_is_ours_byte_for_byte(builder):
    batch = bytearray(theirs(builder, Codec.NONE, transactional=True, producer=(77, 5, 1234)))
    mine = ours(producer_id=77, producer_epoch=5, base_sequence=1234, transactional=True)
    # They write what they like where a broker stamps the leader epoch.
    stamp(batch, base_offset=0, leader_epoch=-1)
    assert batch == mine


@readers
def test_others_read_our_producer_state_and_transactional_bit(reader):
    batch = reader(
        bytes(
            ours(
                producer_id=2**40,
                producer_epoch=321,
                base_sequence=2**31 - 1,
                transactional=True,
                leader_epoch=9,
                base_offset=2**33,
            )
        )
    )
    assert batch.producer_id == 2**40
    assert batch.producer_epoch == 321
    assert batch.base_sequence == 2**31 - 1
    assert batch.is_transactional
    assert not batch.is_control_batch
    assert batch.base_offset == 2**33
    assert [record.offset for record in batch] == [2**33 + i for i in range(len(RECORDS))]


@builders
def test_we_read_the_producer_state_and_transactional_bit_of_others(builder):
    row = check(theirs(builder, Codec.GZIP, transactional=True, producer=(2**40, 321, 17)))[0]
    assert (row["producer_id"], row["producer_epoch"], row["base_sequence"]) == (2**40, 321, 17)
    assert row["attributes"] == Codec.GZIP | 1 << 4


@readers
def test_others_read_our_append_time(reader):
    written = ours()
    stamp(written, base_offset=0, leader_epoch=0, append_time_ms=1_800_000_000_000)
    batch = reader(bytes(written))
    assert batch.validate_crc()
    assert batch.timestamp_type == 1
    assert {record.timestamp for record in batch} == {1_800_000_000_000}


@readers
def test_others_read_our_create_time(reader):
    batch = reader(bytes(ours()))
    assert batch.timestamp_type == 0
    assert batch.first_timestamp == RECORDS[0].timestamp
    assert batch.max_timestamp == max(record.timestamp for record in RECORDS)


@pytest.mark.parametrize("name", MEMORIES)
def test_others_walk_several_of_our_batches_with_an_empty_one_between(name):
    empty = encode_empty(
        base_offset=6, last_offset=9, producer_id=3, producer_epoch=1, base_sequence=8, leader_epoch=2
    )
    data = ours() + empty + ours(base_offset=10, codec=Codec.LZ4)
    walk = MEMORIES[name](bytes(data))
    found = []
    while (batch := walk.next_batch()) is not None:
        assert batch.validate_crc()
        found.append((batch.base_offset, [record.offset for record in batch]))
    assert found == [(0, list(range(6))), (6, []), (10, list(range(10, 16)))]


@builders
def test_a_batch_of_others_is_stamped_and_read_at_its_new_offsets(builder):
    batch = bytearray(theirs(builder, Codec.ZSTD))
    assert stamp(batch, base_offset=500, leader_epoch=4) == 506
    assert [record.offset for record in decode(batch)] == list(range(500, 506))


@readers
def test_others_see_our_control_batch(reader):
    abort = encode([b"\x00\x00\x00\x00\x00\x07"], [b"\x00\x00\x00\x00"], timestamps=5, control=True)
    assert reader(bytes(abort)).is_control_batch
