"""An executor of its own process is killed under a query: Spark runs its tasks again, and no row is lost or doubled."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.node import NodeProcess
from tests.support.spark_queries import create, fill

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def node(tmp_path):
    with NodeProcess(str(tmp_path / "data"), shards=2, options=("--no-pin",)) as found:
        yield found


_CLUSTER = """
import os, signal, sys, threading, time
import psutil
from pyspark.sql import SparkSession
import spark_bridge
spark = (SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    .config("spark.executor.memory", "512m").config("spark.driver.host", "127.0.0.1")
    .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"]).getOrCreate())
spark.sparkContext.setLogLevel("OFF")
spark_bridge.register(spark)

def executors():
    return [one for one in psutil.process_iter(["cmdline"])
        if "CoarseGrainedExecutorBackend" in " ".join(one.info["cmdline"] or [])
        and one.environ().get("MARK") == sys.argv[2]]

rows = (spark.read.format("ringlog").option("bootstrap", sys.argv[1]).option("subscribe", "views")
    .option("columns", "partition,offset").option("minPartitions", "24").load())
assert rows.count() == 50_000
killed = []
def kill():
    time.sleep(0.5)
    victim = executors()[0]
    os.kill(victim.pid, signal.SIGKILL)
    killed.append(victim.pid)
killer = threading.Thread(target=kill)
killer.start()
found = sorted(map(tuple, rows.repartition(8).collect()))
killer.join()
assert killed and len(found) == len(set(found)) == 50_000, len(found)
spark.stop()
print("every row once")
"""


def test_an_executor_that_is_killed_costs_no_row(node, tmp_path):
    create(node, "views", 4)
    fill(node, "views", 50_000)
    script = tmp_path / "job.py"
    script.write_text(_CLUSTER)
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": root, "MARK": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script), node.bootstrap, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=500,
        check=False,
    )
    assert "every row once" in done.stdout, done.stdout + done.stderr[-3000:]
