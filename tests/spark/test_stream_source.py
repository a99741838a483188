"""Streams with a real Spark from a real node: each offset once, whatever stops, starts, grows or is deleted."""

from __future__ import annotations

import json

import pytest

import ringlog
from tests.support.node import wait_for
from tests.support.spark_queries import (
    QUERY_WITHIN_S,
    create,
    every_place,
    fill,
    places,
    run_now,
    start,
)

pytestmark = pytest.mark.timeout(600)


def test_a_query_goes_on_from_its_checkpoint_without_loss_or_repeat(spark, ringlog_node, tmp_path):
    create(ringlog_node, "views", 3)
    fill(ringlog_node, "views", 1000)
    options = {"subscribe": "views", "maxOffsetsPerTrigger": "400", "groupId": "dashboard"}
    first = run_now(spark, ringlog_node, tmp_path, **options)
    counts = [progress["numInputRows"] for progress in first.recentProgress]
    assert [count for count in counts if count] == [400, 400, 200]
    assert places(spark, tmp_path) == every_place(ringlog_node, "views")

    fill(ringlog_node, "views", 500)
    run_now(spark, ringlog_node, tmp_path, **options)
    assert places(spark, tmp_path) == every_place(ringlog_node, "views")
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        group = admin.describe_group("dashboard")
        committed = sum(row.committed or 0 for row in group.partitions)
    # Spark tells a source of a batch when the next one is planned, so the last one may not be told any more.
    assert 1000 <= committed <= 1500


def test_a_stream_of_sixty_four_partitions_has_every_record(spark, ringlog_node, tmp_path):
    create(ringlog_node, "wide", 64)
    for round_number in range(2):
        for partition in range(64):
            fill(ringlog_node, "wide", 5 + partition * round_number, partition=partition)
        run_now(spark, ringlog_node, tmp_path, subscribe="wide")
        assert places(spark, tmp_path) == every_place(ringlog_node, "wide")


def test_new_partitions_are_found_and_progress_shows_the_ends(spark, ringlog_node, tmp_path):
    create(ringlog_node, "grows", 1)
    fill(ringlog_node, "grows", 50)
    query = start(spark, ringlog_node, tmp_path, subscribe="grows")
    try:
        wait_for("the first rows", lambda: len(places(spark, tmp_path)) == 50, QUERY_WITHIN_S, every_s=1)
        with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
            admin.add_partitions("grows", 3)
        fill(ringlog_node, "grows", 30, partition=2)
        wait_for("all rows", lambda: len(places(spark, tmp_path)) == 80, QUERY_WITHIN_S, every_s=1)
        (source,) = query.lastProgress["sources"]
        latest = source["latestOffset"]
        latest = json.loads(latest) if isinstance(latest, str) else latest
        assert (latest["grows"]["0"], latest["grows"]["2"]) == (50, 30)
    finally:
        query.stop()
    assert places(spark, tmp_path) == every_place(ringlog_node, "grows")


def test_what_retention_took_from_a_stream_is_named_or_counted(spark, ringlog_node, tmp_path):
    create(ringlog_node, "kept", 1)
    fill(ringlog_node, "kept", 100)
    run_now(spark, ringlog_node, tmp_path, subscribe="kept")
    fill(ringlog_node, "kept", 100)
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        admin.delete_records("kept", {0: 150})
    with pytest.raises(Exception, match=r"50 offsets of kept-0 \[100, 150\) cannot be read"):
        run_now(spark, ringlog_node, tmp_path, subscribe="kept")
    run_now(spark, ringlog_node, tmp_path, subscribe="kept", failOnDataLoss="false")
    assert [offset for _, offset in places(spark, tmp_path)] == [*range(100), *range(150, 200)]


def test_a_topic_that_was_made_anew_is_not_read_in_the_middle(spark, ringlog_node, tmp_path):
    create(ringlog_node, "again", 1)
    fill(ringlog_node, "again", 20)
    run_now(spark, ringlog_node, tmp_path, subscribe="again")
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        admin.delete_topic("again")
    create(ringlog_node, "again", 1)
    fill(ringlog_node, "again", 60)
    with pytest.raises(Exception, match="deleted and made anew"):
        run_now(spark, ringlog_node, tmp_path, subscribe="again")
    run_now(spark, ringlog_node, tmp_path, subscribe="again", failOnDataLoss="false")
    assert [offset for _, offset in places(spark, tmp_path)] == sorted([*range(20), *range(60)])
