"""A part of the node dies at the moment that a query needs it: every call of source and sink waits, none fails.

Spark's own calls, without Spark. The supervisor is held still meanwhile, so that the part is surely missing when the
calls are made, and is replaced only when all of them were seen to wait.
"""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

import ringlog
from ringlog.model import TopicPartition
from spark_bridge import epochs
from spark_bridge.cluster import Cluster
from spark_bridge.epochs import Epoch
from spark_bridge.options import source_options
from spark_bridge.sink_options import sink_options
from spark_bridge.sink_task import send_all
from spark_bridge.stream_reader import StreamReader
from tests.support.node import NodeProcess
from tests.support.spark_queries import BridgeProcess, create, fill

pytestmark = pytest.mark.timeout(300)

SCHEMA = StructType([StructField("partition", IntegerType()), StructField("offset", LongType())])
RECORDS = 2_000
_MISSING_S = 1.0


@pytest.fixture
def node(tmp_path):
    with NodeProcess(str(tmp_path / "data"), shards=2, options=("--no-pin",)) as found:
        create(found, "views", 4)
        for partition in range(4):
            fill(found, "views", RECORDS // 4, partition=partition)
        yield found


@contextmanager
def missing(node, role):
    """All processes of a role are dead, and nobody replaces them until the end of the block."""
    parts = [key for key in node.processes() if key[0] == role]
    os.kill(node.pid, signal.SIGSTOP)
    try:
        for part in parts:
            node.kill(*part)
        yield
    finally:
        os.kill(node.pid, signal.SIGCONT)


def calls_of(node, bridge, closing):
    """Each call that a query makes, by its name, and what it must return; clients are connected already."""
    given = {"bootstrap": node.bootstrap, "columns": "partition,offset", "subscribe": "views"}
    options = source_options({**given, "startingTimestamp": "0", "bridge": "off"}, streaming=True)
    cluster = closing.enter_context(Cluster(options))
    scene = cluster.scene()
    readers = []
    for way in ("off", bridge.address):
        stream = {**given, "startingOffsets": "earliest", "groupId": "dashboard", "bridge": way}
        readers.append(StreamReader(source_options(stream, streaming=True), SCHEMA))
        closing.callback(readers[-1].stop)
    reader, bridged = readers
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    parts = [(one, part) for one in (reader, bridged) for part in one.partitions(start, end)]
    assert {part.value[1].bridge for _, part in parts} == {None, bridge.address}
    sink = sink_options({"bootstrap": node.bootstrap, "topic": "copies"})
    new_topic = sink_options({"bootstrap": node.bootstrap, "topic": "made-meanwhile"})
    rows = [pa.record_batch({"value": pa.array([b"%d" % n for n in range(100)])})]
    assert send_all(rows, sink)[0] == 100
    done = Epoch("q", 3)
    epochs.commit(done, 7, {TopicPartition("views", 0): 7}, node.bootstrap)

    def rows_read(one, part):
        return sum(batch.num_rows for batch in one.read(part))

    def committed():
        reader.commit(end)
        with ringlog.Admin(node.bootstrap) as admin:
            return sum(at.offset for at in admin.group_offsets("dashboard", timeout=60).values())

    calls = {
        "scene": (lambda: sum(cluster.scene().latest.values()), RECORDS),
        "starts": (lambda: sum(cluster.starts(scene).values()), 0),
        "split": (
            lambda: cluster.split_points(scene, [part.value[0] for _, part in parts], everywhere=True),
            {},
        ),
        "latest": (lambda: reader.latestOffset(start, ReadAllAvailable()), end),
        "plan": (lambda: len(bridged.partitions(start, end)), 4),
        "progress": (committed, RECORDS),
        "send": (lambda: send_all(rows, sink)[0], 100),
        "send to a new topic": (lambda: send_all(rows, new_topic)[0], 100),
        "ask for an epoch": (lambda: epochs.is_committed(done, node.bootstrap), True),
        "commit an epoch": (
            lambda: epochs.commit(Epoch("p", 0), 1, {TopicPartition("views", 1): 1}, node.bootstrap),
            None,
        ),
        "check an epoch": (lambda: epochs.check_replay(done, 7, node.bootstrap), None),
    }
    for one, part in parts:
        way = "direct" if part.value[1].bridge is None else "bridged"
        what = part.value[0]
        calls[f"{way} read of {what}"] = (lambda one=one, part=part: rows_read(one, part), what.offsets)
    return calls


@pytest.mark.parametrize(
    ("role", "needed_by"),
    [
        ("shard", {"scene", "starts", "latest", "plan", "send", "ask for an epoch", "commit an epoch"}),
        ("net", {"scene", "starts", "latest", "plan", "send", "ask for an epoch", "check an epoch"}),
        ("controller", {"send to a new topic"}),
    ],
)
def test_no_call_fails_while_a_part_of_the_node_is_replaced(node, role, needed_by):
    with ExitStack() as closing:
        bridge = BridgeProcess(node)
        closing.callback(bridge.end)
        calls = calls_of(node, bridge, closing)
        threads = closing.enter_context(ThreadPoolExecutor(len(calls)))
        with missing(node, role):
            asked = {name: threads.submit(call) for name, (call, _) in calls.items()}
            time.sleep(_MISSING_S)
            waited = {name for name, future in asked.items() if not future.done()}
        found = {name: future.result(120) for name, future in asked.items()}
    assert needed_by <= waited, "the part was missing when they asked"
    found["split"] = {}  # that it answers is enough: small logs have no place to be split at
    assert found == {name: wanted for name, (_, wanted) in calls.items()}


def test_a_node_that_stays_away_ends_a_query_when_its_patience_is_over(node):
    options = {
        "bootstrap": node.bootstrap,
        "subscribe": "views",
        "operationTimeoutMs": "1500",
        "bridge": "off",
    }
    with Cluster(source_options(options, streaming=True)) as cluster:
        cluster.scene()
        with missing(node, "shard"):
            began_s = time.monotonic()
            with pytest.raises(ringlog.errors.RinglogError) as raised:
                cluster.scene()
            assert time.monotonic() - began_s > 1.0
    assert raised.value.retriable
