"""A process of a cluster's executor is killed in the middle of its task: Spark runs that again, and no row is lost or
doubled."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import ringlog
from tests.support.node import NodeProcess
from tests.support.spark_queries import create

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 2
RECORDS = 2_000
VALUE_BYTES = 20_000
"""A partition has 40 MB: more than the buffers between a reader and a task that does not go on."""


@pytest.fixture
def node(tmp_path):
    with NodeProcess(str(tmp_path / "data"), shards=2, options=("--no-pin",)) as found:
        yield found


_CLUSTER = """
import glob, os, signal, sys, threading, time
import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession
import spark_bridge
bootstrap, folder, records = sys.argv[1], sys.argv[2], int(sys.argv[3])
spark = (SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    .config("spark.executor.memory", "512m").config("spark.driver.host", "127.0.0.1")
    .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"]).getOrCreate())
spark.sparkContext.setLogLevel("OFF")
spark_bridge.register(spark)
rows = (spark.read.format("ringlog").option("bootstrap", bootstrap).option("subscribe", "views")
    .option("columns", "partition,offset,value").load())

def held_up(kind):
    # Runs behind the source in the same task, in a worker of its own. Nobody goes on before the kill.
    def pass_on(rows):
        for number, row in enumerate(rows):
            yield row.partition, row.offset
            if number == 0:
                attempt = TaskContext.get().attemptNumber()
                open(f"{folder}/{kind}.{attempt}.{os.getpid()}", "w").close()
                while not os.path.exists(f"{folder}/{kind}.killed"):
                    time.sleep(0.05)
    return pass_on

def victims(kind, worker):
    executor = worker.parent().parent()
    if kind == "executor":
        return [executor]
    workers = [one for daemon in executor.children() for one in daemon.children()]
    return [one for one in workers if one != worker]   # the source's own

def kill_when_held_up(kind):
    while not (found := glob.glob(f"{folder}/{kind}.0.*")):
        time.sleep(0.05)
    try:
        for one in victims(kind, psutil.Process(int(found[0].rpartition(".")[2]))):
            os.kill(one.pid, signal.SIGKILL)
    finally:
        open(f"{folder}/{kind}.killed", "w").close()

for kind in ("worker", "executor"):
    killer = threading.Thread(target=kill_when_held_up, args=(kind,), daemon=True)
    killer.start()
    found = rows.rdd.mapPartitions(held_up(kind)).collect()
    killer.join()
    assert len(found) == len(set(found)) == records, (kind, len(found))
    assert glob.glob(f"{folder}/{kind}.1.*"), f"no task ran again after the kill of a {kind}"
    print(f"{kind} killed: every row once", flush=True)
spark.stop()
"""


def test_a_python_worker_or_an_executor_that_is_killed_in_mid_task_costs_no_row(node, tmp_path):
    create(node, "views", PARTITIONS)
    with ringlog.Producer(node.bootstrap) as producer:
        for partition in range(PARTITIONS):
            producer.produce_many("views", [bytes(VALUE_BYTES)] * RECORDS, partition=partition)
    script, folder = tmp_path / "job.py", tmp_path / "held-up"
    script.write_text(_CLUSTER)
    folder.mkdir()
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
    done = subprocess.run(
        [sys.executable, str(script), node.bootstrap, str(folder), str(PARTITIONS * RECORDS)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": root},
        timeout=500,
        check=False,
    )
    said = done.stdout + done.stderr[-3000:]
    assert "worker killed: every row once" in done.stdout, said
    assert "executor killed: every row once" in done.stdout, said
