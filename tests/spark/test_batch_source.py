"""Batch reads with a real Spark from a real node: every record, exactly as it was produced."""

from __future__ import annotations

import ringlog


def test_a_batch_read_has_every_record_as_it_was_produced(spark, ringlog_node):
    with ringlog.Producer(bootstrap=ringlog_node.bootstrap) as producer:
        producer.produce("orders", None, key=None, partition=0, timestamp=1_000).result(10)
        producer.produce(
            "orders", b"", key=b"", headers={"from": b"web", "none": None}, partition=1, timestamp=2_000
        ).result(10)
        producer.produce_many("orders", [b"order %d" % n for n in range(10_000)]).result(10)
    read = spark.read.format("ringlog").option("bootstrap", ringlog_node.bootstrap)
    rows = read.option("subscribe", "orders").option("includeHeaders", "true").load().collect()

    assert len(rows) == 10_002
    first = next(row for row in rows if row.partition == 0 and row.offset == 0)
    assert (first.key, first.value, first.headers, first.topic) == (None, None, [], "orders")
    assert (first.timestamp.timestamp(), first.timestampType) == (1.0, 0)
    second = next(row for row in rows if row.partition == 1 and row.offset == 0)
    assert (bytes(second.key), bytes(second.value)) == (b"", b"")
    assert [(h.key, h.value and bytes(h.value)) for h in second.headers] == [("from", b"web"), ("none", None)]
    values = {bytes(row.value) for row in rows if row.value}
    assert values == {b"order %d" % n for n in range(10_000)}
    assert len({(row.partition, row.offset) for row in rows}) == 10_002
