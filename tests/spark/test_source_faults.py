"""Processes die under a query, the bridge and a shard: no row is lost or doubled."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

from tests.support.node import NodeProcess, free_port, wait_for
from tests.support.spark_queries import QUERY_WITHIN_S, create, every_place, fill, places, start

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
