"""Batches of the log as the rows of a query: all columns, also of a part of a batch."""

from __future__ import annotations

import pyarrow as pa

from ringlog.model import TopicPartition
from ringlog.records.encode import encode
from spark_bridge.arrow_rows import RowMaker, decoded, decoded_columns, decoded_schema, within
from spark_bridge.bad_values import DROP, NULL

TP = TopicPartition("orders", 3)
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.field("element", HEADER))),
    ]
)


def batches():
    headers = [[("n", b"%d" % n)] * n for n in range(5)]
    first = encode([b"a", None, b"c", b"", b"e"], headers=headers, timestamps=1_000, base_offset=10)
    return memoryview(bytes(first + encode([b"f", b"g"], timestamps=2_000, base_offset=15, append_time=True)))


def rows(start, end, schema=SCHEMA):
    made = decoded(batches(), decoded_columns(schema.names))
    found = RowMaker(TP, schema, "binary").rows(within(made, start, end))
    assert found.schema.equals(schema)
    found.validate(full=True)
    return found.to_pylist()


def test_a_part_of_a_batch_has_its_own_values_and_headers():
    found = rows(11, 14)
    assert [row["offset"] for row in found] == [11, 12, 13]
    assert [row["value"] for row in found] == [None, b"c", b""]
    assert [row["headers"] for row in found] == [[{"key": "n", "value": b"%d" % n}] * n for n in (1, 2, 3)]
    assert {(row["topic"], row["partition"]) for row in found} == {("orders", 3)}


def test_the_time_says_whose_it_is():
    found = rows(14, 17)
    assert [row["timestampType"] for row in found] == [0, 1, 1]
    assert [row["timestamp"].timestamp() for row in found] == [1.0, 2.0, 2.0]


def test_only_the_columns_that_are_wanted_are_decoded():
    assert decoded_columns(("partition", "key")) == ("offset", "key")
    some = pa.schema([SCHEMA.field("partition"), SCHEMA.field("key")])
    assert rows(10, 12, some) == [{"partition": 3, "key": None}] * 2


def test_what_travels_through_a_bridge_is_the_same():
    columns = decoded_columns(SCHEMA.names)
    made = decoded(batches(), columns)
    assert made.schema.equals(decoded_schema(columns))
    back = pa.ipc.read_record_batch(made.serialize(), decoded_schema(columns))
    assert back.equals(made)


def test_a_row_whose_value_is_left_out_takes_none_of_its_neighbours_along():
    schema = pa.schema(
        [SCHEMA.field("key"), pa.field("value", pa.struct([("n", pa.int64())])), SCHEMA.field("offset")]
    )
    data = encode([b'{"n": 1}', b"bad", b'{"n": 3}'], keys=[b"a", b"b", b"c"], timestamps=1, base_offset=10)
    made = decoded(memoryview(bytes(data)), decoded_columns(schema.names))
    one, three = (
        {"key": b"a", "value": {"n": 1}, "offset": 10},
        {"key": b"c", "value": {"n": 3}, "offset": 12},
    )
    assert RowMaker(TP, schema, "json", DROP).rows(made).to_pylist() == [one, three]
    bad = {"key": b"b", "value": None, "offset": 11}
    assert RowMaker(TP, schema, "json", NULL).rows(made).to_pylist() == [one, bad, three]
