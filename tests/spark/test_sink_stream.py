"""Streaming writes with a real Spark: an epoch that was committed adds nothing when Spark runs it again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

import ringlog
from tests.support.topics import read_topic

ROWS = 500


class Stream:
    """A query from a directory of text files to a topic, whose checkpoint can be tampered with."""

    def __init__(self, spark, bootstrap: str, directory: Path) -> None:
        self._spark = spark
        self.bootstrap = bootstrap
        self._input = directory / "input"
        self.checkpoint = directory / "checkpoint"
        self._input.mkdir()
        self._files = 0

    def add_rows(self) -> None:
        lines = (f"{self._files} {number}\n" for number in range(ROWS))
        (self._input / f"{self._files}.txt").write_text("".join(lines))
        self._files += 1

    def run(self) -> list[int]:
        """Run the query until it has nothing left to do; the epochs that it ran."""
        frame = self._spark.readStream.text(str(self._input)).selectExpr("value", "value AS key")
        query = (
            frame.writeStream.format("ringlog")
            .option("bootstrap", self.bootstrap)
            .option("topic", "orders")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self.group_id = f"spark-sink-{query.id}"
        return [progress["batchId"] for progress in query.recentProgress]

    def forget(self, kind: str, epoch: int) -> None:
        """Take an entry out of the checkpoint, as a driver that died before it wrote it would have left it."""
        for name in (f"{epoch}", f".{epoch}.crc"):
            os.unlink(self.checkpoint / kind / name)

    def values(self) -> list[str]:
        return [value.decode() for value in read_topic(self.bootstrap, "orders")["value"].to_pylist()]

    def expected(self) -> list[str]:
        return [f"{file} {number}" for file in range(self._files) for number in range(ROWS)]


@pytest.fixture
def stream(spark, ringlog_node, tmp_path) -> Stream:
    """A query that has committed epochs 0 and 1."""
    made = Stream(spark, ringlog_node.bootstrap, tmp_path)
    for epoch in range(2):
        made.add_rows()
        assert made.run() == [epoch]
    return made


def test_a_query_that_goes_on_from_its_checkpoint_writes_each_row_once(stream):
    assert sorted(stream.values()) == sorted(stream.expected())


def test_a_committed_epoch_that_spark_runs_again_adds_nothing_and_the_next_one_is_written(stream):
    stream.forget("commits", 1)
    assert stream.run() == [1], "Spark did run it again"
    assert sorted(stream.values()) == sorted(stream.expected())

    stream.add_rows()
    assert stream.run() == [2]
    assert sorted(stream.values()) == sorted(stream.expected())


def test_an_epoch_that_was_not_committed_is_written_again(stream):
    """The tasks had flushed, and the driver died before the commit: at least once, as the guide says."""
    with ringlog.Admin(stream.bootstrap) as admin:
        admin.delete_group(stream.group_id)
    stream.forget("commits", 1)
    assert stream.run() == [1]
    assert len(stream.values()) == 3 * ROWS


def test_an_epoch_number_with_other_rows_is_refused_and_nothing_is_lost_silently(stream):
    stream.forget("commits", 1)
    stream.forget("offsets", 1)
    stream.forget("sources/0", 1)
    stream.add_rows()
    with pytest.raises(
        StreamingQueryException, match=f"was committed with {ROWS} records, and now comes with"
    ):
        stream.run()
    assert len(stream.values()) == 2 * ROWS


def test_a_checkpoint_that_was_set_back_is_refused(stream):
    for epoch in (0, 1):
        stream.forget("commits", epoch)
    stream.forget("offsets", 1)
    with pytest.raises(StreamingQueryException, match="its checkpoint was set back"):
        stream.run()


def test_a_table_that_changes_its_rows_cannot_be_appended(spark, ringlog_node, tmp_path):
    counts = (
        spark.readStream.format("rate")
        .load()
        .groupBy("value")
        .count()
        .selectExpr("CAST(count AS string) value")
    )
    writer = counts.writeStream.format("ringlog").option("bootstrap", ringlog_node.bootstrap)
    with pytest.raises(StreamingQueryException, match="only appended to"):
        writer.option("topic", "orders").option("checkpointLocation", str(tmp_path)).outputMode(
            "complete"
        ).start().awaitTermination(60)
