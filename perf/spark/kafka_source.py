"""Spark's own Kafka source, on a Kafka with the same records: what ours is compared with, where that can be had."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perf.micro.result import Goal, Result, result_of
from perf.micro.rounds import alternate
from perf.peers.fetch import PeerUnavailable, fetch_with_maven
from perf.peers.kafka import KafkaBroker, kafka
from perf.peers.settings import KAFKA_SCALA
from perf.spark.cost import Cost, core_s_per_million
from perf.spark.setting import CORES, PARTITIONS, SparkBench, topic_frame

_TOPICS = "org.apache.kafka.tools.TopicCommand"


def connector_jars(directory: str | None = None) -> str:
    """The jars of Spark's Kafka source as Spark takes them: those of a directory, or fetched for the Spark that is
    installed. PeerUnavailable says why there are none."""
    import pyspark

    if directory is None:
        artifact = ("org.apache.spark", f"spark-sql-kafka-0-10_{KAFKA_SCALA}", pyspark.__version__)
        directory = fetch_with_maven(f"spark-kafka-{pyspark.__version__}", [artifact])
    found = sorted(glob.glob(os.path.join(directory, "*.jar")))
    if not any("spark-sql-kafka" in os.path.basename(one) for one in found):
        raise PeerUnavailable(f"{directory} has no spark-sql-kafka-0-10 of Spark {pyspark.__version__}")
    # What stands in Spark's own class path already would be there twice.
    own = {os.path.basename(one) for one in glob.glob(os.path.join(pyspark.__path__[0], "jars", "*.jar"))}
    return ",".join(one for one in found if os.path.basename(one) not in own)


@contextmanager
def broker(directory: str, jars: str | None) -> Iterator[KafkaBroker | None]:
    """A Kafka beside the node; None when the comparison was not asked for."""
    if not jars:
        yield None
        return
    with kafka(os.path.join(directory, "kafka")) as running:
        yield running


def beside_kafka(bench: SparkBench, beside: KafkaBroker) -> Result:
    """Batch read of a topic, all columns, beside Spark's Kafka source with the same rows."""
    topic = bench.filled_topic()
    ours = topic_frame(bench, topic)
    beside.tool(
        _TOPICS,
        *(
            "--bootstrap-server",
            beside.bootstrap,
            "--create",
            "--topic",
            topic,
            "--partitions",
            str(PARTITIONS),
        ),
    )
    _kafka(ours.select("key", "value", "partition").write, beside).option("topic", topic).save()
    reader = _kafka(bench.spark.read, beside).option("subscribe", topic)
    theirs = reader.option("startingOffsets", "earliest").load()
    read: list[Cost] = []
    by_kafka: list[Cost] = []
    samples, limits = alternate(
        lambda: bench.read_all(ours, read), lambda: bench.read_all(theirs, by_kafka), bench.scale.rounds
    )
    bench.node.drop(topic)
    return result_of(
        "spark-kafka",
        f"spark.read of 100 B records, {PARTITIONS} partitions, local[{CORES}], rows thrown away by Spark",
        "M rows/s",
        samples,
        "Spark's own Kafka source with the same records on a Kafka broker",
        limits,
        Goal.share_of_limit(2.0),
        {
            "core s for a million rows, all processes": core_s_per_million(read, bench.scale.records),
            "core s for a million by Kafka's": core_s_per_million(by_kafka, bench.scale.records),
        },
    )


def _kafka(side: Any, beside: KafkaBroker) -> Any:
    return side.format("kafka").option("kafka.bootstrap.servers", beside.bootstrap)
