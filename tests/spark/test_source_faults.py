"""Processes die under a query: the bridge, a shard, a Python worker, an executor. No row is lost or doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from tests.support.node import NodeProcess, free_port, wait_for
from tests.support.spark_queries import QUERY_WITHIN_S, create, every_place, fill, places, reader, start

pytestmark = pytest.mark.timeout(600)


class BridgeProcess:
    """`ringlog bridge` beside a node."""

    def __init__(self, node):
        self.address = f"127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "cli.main", "bridge", "--bootstrap", node.bootstrap]
        command += ["--listen", f"tcp://{self.address}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert "is ready on" in self.process.stdout.readline()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture
def node(tmp_path):
    with NodeProcess(str(tmp_path / "data"), shards=2, options=("--no-pin",)) as found:
        yield found


def test_a_query_reads_through_a_bridge_and_goes_on_without_it(spark, node, tmp_path):
    create(node, "views", 4)
    fill(node, "views", 20_000)
    bridge = BridgeProcess(node)
    options = {"subscribe": "views", "bridge": bridge.address, "maxOffsetsPerTrigger": "5000"}
    query = start(spark, node, tmp_path, **options)
    try:
        wait_for("rows through the bridge", lambda: places(spark, tmp_path), QUERY_WITHIN_S, every_s=1)
        assert psutil.Process(bridge.process.pid).cpu_times().user > 0.1
        bridge.end(signal.SIGKILL)
        killed = node.kill("shard", 0)
        fill(node, "views", 5_000)
        wait_for("all rows", lambda: len(places(spark, tmp_path)) >= 25_000, QUERY_WITHIN_S, every_s=1)
        assert node.processes()[("shard", 0)] != killed
    finally:
        query.stop()
    assert places(spark, tmp_path) == every_place(node, "views")


def test_a_worker_that_is_killed_in_its_task_costs_no_row(spark, node):
    create(node, "views", 2)
    fill(node, "views", 200_000)
    before = _workers()
    deaths = []

    def kill_one():
        until = time.monotonic() + QUERY_WITHIN_S
        while not deaths and time.monotonic() < until:
            for pid in _workers() - before:
                os.kill(pid, signal.SIGKILL)
                deaths.append(pid)
                return
            time.sleep(0.01)

    # Two attempts for a task, which local mode does not give by itself, come from running the query again.
    killer = threading.Thread(target=kill_one)
    killer.start()
    rows = reader(spark, node, subscribe="views", columns="partition,offset", bridge="off")
    try:
        found = rows.collect()
    except Exception:
        found = rows.collect()
    killer.join()
    assert deaths
    assert sorted(map(tuple, found)) == every_place(node, "views")


def _workers():
    """Python workers that Spark has forked for tasks."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            parent = process.parent()
            if parent is not None and "pyspark.daemon" in " ".join(parent.cmdline()):
                found.add(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


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
