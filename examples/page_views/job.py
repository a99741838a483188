"""The job: page views from a topic, parsed, counted by page in windows of 10 s, written to a compacted topic and to
Parquet. It runs until it is stopped:

    python -m examples.page_views.job --master 'local[*]'
    spark-submit examples/page_views/job.py --bootstrap broker:9400 --dir /data/page-views
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

import spark_bridge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

VIEWS = "page-views"
COUNTS = "page-counts"
WINDOW = "10 seconds"
LATE = "20 seconds"
"""Views that come later than this behind the newest one are not counted any more."""
SCHEMA = "user STRING, page STRING, at TIMESTAMP, load_ms INT"


def page_counts(spark: SparkSession, bootstrap: str, group_id: str) -> DataFrame:
    """Views by page and window. A window's count comes out once, when no view of it can come any more."""
    from pyspark.sql import functions as F

    views = (
        spark.readStream.format("ringlog")
        .option("bootstrap", bootstrap)
        .option("subscribe", VIEWS)
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .option("groupId", group_id)  # `ringlog group describe` shows how far behind the query is
        .load()
    )
    return (
        views.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("view"))
        .select("view.*")
        .withWatermark("at", LATE)
        .groupBy(F.window("at", WINDOW), "page")
        .agg(F.count("*").alias("views"), F.round(F.avg("load_ms"), 1).alias("load_ms"))
        .selectExpr("page", "window.start AS start", "views", "load_ms")
    )


def to_topic(counts: DataFrame, bootstrap: str, directory: str) -> StreamingQuery:
    """Into a compacted topic: one key for each page and window, so that a count that is written twice stays one."""
    return (
        counts.selectExpr("concat(page, ' ', start) AS key", "to_json(struct(*)) AS value")
        .writeStream.format("ringlog")
        .option("bootstrap", bootstrap)
        .option("topic", COUNTS)
        .option("checkpointLocation", os.path.join(directory, "checkpoint-topic"))
        .queryName("page counts to topic")
        .trigger(processingTime="1 second")
        .start()
    )


def to_parquet(counts: DataFrame, directory: str) -> StreamingQuery:
    """Into Parquet files, for whoever asks with SQL."""
    return (
        counts.writeStream.format("parquet")
        .option("path", os.path.join(directory, "page-counts"))
        .option("checkpointLocation", os.path.join(directory, "checkpoint-parquet"))
        .queryName("page counts to parquet")
        .trigger(processingTime="1 second")
        .start()
    )


def start(spark: SparkSession, bootstrap: str, directory: str) -> list[StreamingQuery]:
    """Both queries. Each has its own checkpoint and its own group, and each can be restarted alone."""
    return [
        to_topic(page_counts(spark, bootstrap, "page-counts-topic"), bootstrap, directory),
        to_parquet(page_counts(spark, bootstrap, "page-counts-parquet"), directory),
    ]


def session(master: str | None) -> SparkSession:
    """A session that knows the format; None: on the cluster that spark-submit names."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("page views")
    if master is not None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master(master).config("spark.ui.enabled", "false")
    spark = (
        builder.config("spark.sql.shuffle.partitions", "4")  # few keys: the default of 200 would only cost
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark_bridge.register(spark)
    return spark


def main() -> None:
    """Run until stopped."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", default="127.0.0.1:9400")
    parser.add_argument("--dir", default="page-views", help="where Parquet and checkpoints go")
    parser.add_argument("--master", help="such as local[*]; under spark-submit leave it out")
    given = parser.parse_args()
    spark = session(given.master)
    start(spark, given.bootstrap, given.dir)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
