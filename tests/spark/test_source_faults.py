"""Processes die under a query, the bridge and each part of the node: no row is lost or doubled."""

from __future__ import annotations

import signal

import psutil
import pytest

from tests.support.node import NodeProcess, wait_for
from tests.support.spark_queries import (
    QUERY_WITHIN_S,
    BridgeProcess,
    create,
    every_place,
    fill,
    places,
    start,
)
from tests.support.topics import read_topic

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def node(tmp_path):
    with NodeProcess(str(tmp_path / "data"), shards=2, options=("--no-pin",)) as found:
        yield found


def test_a_query_reads_through_a_bridge_and_goes_on_without_it(spark, node, tmp_path):
    create(node, "views", 4)
    fill(node, "views", 20_000)
    bridge = BridgeProcess(node)
    options = {"subscribe": "views", "bridge": bridge.address, "maxOffsetsPerTrigger": "5000"}
    query = start(spark, node, tmp_path, **options)
    try:
        wait_for("rows through the bridge", lambda: places(spark, tmp_path), QUERY_WITHIN_S, every_s=1)
        assert psutil.Process(bridge.process.pid).cpu_times().user > 0.1
        bridge.end(signal.SIGKILL)
        killed = node.kill("shard", 0)
        fill(node, "views", 5_000)
        wait_for("all rows", lambda: len(places(spark, tmp_path)) >= 25_000, QUERY_WITHIN_S, every_s=1)
        assert node.processes()[("shard", 0)] != killed
    finally:
        query.stop()
    assert places(spark, tmp_path) == every_place(node, "views")


def test_a_query_outlives_every_part_of_its_node_and_the_node_itself(spark, node, tmp_path):
    """Source and sink at once: a topic is copied to another while what serves both dies, part by part."""
    create(node, "views", 4)
    create(node, "copies", 4)
    source = spark.readStream.format("ringlog").option("bootstrap", node.bootstrap)
    source = source.option("subscribe", "views").option("startingOffsets", "earliest")
    copying = source.option("groupId", "copier").load().selectExpr("value", "partition").writeStream
    copying = copying.format("ringlog").option("bootstrap", node.bootstrap).option("topic", "copies")
    copying = copying.option("checkpointLocation", f"{tmp_path}/checkpoint")
    query = copying.trigger(processingTime="100 milliseconds").start()
    produced = 0

    def go_on(count: int) -> None:
        """More records, of which at least one was copied: the query lives, and works."""
        nonlocal produced
        before = len(every_place(node, "copies"))
        fill(node, "views", count)
        produced += count
        wait_for(
            "copies",
            lambda: len(every_place(node, "copies")) > before or not query.isActive,
            QUERY_WITHIN_S,
            every_s=0.1,
        )
        assert query.isActive, query.exception()

    try:
        go_on(1000)
        for role, index in (("shard", 0), ("shard", 1), ("net", 0), ("controller", 0)):
            node.kill(role, index)
            go_on(1000)
        node.kill_supervisor()
        node.start()
        go_on(1000)
        query.processAllAvailable()
    finally:
        query.stop()
    values = read_topic(node.bootstrap, "copies")["value"].to_pylist()
    assert len(values) == produced
    assert sorted(values) == sorted(read_topic(node.bootstrap, "views")["value"].to_pylist())
