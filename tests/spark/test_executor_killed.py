"""A process of a cluster's executor is killed in the middle of its task, in batch reads and in streams: Spark runs the
task again, and no row is lost or doubled."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet
import pytest

import ringlog
from tests.support import spark_cluster_job
from tests.support.node import NodeProcess
from tests.support.spark_cluster_job import MORE, PER_MICRO_BATCH
from tests.support.spark_home import spark_home
from tests.support.spark_queries import create
from tests.support.topics import read_topic

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 2
RECORDS = 2_000
VALUE_BYTES = 20_000
"""A partition has 40 MB: more than the buffers between a reader and a task that does not go on."""
CLICKS = 2 * PER_MICRO_BATCH // PARTITIONS
"""Of each partition, so that they are two micro-batches."""

Row = tuple[int, int, str]
VIEWS: list[Row] = [(part, at, f"{at:016d}") for part in range(PARTITIONS) for at in range(RECORDS)]
FIRST: list[Row] = [(part, at, f"{at}") for part in range(PARTITIONS) for at in range(CLICKS)]
LATER: list[Row] = [(part, CLICKS + n, f"{n} more") for part in range(PARTITIONS) for n in range(MORE)]


class Job:
    """What a run of `spark_cluster_job` left behind."""

    def __init__(self, folder: Path, copies: list[Row]) -> None:
        self._folder = folder
        self.copies = copies

    def batch(self, name: str) -> list[Row]:
        return sorted(tuple(row) for row in json.loads((self._folder / f"{name}.json").read_text()))

    def files(self) -> list[Row]:
        """The rows that a stream's sink has committed, which are those that its own log names."""
        log = self._folder / "files" / "_spark_metadata"
        lines = [line for one in sorted(log.glob("[0-9]*")) for line in one.read_text().splitlines()[1:]]
        paths = [json.loads(line)["path"].removeprefix("file://") for line in lines]
        tables = [pyarrow.parquet.read_table(path, partitioning=None) for path in paths]
        return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())

    def runs(self, name: str) -> list[tuple[str, int]]:
        """(micro-batch, attempt) of each task that stopped in its middle."""
        found = glob.glob(f"{self._folder}/held-up/{name}.*.pid")
        names = [os.path.basename(one).split(".") for one in found]
        return sorted((parts[1], int(parts[2])) for parts in names)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """One cluster serves all queries: its processes take longer to start than most queries take."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "held-up").mkdir()
    with NodeProcess(str(folder / "data"), shards=2, options=("--no-pin",)) as node:
        create(node, "views", PARTITIONS)
        create(node, "clicks", PARTITIONS)
        views = [b"%016d" % at + bytes(VALUE_BYTES) for at in range(RECORDS)]
        clicks = [b"%d" % at for at in range(CLICKS)]
        with ringlog.Producer(node.bootstrap) as producer:
            for partition in range(PARTITIONS):
                producer.produce_many("views", views, partition=partition)
                producer.produce_many("clicks", clicks, partition=partition)
        home = spark_home(folder / "spark-home")
        root = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
        done = subprocess.run(
            [sys.executable, spark_cluster_job.__file__, node.bootstrap, str(folder)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": root, "SPARK_HOME": home},
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        copies = [json.loads(value) for value in read_topic(node.bootstrap, "copies")["value"].to_pylist()]
    return Job(folder, sorted((row["partition"], row["offset"], row["value"]) for row in copies))


@pytest.mark.parametrize("kind", ["worker", "executor"])
def test_a_batch_read_whose_process_is_killed_in_mid_task_has_every_row_once(job, kind):
    assert job.batch(f"batch-{kind}") == VIEWS
    assert 1 in {attempt for _, attempt in job.runs(f"batch-{kind}")}, "a task ran again"


def test_a_stream_has_every_row_once_over_a_killed_executor_and_a_stop_in_mid_batch(job):
    assert 1 in {attempt for batch, attempt in job.runs("files") if batch == "1"}, "a task ran again"
    stopped = Counter(job.runs("stopped"))
    assert max(stopped.values()) >= 2, "the micro-batch was in its middle, and ran again after the restart"
    assert {batch for batch, _ in stopped} == {"2"}
    assert job.files() == sorted(FIRST + LATER)


def test_a_stream_into_a_topic_loses_no_row_and_repeats_none_but_of_the_task_that_was_killed(job):
    assert 1 in {attempt for batch, attempt in job.runs("topic") if batch == "1"}, "a task ran again"
    counts = Counter(job.copies)
    assert sorted(counts) == sorted(FIRST + LATER)
    share = PER_MICRO_BATCH // PARTITIONS
    repeated = {(part, at // share) for (part, at, _), times in counts.items() if times > 1}
    assert len(repeated) <= 1, "one task of one micro-batch was killed"
    assert all(number == 1 for _, number in repeated), "in micro-batch 1"
