"""The figures that the Spark bridge is held to, each beside what bounds it in the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate, seconds
from perf.node.setting import chunk_of, send_all
from perf.spark.ready_made import dropping, ready_made
from perf.spark.setting import CORES, PARTITIONS, SparkBench, topic_frame
from perf.stats import median
from ringlog.client.producer import Producer


def source(bench: SparkBench) -> Result:
    """Batch read of a topic, all columns of Kafka's source, beside the same columns ready-made."""
    topic = bench.filled_topic()
    frame = topic_frame(bench, topic)
    template, batches = _template(bench, topic)
    bench.spark.dataSource.register(ready_made(template, frame.schema, batches, PARTITIONS))
    ready = bench.spark.read.format("ready-made").load()
    samples, limits = alternate(
        lambda: bench.read_all(frame),
        lambda: bench.read_all(ready) * (template.num_rows * batches * PARTITIONS / bench.scale.records),
        bench.scale.rounds,
    )
    bench.node.drop(topic)
    return result_of(
        "spark-source",
        f"spark.read of 100 B records, {PARTITIONS} partitions, local[{CORES}], rows thrown away by Spark",
        "M rows/s",
        samples,
        "a data source that yields ready-made Arrow batches of the same shape",
        limits,
        Goal.share_of_limit(0.6),
    )


def _template(bench: SparkBench, topic: str) -> tuple[Any, int]:
    """A record batch as the source itself yields them, and how many of it a task needs."""
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from spark_bridge.datasource import RinglogDataSource

    made = RinglogDataSource({"bootstrap": bench.bootstrap, "subscribe": topic})
    reader = made.reader(StructType.fromDDL(made.schema()))
    first: InputPartition = next(iter(reader.partitions()))
    template = next(iter(reader.read(first)))
    return template, max(1, round(bench.scale.records / PARTITIONS / template.num_rows))


def sink(bench: SparkBench) -> Result:
    """Batch write of rows that Spark has in memory, beside produce_many of as many records of the same size.

    The rows are written twice over: a write costs Spark some tenths of a second however long it is.
    """
    topic, chunk, records = bench.node.topic(PARTITIONS), chunk_of(100), 2 * bench.scale.records
    kept = (
        bench.spark.range(0, bench.scale.records, 1, CORES)
        .selectExpr("CAST(rpad(id, 100, 'x') AS binary) AS value")
        .cache()
    )
    kept.count()
    frame = kept.union(kept)
    bench.spark.dataSource.register(dropping())
    dropped: list[float] = []

    def written(sink: str) -> float:
        writer = frame.write.format(sink).option("bootstrap", bench.bootstrap).option("topic", topic)
        return records / seconds(writer.mode("append").save) / 1e6

    def ours() -> float:
        dropped.append(written("dropping"))
        return written("ringlog")

    with Producer(bench.bootstrap) as producer:
        samples, limits = alternate(
            ours, lambda: records / send_all(producer, topic, chunk, records) / 1e6, bench.scale.rounds
        )
    kept.unpersist()
    bench.node.drop(topic)
    return result_of(
        "spark-sink",
        f"df.write of 100 B values that Spark has in memory, local[{CORES}], flushed",
        "M rows/s",
        samples,
        "produce_many of as many values, 1 producer",
        limits,
        Goal.share_of_limit(0.5),
        {"M rows/s of Spark to a sink that drops them": median(dropped[1:])},
    )


BENCHMARKS: dict[str, Callable[[SparkBench], Result]] = {"source": source, "sink": sink}
