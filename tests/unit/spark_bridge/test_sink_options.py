"""The sink refuses on the driver what no task could write, and says what is right."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from ringlog.errors import InvalidRequest
from spark_bridge.sink_options import SinkOptions, check_schema, sink_options

TO_ORDERS = SinkOptions("orders", {})
FROM_COLUMN = SinkOptions(None, {})


def test_options_become_settings_of_the_producer_whatever_the_case_of_their_names():
    options = sink_options(
        {"TOPIC": "orders", "bootstrap": "h:9400", "compressiontype": "zstd", "deliveryTimeoutMs": "5000"}
    )
    assert options.topic == "orders"
    assert options.bootstrap == "h:9400"
    assert options.delivery_timeout_s == 5
    assert options.producer["compression_type"] == "zstd"
    assert options.producer["max_block_ms"] == 5000, "a full buffer is no error before the node is given up"


def test_what_spark_hands_on_of_its_own_is_no_option_of_the_sink():
    assert sink_options({"checkpointLocation": "/x", "topic": "orders"}).producer.keys() == {
        "bootstrap",
        "max_block_ms",
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topics": "orders"}, "did you mean 'topic'"),
        ({"kafka.bootstrap.servers": "h:9092"}, "did you mean 'bootstrap'"),
        ({"path": "orders"}, "did you mean 'topic'"),
        ({"topic": ""}, "option topic is empty"),
        ({"batchSize": "many"}, "option batchSize = 'many'"),
        ({"compressionType": "rar"}, "compression_type must be one of"),
        ({"bootstrap": "nowhere"}, "is no address"),
    ],
)
def test_an_option_that_is_wrong_is_answered_with_the_right_one(given, said):
    with pytest.raises(InvalidRequest, match=said):
        sink_options(given)


TEXT, BYTES, INT, LONG, TIME = StringType(), BinaryType(), IntegerType(), LongType(), TimestampType()
HEADERS = ArrayType(StructType().add("key", TEXT).add("value", BYTES))
TURNED_ROUND = ArrayType(StructType().add("value", BYTES).add("key", TEXT))


def schema_of(**columns: DataType) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema = schema.add(name, kind)
    return schema


@pytest.mark.parametrize(
    "columns",
    [
        {"value": TEXT},
        {"key": BYTES, "value": BYTES},
        {"key": TEXT, "value": BYTES, "partition": INT, "timestamp": TIME},
        {"value": TEXT, "headers": HEADERS},
    ],
)
def test_columns_that_can_be_written_are_taken(columns):
    check_schema(schema_of(**columns), TO_ORDERS, overwrite=False)
    check_schema(schema_of(topic=TEXT, **columns), FROM_COLUMN, overwrite=False)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": TEXT}, "no column 'value'"),
        ({"value": TEXT, "user": TEXT}, "knows no column 'user'"),
        ({"value": INT}, "column 'value' is int, but must be string or binary"),
        ({"value": TEXT, "partition": LONG}, "column 'partition' is bigint, but must be int"),
        ({"value": TEXT, "timestamp": LONG}, "column 'timestamp' is bigint, but must be timestamp"),
        ({"value": TEXT, "headers": MapType(TEXT, TEXT)}, "column 'headers' is map<string,string>"),
        ({"value": TEXT, "headers": TURNED_ROUND}, "column 'headers'"),
        ({"value": TEXT, "topic": BYTES}, "column 'topic' is binary"),
    ],
)
def test_columns_that_cannot_be_written_are_named(columns, said):
    with pytest.raises(InvalidRequest, match=said):
        check_schema(schema_of(**columns), TO_ORDERS, overwrite=False)


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(InvalidRequest, match="2 columns 'value'"):
        check_schema(StructType().add("value", TEXT).add("value", BYTES), TO_ORDERS, overwrite=False)


def test_records_need_a_topic():
    with pytest.raises(InvalidRequest, match="where to"):
        check_schema(schema_of(value=TEXT), FROM_COLUMN, overwrite=False)


def test_nothing_is_overwritten():
    with pytest.raises(InvalidRequest, match="only appended to"):
        check_schema(schema_of(value=TEXT), TO_ORDERS, overwrite=True)
