"""Queries of the Spark tests: from a topic into files, and what the files hold."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import ringlog
from tests.support.node import free_port

QUERY_WITHIN_S = 150


class BridgeProcess:
    """`ringlog bridge` beside a node."""

    def __init__(self, node: Any) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "cli.main", "bridge", "--bootstrap", node.bootstrap]
        command += ["--listen", f"tcp://{self.address}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert "is ready on" in self.process.stdout.readline()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and wait; its exit code. Twice is fine."""
        self.process.send_signal(number)
        return self.process.wait(30)


def reader(spark: Any, node: Any, **options: str) -> Any:
    """A batch read."""
    return spark.read.format("ringlog").options(bootstrap=node.bootstrap, **options).load()


def start(spark: Any, node: Any, directory: Any, *, available_now: bool = False, **options: str) -> Any:
    """A stream from the beginning of a topic into Parquet files, with a checkpoint beside them."""
    stream = spark.readStream.format("ringlog").options(
        bootstrap=node.bootstrap, **{"startingOffsets": "earliest", **options}
    )
    writer = stream.load().writeStream.format("parquet").option("path", f"{directory}/rows")
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
    trigger = {"availableNow": True} if available_now else {"processingTime": "200 milliseconds"}
    return writer.trigger(**trigger).start()


def run_now(spark: Any, node: Any, directory: Any, **options: str) -> Any:
    """The same for what is there now; the query, when it has ended."""
    query = start(spark, node, directory, available_now=True, **options)
    assert query.awaitTermination(QUERY_WITHIN_S), "the query ends by itself"
    return query


def places(spark: Any, directory: Any) -> list[tuple[int, int]]:
    """(partition, offset) of all rows that were written, sorted; repeated ones are there twice."""
    path = f"{directory}/rows"
    if not os.path.exists(path):
        return []
    rows = spark.read.schema("partition INT, offset BIGINT").parquet(path)
    return sorted((row.partition, row.offset) for row in rows.collect())


def every_place(node: Any, topic: str) -> list[tuple[int, int]]:
    """(partition, offset) of all that a topic holds, sorted."""
    with ringlog.Admin(bootstrap=node.bootstrap) as admin:
        rows = admin.describe_topic(topic).partitions
    return [(row.index, at) for row in rows for at in range(row.log_start_offset, row.readable_offset)]


def fill(node: Any, topic: str, count: int, **settings: Any) -> None:
    """Produce so many small records."""
    with ringlog.Producer(bootstrap=node.bootstrap) as producer:
        producer.produce_many(topic, [b"%d" % n for n in range(count)], **settings).result(60)


def create(node: Any, topic: str, partitions: int, **config: Any) -> None:
    """Make a topic."""
    with ringlog.Admin(bootstrap=node.bootstrap) as admin:
        admin.create_topic(topic, partitions, config=config)
