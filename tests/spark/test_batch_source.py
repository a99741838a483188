"""Batch reads with a real Spark from a real node: every record, exactly as it was produced."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.ipc
import pytest

import ringlog
from ringlog.model import Codec
from ringlog.records.encode import encode
from tests.support.raw_client import RawClient
from tests.support.spark_queries import create, every_place, fill, reader

pytestmark = pytest.mark.timeout(600)


def test_a_batch_read_has_every_record_as_it_was_produced(spark, ringlog_node):
    with ringlog.Producer(bootstrap=ringlog_node.bootstrap) as producer:
        producer.produce("orders", None, key=None, partition=0, timestamp=1_000).result(10)
        producer.produce(
            "orders", b"", key=b"", headers={"from": b"web", "none": None}, partition=1, timestamp=2_000
        ).result(10)
        producer.produce_many("orders", [b"order %d" % n for n in range(10_000)]).result(10)
    large = b"x" * (10 << 20)
    with RawClient(f"tcp://{ringlog_node.bootstrap}") as client:
        place = client.partition_ids("orders")[2]
        client.produce_bytes(place, bytes(encode([large], timestamps=3_000, codec=Codec.ZSTD)))
    rows = reader(spark, ringlog_node, subscribe="orders", includeHeaders="true").collect()

    assert len(rows) == 10_003
    first = next(row for row in rows if row.partition == 0 and row.offset == 0)
    assert (first.key, first.value, first.headers, first.topic) == (None, None, [], "orders")
    assert (first.timestamp.timestamp(), first.timestampType) == (1.0, 0)
    second = next(row for row in rows if row.partition == 1 and row.offset == 0)
    assert (bytes(second.key), bytes(second.value)) == (b"", b"")
    assert [(h.key, h.value and bytes(h.value)) for h in second.headers] == [("from", b"web"), ("none", None)]
    values = {bytes(row.value) for row in rows if row.value}
    assert values == {b"order %d" % n for n in range(10_000)} | {large}
    assert sorted((row.partition, row.offset) for row in rows) == every_place(ringlog_node, "orders")


def test_filters_columns_and_tasks_change_what_is_read_and_not_what_is_found(spark, ringlog_node):
    create(ringlog_node, "readings", 4)
    for at_ms in (1_000, 2_000, 3_000):
        for partition in range(4):
            fill(ringlog_node, "readings", 500, timestamps=at_ms, partition=partition)
    rows = reader(spark, ringlog_node, subscribe="readings", columns="partition,offset,timestamp")
    assert rows.columns == ["partition", "offset", "timestamp"]
    found = rows.filter("partition = 1 and offset >= 100 and offset < 1200").collect()
    assert sorted(row.offset for row in found) == list(range(100, 1200))
    late = rows.filter("timestamp >= timestamp '1970-01-01 00:00:02.5' and partition in (0, 3)")
    assert late.rdd.getNumPartitions() == 2
    assert sorted({(row.partition, row.timestamp.timestamp()) for row in late.collect()}) == [(0, 3), (3, 3)]
    assert late.count() == 1000

    many = reader(spark, ringlog_node, subscribe="readings", columns="partition,offset", minPartitions="9")
    assert many.rdd.getNumPartitions() >= 9
    assert sorted(map(tuple, many.collect())) == every_place(ringlog_node, "readings")
    ends = {"startingOffsets": '{"readings": {"2": 10}}', "endingOffsets": '{"readings": {"2": 13}}'}
    some = reader(spark, ringlog_node, assign='{"readings": [2]}', **ends)
    assert [row.offset for row in some.collect()] == [10, 11, 12]


def test_sixty_four_partitions_are_read_by_a_pattern(spark, ringlog_node):
    create(ringlog_node, "wide-orders", 64)
    for partition in range(64):
        fill(ringlog_node, "wide-orders", 10 + partition, partition=partition)
    fill(ringlog_node, "other", 5)
    rows = reader(spark, ringlog_node, subscribePattern="wide-.*", columns="partition,offset")
    assert sorted(map(tuple, rows.collect())) == every_place(ringlog_node, "wide-orders")


def test_values_become_columns(spark, ringlog_node):
    sink = pa.BufferOutputStream()
    table = pa.table({"user": ["ann", "bob"], "n": pa.array([1, 2], pa.int32())})
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with ringlog.Producer(bootstrap=ringlog_node.bootstrap) as producer:
        producer.produce("docs", b'{"user": "ann", "n": 1}', partition=0).result(10)
        producer.produce("docs", None, partition=0).result(10)
        producer.produce("tables", sink.getvalue().to_pybytes(), partition=0).result(10)
    shape = {"valueSchema": "user STRING, n INT", "columns": "value,offset"}
    rows = reader(spark, ringlog_node, subscribe="docs", valueFormat="json", **shape)
    assert [(row.value and tuple(row.value), row.offset) for row in rows.collect()] == [
        (("ann", 1), 0),
        (None, 1),
    ]
    assert rows.select("value.n").filter("n > 0").count() == 1
    rows = reader(spark, ringlog_node, subscribe="tables", valueFormat="arrow", **shape)
    assert [(tuple(row.value), row.offset) for row in rows.collect()] == [(("ann", 1), 0), (("bob", 2), 0)]


def test_a_bad_document_is_named_or_put_aside_as_the_query_says(spark, ringlog_node):
    with ringlog.Producer(bootstrap=ringlog_node.bootstrap) as producer:
        for value in (b'{"n": 1}', b"bad", b'{"n": 3}'):
            producer.produce("docs", value, partition=0)
    options = {"subscribe": "docs", "valueFormat": "json", "valueSchema": "n INT, _corrupt_record STRING"}
    with pytest.raises(Exception, match=r"docs-0, offset 1: .*mode=PERMISSIVE"):
        reader(spark, ringlog_node, **options).collect()
    rows = reader(spark, ringlog_node, mode="PERMISSIVE", **options).collect()
    assert [(row.offset, *row.value) for row in rows] == [(0, 1, None), (1, None, "bad"), (2, 3, None)]


def test_what_is_gone_is_named_or_skipped_as_the_query_says(spark, ringlog_node):
    create(ringlog_node, "short", 1)
    fill(ringlog_node, "short", 100)
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        admin.delete_records("short", {0: 40})
    options = {"subscribe": "short", "startingOffsets": '{"short": {"0": 25}}'}
    with pytest.raises(
        Exception, match=r"15 offsets of short-0 \[25, 40\) cannot be read: the log begins at 40"
    ):
        reader(spark, ringlog_node, **options).collect()
    rows = reader(spark, ringlog_node, failOnDataLoss="false", **options).collect()
    assert [row.offset for row in rows] == list(range(40, 100))


def test_an_error_of_an_option_reaches_the_user(spark, ringlog_node):
    logging.getLogger("py4j").setLevel(logging.ERROR)
    with pytest.raises(Exception, match="did you mean 'startingOffsets'"):
        reader(spark, ringlog_node, subscribe="orders", startingOffset="earliest")
