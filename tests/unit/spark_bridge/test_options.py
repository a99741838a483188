"""Options of the Spark source: Kafka's names, and errors that name the right one."""

from __future__ import annotations

import pytest

from ringlog.errors import InvalidRequest
from ringlog.model import TopicPartition
from spark_bridge.options import EARLIEST, LATEST, source_options
from spark_bridge.sink_options import sink_options


def test_a_query_needs_one_name_only():
    options = source_options({"subscribe": "orders, returns"}, streaming=True)
    assert options.subscribe == ("orders", "returns")
    assert (options.starting, options.ending) == (LATEST, LATEST)
    assert options.fail_on_data_loss
    assert options.columns[-1] == "timestampType"


def test_a_batch_read_begins_at_the_beginning():
    assert source_options({"subscribe": "orders"}, streaming=False).starting == EARLIEST


def test_the_case_of_letters_does_not_matter():
    options = source_options({"SUBSCRIBE": "orders", "includeheaders": "TRUE", "FailOnDataLoss": "False"})
    assert options.columns[-1] == "headers"
    assert not options.fail_on_data_loss


def test_offsets_come_as_kafkas_users_write_them():
    given = {"assign": '{"orders": [0, 1]}', "startingOffsets": '{"orders": {"0": 23, "1": -2}}'}
    options = source_options(given, streaming=True)
    assert options.assign == (TopicPartition("orders", 0), TopicPartition("orders", 1))
    assert options.starting == {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): EARLIEST}


def test_columns_keep_the_order_of_the_schema():
    options = source_options({"subscribe": "orders", "columns": "offset, VALUE"})
    assert options.columns == ("value", "offset")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "'subscribe', 'subscribePattern' or 'assign'"),
        ({"subscribe": "a", "subscribePattern": "b"}, "'subscribe' and 'subscribePattern' contradict"),
        ({"subscribe": " , "}, "'subscribe' is empty"),
        ({"kafka.bootstrap.servers": "x:1"}, "did you mean 'bootstrap'"),
        ({"subscribe": "a", "kafka.group.id": "g"}, "did you mean 'groupId'"),
        ({"subscribe": "a", "maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": "{}"}, "did you mean 'startingTimestamp'"),
        ({"path": "a"}, "did you mean 'subscribe'"),
        ({"subscribe": "a", "bootstrap": "nowhere"}, "host:port"),
        ({"subscribe": "a", "bridge": "nowhere"}, "'bridge' is auto, off or an address"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, "'failOnDataLoss' must be true or false"),
        ({"subscribe": "a", "minPartitions": "0"}, "'minPartitions' must be a number from 1 on"),
        ({"subscribe": "a", "minPartitions": "²"}, "'minPartitions' must be a number"),
        ({"subscribe": "a", "minPartitions": "many"}, "'minPartitions' must be a number"),
        ({"subscribe": "a", "startingTimestamp": "-5"}, "'startingTimestamp' must be a number from 0 on"),
        ({"subscribe": "a", "startingOffsets": "first"}, "'startingOffsets' must be JSON such as"),
        ({"subscribe": "a", "startingOffsets": '{"a": 5}'}, "'a' needs offsets by partition"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "needs an offset from -2 on"),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "needs an offset from -1 on"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "nothing ends at earliest"),
        ({"subscribe": "a", "startingOffsets": "latest", "startingTimestamp": "5"}, "contradict"),
        ({"subscribe": "a", "endingOffsets": "latest", "endingTimestamp": "5"}, "contradict"),
        ({"subscribe": "a", "startingTimestamp": "9", "endingTimestamp": "5"}, "9 is after 5"),
        (
            {
                "subscribe": "a",
                "startingOffsets": '{"a": {"0": 9, "1": -2}}',
                "endingOffsets": '{"a": {"0": 5, "1": 0}}',
            },
            "a-0 would begin at 9 and end at 5",
        ),
        (
            {"subscribe": "a", "columns": "key", "valueFormat": "json", "valueSchema": "a INT"},
            "'columns' leaves out 'value'",
        ),
        ({"assign": '{"a": "0"}'}, "'a' needs a list of partitions"),
        ({"assign": "[]"}, "'assign' must be JSON such as"),
        ({"subscribe": "a", "columns": "vlaue"}, "there is no 'vlaue'; there are key, value"),
        ({"subscribe": "a", "valueFormat": "avro"}, "must be one of binary, json, arrow"),
        ({"subscribe": "a", "valueFormat": "json"}, "needs 'valueSchema'"),
        ({"subscribe": "a", "valueSchema": "a INT"}, "needs 'valueFormat'"),
        ({"subscribe": "a", "mode": "PERMISSIVE"}, "'mode' needs 'valueFormat'"),
        (
            {"subscribe": "a", "valueFormat": "json", "valueSchema": "a INT", "mode": "lenient"},
            "'mode' must be one of FAILFAST, PERMISSIVE, DROPMALFORMED, not 'lenient'",
        ),
    ],
)
def test_a_wrong_option_is_named_with_the_right_one(given, said):
    with pytest.raises(InvalidRequest) as raised:
        source_options(given)
    assert said in str(raised.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(name):
    value = "latest" if name == "endingOffsets" else "5"
    with pytest.raises(InvalidRequest, match=f"'{name}' is for batch reads"):
        source_options({"subscribe": "a", name: value}, streaming=True)


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "groupId"])
def test_a_batch_read_makes_no_progress(name):
    with pytest.raises(InvalidRequest, match=f"'{name}' is for streams"):
        source_options({"subscribe": "a", name: "5"}, streaming=False)


def test_bad_values_end_a_query_unless_it_says_otherwise():
    given = {"subscribe": "a", "valueFormat": "JSON", "valueSchema": "a INT"}
    assert source_options(given).mode == "FAILFAST"
    assert source_options({**given, "mode": "dropMalformed"}).mode == "DROPMALFORMED"


def test_the_address_follows_the_environment_of_the_driver(monkeypatch):
    monkeypatch.setenv("RINGLOG_BOOTSTRAP", "db1:9500")
    assert source_options({"subscribe": "orders"}).bootstrap == "db1:9500"
    assert sink_options({"topic": "orders"}).producer["bootstrap"] == "db1:9500"
    assert source_options({"subscribe": "orders", "bootstrap": "db2:1"}).bootstrap == "db2:1"
