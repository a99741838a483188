"""Fetched batches as Arrow: what the columns hold, and who owns their memory."""

from __future__ import annotations

import gc
import threading

import pyarrow as pa
import pytest
from hypothesis import given

from ringlog.client.arrow import SCHEMA, open_batches
from ringlog.errors import InvalidRequest
from ringlog.model import TopicPartition
from ringlog.native import _kernel
from ringlog.records.codecs import Codec
from ringlog.records.decode import checked, decode_columns
from ringlog.records.encode import encode
from tests.support.batches import record_lists

TP = TopicPartition("lamps", 7)


@given(record_lists())
def test_the_columns_are_those_of_decode_columns_behind_topic_and_partition(records):
    records["timestamps"] = [abs(time) % 2**41 for time in records["timestamps"]]
    data = encode(**records)
    opened = open_batches(TP, memoryview(data)).batch
    opened.validate(full=True)
    assert opened.schema == SCHEMA
    assert opened["topic"].to_pylist() == ["lamps"] * len(records["values"])
    assert opened["partition"].to_pylist() == [7] * len(records["values"])
    twin = pa.record_batch(decode_columns(data))
    assert opened.select(twin.schema.names).equals(twin)


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_of_any_codec_follow_each_other_in_one_record_batch(codec):
    data = encode([b"a", None], timestamps=1, base_offset=5, codec=codec)
    data += encode([b"c"], keys=[b"k"], headers=[[("h", None)]], timestamps=2, base_offset=7, codec=codec)
    opened = open_batches(TP, memoryview(data))
    assert opened.first_offset == 5
    opened.batch.validate(full=True)
    assert opened.batch["offset"].to_pylist() == [5, 6, 7]
    assert opened.batch["value"].to_pylist() == [b"a", None, b"c"]
    assert opened.batch["key"].null_count == 2


def test_no_batches_are_no_rows():
    batch = open_batches(TP, memoryview(b"")).batch
    batch.validate(full=True)
    assert (batch.num_rows, batch.schema) == (0, SCHEMA)


def test_nothing_points_into_what_was_fetched():
    buffer = bytearray(encode([b"a", b"b"], timestamps=0))
    batch = open_batches(TP, memoryview(buffer)).batch
    gc.collect()
    buffer.clear()  # a buffer that someone holds cannot be resized
    assert batch["value"].to_pylist() == [b"a", b"b"]


def test_a_column_outlives_its_batch_and_may_end_on_another_thread():
    column = open_batches(TP, memoryview(encode([b"x" * 1000] * 100, timestamps=0))).batch["value"]
    churn = [open_batches(TP, memoryview(encode([b"y" * 1000] * 100, timestamps=0))) for _ in range(20)]
    del churn
    assert column.to_pylist() == [b"x" * 1000] * 100
    kept = [column]
    del column
    ending = threading.Thread(target=kept.clear)
    ending.start()
    ending.join()


def test_a_topic_that_had_fewer_records_before_is_repeated_as_often_as_needed():
    small = open_batches(TP, memoryview(encode([b""], timestamps=0))).batch
    large = open_batches(TP, memoryview(encode([b""] * 40_000, timestamps=0))).batch
    assert small["topic"].to_pylist() == ["lamps"]
    assert large["topic"].unique().to_pylist() == ["lamps"]
    assert len(large["topic"]) == 40_000


def test_columns_that_nobody_takes_over_are_given_back():
    data = encode([b"x" * 1_000_000], timestamps=0)
    rows = checked(data)[0]
    topic = _kernel.TopicText("t")
    before = _resident_bytes()
    for _ in range(500):
        _kernel.ArrowRecords(data, rows, None, topic, 0)
    assert _resident_bytes() - before < 100_000_000


def test_a_column_of_more_than_two_gibibytes_is_refused():
    data = encode([b""] * 200, timestamps=0)
    with pytest.raises(InvalidRequest, match="2 GiB"):
        open_batches(TopicPartition("x" * (16 << 20), 0), memoryview(data))


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
