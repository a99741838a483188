"""The stream reader against a real node, called as Spark calls it, without Spark: plans are exact and repeat."""

from __future__ import annotations

import signal

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import IntegerType, LongType, StructType

import ringlog
from ringlog.errors import BadValue, DataLoss, InvalidRequest
from ringlog.records.scan import scan
from spark_bridge.batch_reader import BatchReader
from spark_bridge.direct import read_direct
from spark_bridge.gaps import GapPolicy
from spark_bridge.options import source_options
from spark_bridge.planning import TASK_BYTES
from spark_bridge.stream_reader import StreamReader
from tests.support.spark_queries import BridgeProcess
from tests.support.stream_calls import SCHEMA, batch, create, fill, lost_groups, offsets_of


def test_batches_follow_each_other_without_gap_or_repeat(ringlog_node, reader_of):
    create(ringlog_node)
    fill(ringlog_node, 90)
    fill(ringlog_node, 10, partition=1)
    reader = reader_of(maxOffsetsPerTrigger="40")
    assert reader.getDefaultReadLimit() == ReadMaxRows(40)
    at, seen = reader.initialOffset(), []
    for _ in range(3):
        at, rows = batch(reader, at, ReadMaxRows(40))
        seen += rows
        assert len(rows) <= 40
    assert sorted(seen) == [(0, n) for n in range(90)] + [(1, n) for n in range(10)]
    assert batch(reader, at) == (at, [])
    assert reader.reportLatestOffset()["orders"]["0"] == 90


def test_the_same_offsets_are_the_same_rows_on_any_reader(ringlog_node, reader_of):
    create(ringlog_node)
    fill(ringlog_node, 50)
    first = reader_of()
    start = first.initialOffset()
    end, rows = batch(first, start)
    fill(ringlog_node, 50)
    again = reader_of()
    found = [
        row for part in again.partitions(start, end) for one in again.read(part) for row in one.to_pylist()
    ]
    assert sorted((row["partition"], row["offset"]) for row in found) == rows


def test_a_stream_that_a_bad_document_ended_goes_on_when_it_is_told_what_to_do_with_it(ringlog_node):
    create(ringlog_node, partitions=1)
    with ringlog.Producer(bootstrap=ringlog_node.bootstrap) as producer:
        for value in (b'{"n": 1}', b"bad", b'{"n": 3}'):
            producer.produce("orders", value)
    schema = StructType().add("value", StructType().add("n", IntegerType())).add("offset", LongType())
    given = {
        "bootstrap": ringlog_node.bootstrap,
        "bridge": "off",
        "subscribe": "orders",
        "columns": "value,offset",
    }
    given |= {"startingOffsets": "earliest", "valueFormat": "json", "valueSchema": "n INT"}
    first = StreamReader(source_options(given, streaming=True), schema)
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    with pytest.raises(BadValue, match=r"orders-0, offset 1: .*mode=PERMISSIVE"):
        [list(first.read(part)) for part in first.partitions(start, end)]
    first.stop()
    again = StreamReader(source_options({**given, "mode": "DROPMALFORMED"}, streaming=True), schema)
    assert offsets_of(found for part in again.partitions(start, end) for found in again.read(part)) == [0, 2]
    again.stop()


def test_available_now_ends_where_the_log_ended(ringlog_node, reader_of):
    create(ringlog_node)
    fill(ringlog_node, 30)
    reader = reader_of()
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    fill(ringlog_node, 30)
    end, rows = batch(reader, start)
    assert len(rows) == 30
    assert batch(reader, end) == (end, [])


def test_a_new_partition_is_read_from_its_beginning(ringlog_node, reader_of):
    create(ringlog_node, 1)
    fill(ringlog_node, 5)
    reader = reader_of()
    at, _ = batch(reader, reader.initialOffset())
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        admin.add_partitions("orders", 2)
    fill(ringlog_node, 7, partition=1)
    at, rows = batch(reader, at)
    assert rows == []
    at, rows = batch(reader, at)
    assert rows == [(1, n) for n in range(7)]


def test_what_retention_took_is_an_error_or_a_count(ringlog_node, reader_of):
    create(ringlog_node, 1)
    fill(ringlog_node, 100)
    start = reader_of().initialOffset()
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        admin.delete_records("orders", {0: 60})
    with pytest.raises(DataLoss, match=r"60 offsets of orders-0 \[0, 60\)"):
        batch(reader_of(), start)
    reader = reader_of(failOnDataLoss="false")
    _, rows = batch(reader, start)
    assert rows == [(0, n) for n in range(60, 100)]
    assert reader.reportLatestOffset()["lostOffsets"] == {"orders-0": 60}


def overtake(node, before):
    """Retention moves on under tasks."""
    with ringlog.Admin(bootstrap=node.bootstrap) as admin:
        admin.delete_records("orders", before)


def test_what_retention_took_from_under_tasks_is_an_error_or_told_exactly_in_the_progress(
    ringlog_node, reader_of, caplog
):
    create(ringlog_node)
    for partition in range(2):
        fill(ringlog_node, 100, partition)
    reader, strict = reader_of(failOnDataLoss="false"), reader_of()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    first, second = reader.partitions(start, end)
    done = offsets_of(reader.read(first))
    assert done == list(range(100)), "the task of partition 0 has read all before anything is gone"
    overtake(ringlog_node, {0: 60, 1: 60})
    with pytest.raises(DataLoss, match=r"60 offsets of orders-1 \[0, 60\)"):
        list(strict.read(second))
    assert lost_groups(ringlog_node) == {}, "a task that fails skips nothing"
    assert offsets_of(reader.read(second)) == list(range(60, 100))
    for _ in range(2):
        assert batch(reader, end) == (end, [])
        assert reader.reportLatestOffset()["lostOffsets"] == {"orders-1": 60}, "exact, and counted once"
    assert "skipped, since failOnDataLoss=false: 60 offsets of orders-1 [0, 60)" in caplog.text
    assert "60 offsets of orders-1 were skipped by a task, since failOnDataLoss=false: [0, 60)" in caplog.text
    assert lost_groups(ringlog_node) == {}, "collected"


def test_a_task_that_is_overtaken_in_the_middle_tells_of_what_it_had_not_read(ringlog_node, reader_of):
    create(ringlog_node, 1)
    values = [bytes(1000)] * 1000
    with ringlog.Producer(bootstrap=ringlog_node.bootstrap, buffer_memory=1 << 20) as producer:
        for _ in range(40):
            producer.produce_many("orders", values, partition=0).result(60)
    reader = reader_of(failOnDataLoss="false")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (part,) = reader.partitions(start, end)
    pieces = reader.read(part)
    seen = offsets_of([next(pieces)])
    overtake(ringlog_node, {0: 35_000})
    seen += offsets_of(pieces)
    assert batch(reader, end) == (end, [])
    missing = 40_000 - len(seen)
    assert missing > 0, "it was overtaken"
    assert len(seen) == len(set(seen))
    assert reader.reportLatestOffset()["lostOffsets"] == {"orders-0": missing}


def test_a_batch_read_notes_on_the_node_what_planning_and_tasks_had_to_skip(ringlog_node):
    create(ringlog_node, 1)
    fill(ringlog_node, 100)
    overtake(ringlog_node, {0: 40})

    def planned(**more):
        given = {"bootstrap": ringlog_node.bootstrap, "columns": "partition,offset", "bridge": "off"}
        given |= {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 25}}', **more}
        reader = BatchReader(source_options(given, streaming=False), SCHEMA)
        return reader, reader.partitions()

    with pytest.raises(DataLoss, match=r"15 offsets of orders-0 \[25, 40\)"):
        planned()
    assert lost_groups(ringlog_node) == {}
    reader, (task,) = planned(failOnDataLoss="false")
    overtake(ringlog_node, {0: 60})
    assert offsets_of(reader.read(task)) == list(range(60, 100))
    told = lost_groups(ringlog_node)
    assert sorted(name.split("-", 3)[3] for name in told) == ["orders-0-25", "orders-0-40"]
    assert sorted(note for notes in told.values() for note in notes.values()) == [
        '{"offsets":15,"lost":[[25,40]]}',
        '{"offsets":20,"lost":[[40,60]]}',
    ]


def test_a_topic_that_was_made_anew_is_read_from_its_beginning_or_not_at_all(ringlog_node, reader_of):
    create(ringlog_node, 1)
    fill(ringlog_node, 20)
    at, _ = batch(reader_of(), reader_of().initialOffset())
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        admin.delete_topic("orders")
    create(ringlog_node, 1)
    fill(ringlog_node, 60)
    with pytest.raises(DataLoss, match="made anew"):
        batch(reader_of(), at)
    reader = reader_of(failOnDataLoss="false")
    at, rows = batch(reader, at)
    assert rows == []
    assert batch(reader, at)[1] == [(0, n) for n in range(60)]


def test_progress_is_committed_to_the_group(ringlog_node, reader_of):
    create(ringlog_node, 2)
    fill(ringlog_node, 20)
    reader = reader_of(groupId="dashboard")
    end, _ = batch(reader, reader.initialOffset())
    reader.commit(end)
    fill(ringlog_node, 5)
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        group = admin.describe_group("dashboard")
    assert {row.partition: row.committed for row in group.partitions} == {0: 20, 1: 0}
    assert group.lag == 5


def test_a_large_range_is_shared_by_tasks_at_batch_boundaries(ringlog_node, reader_of):
    create(ringlog_node, 1)
    for _ in range(20):
        fill(ringlog_node, 500)
    reader = reader_of(minPartitions="4")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    parts = [part.value[0] for part in reader.partitions(start, end)]
    assert len(parts) == 4
    assert parts[0].start == 0
    assert parts[-1].end == 10_000
    assert [one.end for one in parts[:-1]] == [one.start for one in parts[1:]]


def test_a_range_of_more_than_a_tasks_bytes_is_split_where_batches_begin(ringlog_node, reader_of):
    create(ringlog_node, 1)
    records, value = 150_000, bytes(1000)
    with ringlog.Producer(bootstrap=ringlog_node.bootstrap) as producer:
        for _ in range(10):
            producer.produce_many("orders", [value] * (records // 10), partition=0).result(120)
    reader = reader_of()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    parts = [part.value[0] for part in reader.partitions(start, end)]
    assert len(parts) == 3, "150 MB, 64 MiB a task"
    seen = []
    for part in parts:
        nbytes = 0
        for number, found in enumerate(
            read_direct(ringlog_node.bootstrap, part, GapPolicy(fail_on_data_loss=True))
        ):
            batches = scan(found.data, level="headers").table
            if number == 0:
                assert batches["base_offset"][0] == part.start, "no batch is read by two tasks"
            nbytes += int(batches["length"][batches["base_offset"] < part.end].sum())
        assert nbytes <= TASK_BYTES
    for part in reader.partitions(start, end):
        for found in reader.read(part):
            seen += found.column("offset").to_pylist()
    assert sorted(seen) == list(range(records))


def test_a_range_goes_on_without_its_bridge_when_that_is_killed(ringlog_node, reader_of):
    create(ringlog_node, 1)
    with ringlog.Producer(bootstrap=ringlog_node.bootstrap) as producer:
        producer.produce_many("orders", [bytes(1000)] * 30_000, partition=0).result(60)
    bridge = BridgeProcess(ringlog_node)
    reader = reader_of(bridge=bridge.address)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (part,) = reader.partitions(start, end)
    assert part.value[1].bridge == bridge.address
    pieces = reader.read(part)
    seen = next(pieces).column("offset").to_pylist()
    bridge.end(signal.SIGKILL)
    for piece in pieces:
        seen += piece.column("offset").to_pylist()
    assert seen == list(range(30_000))
    (part,) = reader.partitions(start, end)
    assert part.value[1].bridge is None
    assert sum(piece.num_rows for piece in reader.read(part)) == 30_000


def test_a_start_or_an_end_behind_the_end_of_a_log_is_refused(ringlog_node, reader_of):
    create(ringlog_node, 1)
    fill(ringlog_node, 10)
    assert reader_of(startingOffsets='{"orders": {"0": 10}}').initialOffset()["orders"]["0"] == 10
    with pytest.raises(InvalidRequest, match="orders-0 ends at 10, and has no offset 11 yet"):
        reader_of(startingOffsets='{"orders": {"0": 11}}').initialOffset()
    given = {"bootstrap": ringlog_node.bootstrap, "columns": "partition,offset", "subscribe": "orders"}
    given["endingOffsets"] = '{"orders": {"0": 11}}'
    with pytest.raises(
        InvalidRequest, match="'endingOffsets': orders-0 ends at 10, and has no offset 11 yet"
    ):
        BatchReader(source_options(given, streaming=False), SCHEMA).partitions()


def test_times_say_where_reads_begin_and_end(ringlog_node, reader_of):
    create(ringlog_node, 2)
    with ringlog.Producer(bootstrap=ringlog_node.bootstrap) as producer:
        for at_ms in (1_000, 2_000, 3_000):
            producer.produce_many("orders", [b"x"] * 10, timestamps=at_ms, partition=0).result(30)
    given = {"bootstrap": ringlog_node.bootstrap, "columns": "partition,offset", "bridge": "off"}
    given |= {"subscribe": "orders", "startingTimestamp": "1001", "endingTimestamp": "2500"}
    reader = BatchReader(source_options(given, streaming=False), SCHEMA)
    (task,) = reader.partitions()
    assert offsets_of(reader.read(task)) == list(range(10, 20)), (
        "from the first at or after it, up to another such"
    )
    stream = reader_of(startingOffsets=None, startingTimestamp="2001")
    start = stream.initialOffset()
    assert (start["orders"]["0"], start["orders"]["1"]) == (20, 0)
    late = reader_of(startingOffsets=None, startingTimestamp="3001")
    assert batch(late, late.initialOffset())[1] == [], "nothing is so young: what comes next is read"


def test_a_checkpoint_of_kafkas_source_is_refused_in_words(ringlog_node, reader_of):
    create(ringlog_node, 1)
    with pytest.raises(InvalidRequest, match="the checkpoint is of another source"):
        reader_of().latestOffset({"orders": {"0": 0}}, ReadAllAvailable())


def test_a_partition_that_is_assigned_and_not_there_is_named(ringlog_node, reader_of):
    create(ringlog_node, 2)
    fill(ringlog_node, 10)
    wanted = {"subscribe": None, "failOnDataLoss": "false"}
    reader = reader_of(assign='{"orders": [1]}', **wanted)
    assert reader.initialOffset()["orders"].keys() == {"id", "1"}
    with pytest.raises(InvalidRequest, match="'assign' names orders-2, and there are partitions 0 to 1"):
        reader_of(assign='{"orders": [0, 2]}', **wanted).initialOffset()


def test_a_query_of_a_pattern_begins_before_its_first_topic(ringlog_node, reader_of):
    reader = reader_of(subscribe=None, subscribePattern="ord.*")
    start = reader.initialOffset()
    assert batch(reader, start) == ({}, [])
    create(ringlog_node, 1)
    fill(ringlog_node, 5)
    at, _ = batch(reader, start)
    assert batch(reader, at)[1] == [(0, n) for n in range(5)]
