"""Batch writes with a real Spark to a real node: every row once, where and as its columns say."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

import ringlog
from ringlog.errors import UnknownTopic
from ringlog.records.partitioner import partition_for
from spark_bridge.sink_options import sink_options
from spark_bridge.sink_task import send_all
from tests.support.node import NodeProcess, wait_for
from tests.support.patience import stretched
from tests.support.topics import read_topic

HEADERS = "array<struct<key:string,value:binary>>"


@pytest.fixture
def orders(ringlog_node) -> str:
    """A topic of four partitions; its node's address."""
    with ringlog.Admin(ringlog_node.bootstrap) as admin:
        admin.create_topic("orders", 4)
    return ringlog_node.bootstrap


def write(frame, bootstrap: str, **options: str) -> None:
    frame.write.format("ringlog").option("bootstrap", bootstrap).options(**options).mode("append").save()


def test_a_task_whose_topic_is_deleted_fails_at_once_and_not_when_its_rows_are_late(orders):
    def batches():
        rows = pa.record_batch({"value": pa.array([b"x" * 100] * 1000)})
        yield rows
        with ringlog.Admin(orders) as admin:
            admin.delete_topic("orders")
        began.append(time.monotonic())
        yield rows

    began: list[float] = []
    with pytest.raises(UnknownTopic, match="orders"):
        send_all(batches(), sink_options({"bootstrap": orders, "topic": "orders"}))
    assert time.monotonic() - began[0] < stretched(5.0)


def test_every_row_is_written_once_to_the_partition_of_its_key(spark, orders):
    frame = spark.range(0, 50_000, 1, 3).selectExpr(
        "CAST(id % 1000 AS string) key", "CAST(id AS string) value"
    )
    write(frame, orders, topic="orders")
    found = read_topic(orders, "orders")
    numbers = [int(value) for value in found["value"].to_pylist()]
    assert sorted(numbers) == list(range(50_000))
    for key, number, partition in zip(
        found["key"].to_pylist(), numbers, found["partition"].to_pylist(), strict=True
    ):
        assert key == str(number % 1000).encode()
        assert partition == partition_for(key, 4)


def test_topic_partition_headers_and_time_are_those_of_the_columns(spark, orders):
    at = datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)
    rows = [
        ("orders", 2, b"k", b"v", [("a", b"1"), ("a", None)], at),
        ("orders", 0, None, None, None, at),
        ("refunds", None, b"", b"", [], None),
    ]
    schema = f"topic string, partition int, key binary, value binary, headers {HEADERS}, timestamp timestamp"
    before_ms = time.time_ns() // 1_000_000
    write(spark.createDataFrame(rows, schema), orders)

    found = {row["partition"]: row for row in read_topic(orders, "orders").to_pylist()}
    assert found.keys() == {0, 2}
    assert (found[2]["key"], found[2]["value"], found[2]["timestamp"]) == (b"k", b"v", at)
    assert found[2]["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert (found[0]["key"], found[0]["value"], found[0]["headers"]) == (None, None, [])
    (refund,) = read_topic(orders, "refunds").to_pylist()
    assert (refund["key"], refund["value"]) == (b"", b"")
    assert refund["timestamp"].timestamp() * 1000 >= before_ms


def test_what_was_written_is_read_back_by_the_source(spark, orders):
    write(spark.range(1000).selectExpr("CAST(id AS string) value"), orders, topic="orders")
    read = spark.read.format("ringlog").option("bootstrap", orders).option("subscribe", "orders").load()
    assert read.select(F.sum(F.expr("CAST(CAST(value AS string) AS int)"))).head()[0] == 499_500


def test_records_of_0_bytes_and_of_10_mb_arrive(spark, orders):
    lengths = spark.createDataFrame([(0,), (10_000_000,)], "length int")
    write(
        lengths.select(F.expr("repeat('x', length) AS value")), orders, topic="orders", compressionType="zstd"
    )
    values = read_topic(orders, "orders")["value"].to_pylist()
    assert sorted(values) == [b"", b"x" * 10_000_000]


def test_a_record_that_no_frame_holds_fails_at_once_and_says_what_helps(spark, orders):
    frame = spark.range(1).selectExpr("repeat('x', 10000000) AS value")
    with pytest.raises(PySparkException, match="Set compression_type"):
        write(frame, orders, topic="orders")


def test_a_shard_killed_in_mid_write_loses_and_repeats_nothing(spark, tmp_path):
    frame = spark.range(0, 400_000, 1, 4).selectExpr(
        "CAST(id AS string) key", "concat(CAST(id AS string), repeat('x', 100)) value"
    )
    with NodeProcess(str(tmp_path / "node")) as node, ThreadPoolExecutor(1) as beside:
        with ringlog.Admin(node.bootstrap) as admin:
            admin.create_topic("orders", 4)

            def records() -> int:
                return sum(one.next_offset for one in admin.describe_topic("orders").partitions)

            def kill_in_the_middle() -> int:
                wait_for("records", records, 60)
                there = records()
                node.kill("shard")
                return there

            # Not the other way round: a thread of ours has no session of Spark's, where the format is known.
            killed_at = beside.submit(kill_in_the_middle)
            write(frame, node.bootstrap, topic="orders")
            assert killed_at.result(60) < 400_000, "the kill came in mid-write"
        keys = read_topic(node.bootstrap, "orders")["key"]
    assert len(keys) == 400_000
    assert len(keys.unique()) == 400_000


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("id", {"topic": "orders"}, "knows no column 'id'"),
        ("CAST(id AS string) value", {"topics": "orders"}, "did you mean 'topic'"),
        ("CAST(id AS string) value, -1 partition", {"topic": "orders"}, "they begin at 0"),
        ("CAST(id AS string) value, 4 partition", {"topic": "orders"}, "partition 4: topic"),
    ],
)
def test_what_cannot_be_written_is_an_error_that_says_why(spark, orders, columns, options, said):
    with pytest.raises(PySparkException, match=said):
        write(spark.range(1).selectExpr(*columns.split(", ")), orders, **options)
    assert read_topic(orders, "orders").num_rows == 0


def test_a_log_is_not_overwritten(spark, orders):
    frame = spark.range(1).selectExpr("CAST(id AS string) value")
    with pytest.raises(PySparkException, match="only appended to"):
        frame.write.format("ringlog").option("bootstrap", orders).option("topic", "orders").mode(
            "overwrite"
        ).save()
