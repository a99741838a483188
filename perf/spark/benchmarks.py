"""The figures that the Spark bridge is held to, each beside what bounds it in the same run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate
from perf.node.setting import chunk_of, send_all
from perf.spark.cost import Cost, core_s_per_million, cost_of
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
    of_ready = template.num_rows * batches * PARTITIONS
    read: list[Cost] = []
    yielded: list[Cost] = []
    samples, limits = alternate(
        lambda: bench.read_all(frame, read),
        lambda: bench.read_all(ready, yielded) * (of_ready / bench.scale.records),
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
        {
            "core s for a million rows, all processes": core_s_per_million(read, bench.scale.records),
            "core s for a million of the limit's": core_s_per_million(yielded, of_ready),
        },
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


def sink(bench: SparkBench) -> list[Result]:
    """Batch writes beside produce_many of as many records of the same size: of the cheapest rows that Spark can make, a
    literal in each, since produce_many has its records at hand; and of rows that Spark has in its cache."""
    made = bench.spark.range(0, 4 * bench.scale.records, 1, CORES).selectExpr(
        "CAST(rpad('x', 100, 'x') AS binary) AS value"
    )
    results = [_sink_row(bench, "spark-sink", "df.write of 100 B values", made, 4)]
    kept = (
        bench.spark.range(0, bench.scale.records, 1, CORES)
        .selectExpr("CAST(rpad(id, 100, 'x') AS binary) AS value")
        .cache()
    )
    kept.count()
    results.append(_sink_row(bench, "spark-sink-kept", "the same, out of Spark's cache", kept.union(kept), 2))
    kept.unpersist()
    return results


def _sink_row(bench: SparkBench, name: str, what: str, frame: Any, times: int) -> Result:
    """`times`: how often as many rows as others read, since a write costs Spark some tenths of a second however long
    it is."""
    topic, chunk, records = bench.node.topic(PARTITIONS), chunk_of(100), times * bench.scale.records
    bench.spark.dataSource.register(dropping())
    dropped: list[Cost] = []
    wrote: list[Cost] = []
    produced: list[Cost] = []

    def written(sink: str) -> None:
        writer = frame.write.format(sink).option("bootstrap", bench.bootstrap).option("topic", topic)
        writer.mode("append").save()

    def ours() -> float:
        dropped.append(cost_of(lambda: written("dropping")))
        wrote.append(cost_of(lambda: written("ringlog")))
        return records / wrote[-1].wall_s / 1e6

    def limit() -> float:
        produced.append(cost_of(lambda: send_all(producer, topic, chunk, records)))
        return records / produced[-1].wall_s / 1e6

    for _ in range(bench.scale.warm_writes):
        written("dropping")
        written("ringlog")
    with Producer(bench.bootstrap) as producer:
        samples, limits = alternate(ours, limit, bench.scale.rounds)
    bench.node.drop(topic)
    spark_s, produce_s, write_s = (core_s_per_million(costs, records) for costs in (dropped, produced, wrote))
    return result_of(
        name,
        f"{what}, local[{CORES}], flushed, Java warm",
        "M rows/s",
        samples,
        "produce_many of as many values, 1 producer",
        limits,
        Goal.share_of_limit(0.5),
        {
            "M rows/s of Spark to a sink that drops them": records
            / median([one.wall_s for one in dropped[1:]])
            / 1e6,
            f"M rows/s if {CORES} cores did Spark's part and produce_many's without a pause": (
                CORES / (spark_s + produce_s)
            ),
            "core s for a million rows, all processes": write_s,
            "core s for a million rows to a sink that drops them": spark_s,
            "core s for a million by produce_many": produce_s,
        },
    )


BENCHMARKS: dict[str, Callable[[SparkBench], Result | list[Result]]] = {"source": source, "sink": sink}
