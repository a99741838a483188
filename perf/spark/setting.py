"""What a Spark benchmark is given: a node, a session on two cores, and records of 100 B."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from perf.node.scale import QUICK
from perf.node.setting import NodeBench, chunk_of, send_all
from perf.spark.cost import Cost, cost_of
from perf.spark.scale import SparkScale
from ringlog.client.producer import Producer
from ringlog.node.embedded import EmbeddedNode

CORES = 2
PARTITIONS = 4
ARROW_ROWS = 40_000
"""In one batch that Spark hands to a Python worker: what the guide advises for rows of 100 B."""
UNBOUNDED_BYTES = 2**31 - 1
"""Of such a batch: with any other bound Spark measures the batch after each row, which costs as much as the copy."""


class SparkBench(NamedTuple):
    """One run."""

    scale: SparkScale
    node: NodeBench
    spark: Any

    @property
    def bootstrap(self) -> str:
        return self.node.node.bootstrap

    def filled_topic(self) -> str:
        """A topic with the records of this run."""
        topic = self.node.topic(PARTITIONS)
        with Producer(self.bootstrap) as producer:
            send_all(producer, topic, chunk_of(100), self.scale.records)
        return topic

    def read_all(self, frame: Any, costs: list[Cost]) -> float:
        """Millions of rows a second from the first task to the last row, thrown away by Spark itself."""
        costs.append(cost_of(lambda: frame.write.format("noop").mode("overwrite").save()))
        return self.scale.records / costs[-1].wall_s / 1e6


def topic_frame(bench: SparkBench, topic: str) -> Any:
    """A batch read of a whole topic, with all columns."""
    reader = bench.spark.read.format("ringlog").option("bootstrap", bench.bootstrap)
    return reader.option("bridge", "off").option("subscribe", topic).load()


def node_bench(node: EmbeddedNode, directory: str) -> NodeBench:
    """What makes and drops topics in the node's own benchmarks; its amounts are not used here."""
    return NodeBench(QUICK, node, directory)


def session(directory: str, jars: str = "") -> Any:
    """Spark on two cores, in this process; `jars` are put on its class path."""
    from pyspark.sql import SparkSession

    import spark_bridge

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS))
        .config("spark.sql.execution.arrow.maxBytesPerBatch", str(UNBOUNDED_BYTES))
        .config("spark.sql.inMemoryColumnarStorage.compressed", "false")  # it is the sink that is measured
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", os.path.join(directory, "warehouse"))
    )
    if jars:
        builder = builder.config("spark.jars", jars)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark_bridge.register(spark)
    return spark
