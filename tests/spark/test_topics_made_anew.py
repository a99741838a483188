"""A topic is deleted, and perhaps made anew under its name, while a query is at work: records of the one are never
taken for those of the other."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import ringlog
from ringlog.errors import DataLoss, UnknownTopic
from tests.support.spark_queries import BridgeProcess
from tests.support.stream_calls import (
    batch,
    create,
    delete,
    fill,
    lost_groups,
    offsets_of,
    rows_between,
)

OLD, NEW = 20, 60


@pytest.fixture
def planned(ringlog_node, reader_of):
    """A reader that loses data if it must, and a micro-batch of it: where it begins and ends."""
    create(ringlog_node, 1)
    fill(ringlog_node, OLD)
    reader = reader_of(failOnDataLoss="false")
    start = reader.initialOffset()
    return reader, start, reader.latestOffset(start, ReadAllAvailable())


def make_anew(node):
    delete(node)
    create(node, 1)
    fill(node, NEW)


def test_a_micro_batch_that_is_planned_again_has_no_rows_of_the_new_topic(ringlog_node, reader_of, planned):
    """A driver that was restarted plans the batch that it had not finished, from its checkpoint alone."""
    _, start, end = planned
    make_anew(ringlog_node)
    with pytest.raises(DataLoss, match=r"20 offsets of orders-0 \[0, 20\) cannot be read: .* made anew"):
        rows_between(reader_of(), start, end)
    lossy = reader_of(failOnDataLoss="false")
    assert rows_between(lossy, start, end) == []
    assert lossy.reportLatestOffset()["lostOffsets"] == {"orders-0": OLD}


def test_a_task_that_comes_too_late_reads_no_rows_of_the_new_topic(ringlog_node, reader_of, planned):
    reader, start, end = planned
    (task,) = reader.partitions(start, end)
    make_anew(ringlog_node)
    with pytest.raises(DataLoss, match=r"20 offsets of orders-0 \[0, 20\) cannot be read: .* made anew"):
        list(reader_of().read(task))
    assert list(reader.read(task)) == []
    at, rows = batch(reader, end)
    assert rows == []
    assert reader.reportLatestOffset()["lostOffsets"] == {"orders-0": OLD}, "told by the task, counted once"
    assert lost_groups(ringlog_node) == {}
    assert batch(reader, at)[1] == [(0, n) for n in range(NEW)], "the new topic is read from its beginning"


def test_a_task_that_is_in_the_middle_goes_on_with_no_row_of_the_new_topic(ringlog_node, reader_of):
    create(ringlog_node, 1)
    values = [bytes(1000)] * 1000
    with ringlog.Producer(bootstrap=ringlog_node.bootstrap, buffer_memory=1 << 20) as producer:
        for _ in range(40):
            producer.produce_many("orders", values, partition=0).result(60)
    reader = reader_of(failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (task,) = reader.partitions(start, end)
    pieces = reader.read(task)
    seen = offsets_of([next(pieces)])
    delete(ringlog_node)
    create(ringlog_node, 1)
    fill(ringlog_node, 40_001)
    seen += offsets_of(pieces)
    missing = 40_000 - len(seen)
    assert missing > 0, "it was in the middle"
    assert seen == list(range(len(seen)))
    batch(reader, end)
    assert reader.reportLatestOffset()["lostOffsets"] == {"orders-0": missing}


def test_a_topic_that_was_deleted_ends_a_query_or_is_waited_for(ringlog_node, reader_of, planned):
    reader, start, end = planned
    (task,) = reader.partitions(start, end)
    delete(ringlog_node)
    with pytest.raises(UnknownTopic):
        reader_of().latestOffset(end, ReadAllAvailable())
    with pytest.raises(UnknownTopic):
        reader_of(failOnDataLoss="false").initialOffset()
    with pytest.raises(DataLoss, match="the topic was deleted"):
        list(reader_of().read(task))
    with pytest.raises(DataLoss, match="Start the query again"):
        list(reader.read(task))
    again = reader_of(failOnDataLoss="false")
    assert rows_between(again, start, end) == []
    assert again.reportLatestOffset()["lostOffsets"] == {"orders-0": OLD}
    at, rows = batch(again, end)
    assert (at, rows) == ({}, [])
    create(ringlog_node, 1)
    fill(ringlog_node, NEW)
    at, _ = batch(again, at)
    assert batch(again, at)[1] == [(0, n) for n in range(NEW)]


def test_what_was_known_to_be_unread_of_a_deleted_topic_is_counted(ringlog_node, planned):
    reader, start, _ = planned
    make_anew(ringlog_node)
    at, rows = batch(reader, start)
    assert rows == []
    assert reader.reportLatestOffset()["lostOffsets"] == {"orders-0": OLD}
    assert batch(reader, at)[1] == [(0, n) for n in range(NEW)]


def test_a_bridge_does_not_serve_what_it_kept_of_the_old_topic(ringlog_node, reader_of):
    create(ringlog_node, 1)
    fill(ringlog_node, NEW)
    bridge = BridgeProcess(ringlog_node)
    try:
        for records in (NEW, OLD):
            reader = reader_of(bridge=bridge.address)
            _, rows = batch(reader, reader.initialOffset())
            assert rows == [(0, n) for n in range(records)]
            delete(ringlog_node)
            create(ringlog_node, 1)
            fill(ringlog_node, OLD)
    finally:
        bridge.end()
