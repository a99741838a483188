"""A stream reader called as Spark calls it, without Spark: one topic `orders`, and what its micro-batches hold."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

import ringlog

SCHEMA = StructType([StructField("partition", IntegerType()), StructField("offset", LongType())])


def fill(node: Any, count: int, partition: int = 0) -> None:
    """Produce so many small records."""
    with ringlog.Producer(bootstrap=node.bootstrap) as producer:
        producer.produce_many("orders", [b"%d" % n for n in range(count)], partition=partition).result(30)


def create(node: Any, partitions: int = 2) -> None:
    """Make the topic."""
    with ringlog.Admin(bootstrap=node.bootstrap) as admin:
        admin.create_topic("orders", partitions)


def delete(node: Any) -> None:
    """Delete the topic."""
    with ringlog.Admin(bootstrap=node.bootstrap) as admin:
        admin.delete_topic("orders")


def batch(reader: Any, start: Any, limit: Any = None) -> tuple[Any, list[tuple[int, int]]]:
    """One micro-batch: where it ends, and its rows."""
    end = json.loads(json.dumps(reader.latestOffset(start, limit or ReadAllAvailable())))
    return end, rows_between(reader, start, end)


def rows_between(reader: Any, start: Any, end: Any) -> list[tuple[int, int]]:
    """(partition, offset) of the rows of a micro-batch that is planned, perhaps again."""
    rows: list[tuple[int, int]] = []
    for part in reader.partitions(start, end):
        for found in reader.read(part):
            places = found.column("partition").to_pylist(), found.column("offset").to_pylist()
            rows += zip(*places, strict=True)
    return sorted(rows)


def offsets_of(batches: Iterable[Any]) -> list[int]:
    """Of all rows."""
    return [at for one in batches for at in one.column("offset").to_pylist()]


def lost_groups(node: Any) -> dict[str, dict[int, str]]:
    """What tasks have noted on the node, and nobody collected yet."""
    with ringlog.Admin(bootstrap=node.bootstrap) as admin:
        return {
            group.group_id: {
                tp.partition: at.metadata for tp, at in admin.group_offsets(group.group_id).items()
            }
            for group in admin.list_groups()
            if group.group_id.startswith("spark-lost-")
        }
