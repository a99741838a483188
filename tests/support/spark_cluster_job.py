"""A driver whose executors are processes of their own. One of them, or its workers, is killed in the middle of queries.

Run as a script with the node's address and a folder: `held-up` in it has a file for each task that stopped in its
middle, `NAME.json` the rows that a batch query found, `NAME` the Parquet files of a stream. Who runs it judges them.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import ringlog
import spark_bridge
from tests.support.spark_home import FEW_THREADS

PER_MICRO_BATCH = 400
MORE = 200
"""Records of each partition that come when the first stream has ended."""
HELD_UP_AT = 150
"""Rows of a task; Spark passes them on by the hundred, so that some are further on when it stops."""


def main(bootstrap: str, folder: str) -> None:
    """All queries, one after the other."""
    builder = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", FEW_THREADS)
        .config("spark.executor.extraJavaOptions", FEW_THREADS)
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark_bridge.register(spark)
    queries = Queries(spark, bootstrap, folder)
    for kind in ("worker", "executor"):
        queries.batch_read(kind)
    queries.stream_to_files()
    queries.stream_to_topic()
    spark.stop()


class Queries:
    """Batch reads of the topic `views`, and streams of the topic `clicks`."""

    def __init__(self, spark: Any, bootstrap: str, folder: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder

    def batch_read(self, kind: str) -> None:
        """A worker or an executor is killed under a batch read."""
        name = f"batch-{kind}"
        with self._killing(kind, name):
            rows = self._rows(self._spark.read, "views", name, 0).collect()
        with open(f"{self._folder}/{name}.json", "w") as file:
            json.dump([list(row) for row in rows], file)

    def stream_to_files(self) -> None:
        """An executor is killed under micro-batch 1. Then more records come, and the query is stopped in the middle of
        the micro-batch that has them, and started again."""
        with self._killing("executor", "files"):
            self._to_files("files", 1, availableNow=True).awaitTermination()
        with ringlog.Producer(self._bootstrap) as producer:
            for partition in (0, 1):
                values = [b"%d more" % number for number in range(MORE)]
                producer.produce_many("clicks", values, partition=partition)
        query = self._to_files("stopped", 2, processingTime="0 seconds")
        self._wait_held_up("stopped", query)
        query.stop()
        self._let_go("stopped")
        self._to_files("stopped", 2, availableNow=True).awaitTermination()

    def stream_to_topic(self) -> None:
        """The workers of source and sink are killed under micro-batch 1, while its rows are written. Then the query is
        started again, and has nothing to do."""
        with self._killing("worker", "topic"):
            self._to_topic().awaitTermination()
        self._to_topic().awaitTermination()

    def _to_topic(self) -> Any:
        rows = self._stream("topic", 1)
        writer = rows.selectExpr("to_json(struct(*)) AS value").writeStream.format("ringlog")
        writer = writer.option("bootstrap", self._bootstrap).option("topic", "copies")
        writer = writer.option("checkpointLocation", f"{self._folder}/checkpoint-topic")
        return writer.trigger(availableNow=True).start()

    def _to_files(self, name: str, micro_batch: int, **trigger: Any) -> Any:
        rows = self._stream(name, micro_batch)
        writer = rows.writeStream.format("parquet").option("path", f"{self._folder}/files")
        return writer.option("checkpointLocation", f"{self._folder}/checkpoint").trigger(**trigger).start()

    def _stream(self, name: str, micro_batch: int) -> Any:
        reader = self._spark.readStream.option("maxOffsetsPerTrigger", PER_MICRO_BATCH)
        return self._rows(reader, "clicks", name, micro_batch)

    def _rows(self, side: Any, topic: str, name: str, micro_batch: int) -> Any:
        """Partition, offset and the beginning of the value, through tasks that stop in their middle."""
        side = side.format("ringlog").option("bootstrap", self._bootstrap).option("subscribe", topic)
        side = side.option("columns", "partition,offset,value").option("bridge", "off")
        held = held_up(f"{self._folder}/held-up/{name}", micro_batch)
        rows = side.option("startingOffsets", "earliest").load()
        return rows.select("partition", "offset", udf(held, "string")("value").alias("value"))

    @contextmanager
    def _killing(self, kind: str, name: str) -> Iterator[None]:
        """What stops in its middle during the block is killed there."""
        killer = threading.Thread(target=self._kill_when_held_up, args=(kind, name), daemon=True)
        killer.start()
        yield
        killer.join(60)

    def _kill_when_held_up(self, kind: str, name: str) -> None:
        worker = psutil.Process(self._wait_held_up(name))
        try:
            for one in victims(kind, worker):
                os.kill(one.pid, signal.SIGKILL)
        finally:
            self._let_go(name)

    def _wait_held_up(self, name: str, query: Any = None) -> int:
        """The process of a task that stopped."""
        while not (found := glob.glob(f"{self._folder}/held-up/{name}.*.pid")):
            time.sleep(0.05)
            if query is not None and not query.isActive:
                raise RuntimeError(f"the query ended: {query.exception()}")
        return int(found[0].split(".")[-2])

    def _let_go(self, name: str) -> None:
        open(f"{self._folder}/held-up/{name}.go-on", "w").close()


def victims(kind: str, worker: Any) -> list[Any]:
    """The worker is one that runs behind the source in the same task."""
    executor = worker.parent().parent()
    if kind == "executor":
        return [executor]
    workers = [one for daemon in executor.children() for one in daemon.children()]
    return [one for one in workers if one != worker]  # the source's own, and a sink's


def held_up(mark: str, micro_batch: int) -> Callable[[Any], str]:
    """The beginning of a value, found in a worker of its own behind the source's. In a micro-batch of this number, or
    in a batch query, no task goes on behind its first rows before the kill."""
    seen: Counter[int] = Counter()

    def beginning(value: Any) -> str:
        context = TaskContext.get()
        task = context.taskAttemptId()
        seen[task] += 1
        number = context.getLocalProperty("streaming.sql.batchId")
        if seen[task] == HELD_UP_AT and (number is None or int(number) == micro_batch):
            attempt = f"{number}.{context.attemptNumber()}.{time.time_ns()}.{os.getpid()}"
            open(f"{mark}.{attempt}.pid", "w").close()
            while not os.path.exists(f"{mark}.go-on"):
                time.sleep(0.05)
        return bytes(value[:16]).decode()

    return beginning


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
