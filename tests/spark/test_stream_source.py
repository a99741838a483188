"""Streams with a real Spark from a real node: each offset once, whatever stops, starts, grows or is deleted."""

from __future__ import annotations

import pytest

import ringlog
from tests.support.spark_queries import (
    create,
    every_place,
    fill,
    places,
    run_now,
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
