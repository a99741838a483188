"""The bridge as a process, without Spark: the same records as the brokers give, shared, bounded, and let go of."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

import ringlog
from ringlog.errors import OffsetOutOfRange, RinglogError
from ringlog.model import Codec
from ringlog.records.encode import encode
from spark_bridge.arrow_rows import decoded, decoded_columns, within
from spark_bridge.bridge import Bridge
from spark_bridge.bridge_client import bridge_cluster, read_bridged
from spark_bridge.bridge_readers import IDLE_S, LogReader
from spark_bridge.direct import read_direct
from spark_bridge.gaps import GapPolicy
from spark_bridge.ranges import OffsetRange
from tests.support.node import free_port, wait_for
from tests.support.patience import stretched
from tests.support.raw_client import RawClient

COLUMNS = decoded_columns(("key", "value", "timestamp", "headers", "timestampType"))


@pytest.fixture
def bridge(ringlog_node):
    stopping = threading.Event()
    found = Bridge(ringlog_node.bootstrap, ["tcp://127.0.0.1:0"], stopping.is_set)
    thread = threading.Thread(target=found.run)
    thread.start()
    yield found
    stopping.set()
    thread.join()


def address(bridge):
    return bridge.endpoints[0].removeprefix("tcp://")


def fill(node, count, partition=0):
    with ringlog.Producer(bootstrap=node.bootstrap) as producer:
        values = [b"%d" % n * (n % 50) for n in range(count)]
        producer.produce_many("orders", values, keys=values, partition=partition).result(30)


def rows_of(pieces, part):
    found, start = [], part.start
    for made, behind in pieces:
        found += within(made, start, part.end).to_pylist()
        start = behind
    return found


def direct_rows(node, part):
    gaps = GapPolicy(fail_on_data_loss=True)
    pieces = [
        (decoded(one.data, COLUMNS), one.next_offset) for one in read_direct(node.bootstrap, part, gaps)
    ]
    return rows_of(pieces, part)


def test_a_range_through_the_bridge_is_the_range_of_the_broker(ringlog_node, bridge):
    fill(ringlog_node, 30_000)
    assert bridge_cluster(address(bridge), ringlog_node.bootstrap) is None
    for part in (OffsetRange("orders", 0, 0, 30_000), OffsetRange("orders", 0, 777, 20_001)):
        rows = rows_of(read_bridged(address(bridge), part, COLUMNS), part)
        assert [row["offset"] for row in rows] == list(range(part.start, part.end))
        assert rows == direct_rows(ringlog_node, part)


def test_a_bridge_serves_records_of_any_size(ringlog_node, bridge):
    """Also one that is larger than its credit, and between others."""
    with ringlog.Producer(bootstrap=ringlog_node.bootstrap) as producer:
        producer.produce("orders", None, partition=0).result(10)
        producer.produce("orders", b"", key=b"", partition=0).result(10)
    large = b"x" * (10 << 20)
    with RawClient(f"tcp://{ringlog_node.bootstrap}") as client:
        packed = bytes(encode([large], timestamps=3_000, codec=Codec.ZSTD))
        client.produce_bytes(client.partition_ids("orders")[0], packed)
    fill(ringlog_node, 100)
    part = OffsetRange("orders", 0, 0, 103)
    rows = rows_of(read_bridged(address(bridge), part, COLUMNS), part)
    assert [row["value"] for row in rows[:3]] == [None, b"", large]
    assert rows == direct_rows(ringlog_node, part)


def test_executors_share_what_is_hot_and_leave_nothing_behind(ringlog_node, bridge):
    fill(ringlog_node, 20_000)
    part = OffsetRange("orders", 0, 0, 20_000)
    first = rows_of(read_bridged(address(bridge), part, ("offset", "value")), part)
    hot = bridge._hot.nbytes
    assert hot > 0
    reads = []
    bridge._readers.fetch = lambda *call: reads.append(call)
    assert rows_of(read_bridged(address(bridge), part, ("offset", "value")), part) == first
    assert reads == [], "what was decoded once is served again"
    assert bridge._hot.nbytes == hot
    wait_for("no reader", lambda: len(bridge._readers) == 0, stretched(5))


def test_an_executor_that_dies_in_the_middle_is_let_go_of(ringlog_node, bridge):
    fill(ringlog_node, 20_000)
    code = (
        "import sys, time; from spark_bridge.bridge_client import read_bridged\n"
        "from spark_bridge.ranges import OffsetRange\n"
        "pieces = read_bridged(sys.argv[1], OffsetRange('orders', 0, 0, 1_000_000), ('offset',)); next(pieces)\n"
        "print('one', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, address(bridge)], stdout=subprocess.PIPE, text=True, cwd=os.getcwd()
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "one\n"
    assert len(bridge._readers) > 0
    child.kill()
    child.wait()
    wait_for("nobody waits", lambda: len(bridge._desk) == 0, stretched(15))
    wait_for("no reader", lambda: len(bridge._readers) == 0, stretched(IDLE_S + 15))


def test_more_executors_than_readers_wait_their_turn_and_all_get_their_rows(
    ringlog_node, bridge, monkeypatch
):
    partitions, readers = 8, 3
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        admin.create_topic("orders", partitions)
    for partition in range(partitions):
        fill(ringlog_node, 500 + partition, partition)
    bridge._readers._readers_max = readers
    go_on, fetch = threading.Event(), LogReader.fetch
    monkeypatch.setattr(LogReader, "fetch", lambda self, place: go_on.wait(60) and fetch(self, place))

    def read(partition):
        part = OffsetRange("orders", partition, 0, 500 + partition)
        return len(rows_of(read_bridged(address(bridge), part, ("offset", "value")), part))

    with ThreadPoolExecutor(partitions) as threads:
        counts = threads.map(read, range(partitions))
        wait_for(
            "others wait",
            lambda: (len(bridge._readers), bridge._readers.waiting) == (readers, partitions - readers),
            stretched(15),
        )
        go_on.set()
        assert list(counts) == [500 + n for n in range(partitions)]
    assert len(bridge._readers) <= readers


def test_what_the_log_does_not_have_is_an_error_of_its_own_kind(ringlog_node, bridge):
    fill(ringlog_node, 100)
    with ringlog.Admin(bootstrap=ringlog_node.bootstrap) as admin:
        admin.delete_records("orders", {0: 50})
    with pytest.raises(OffsetOutOfRange):
        list(read_bridged(address(bridge), OffsetRange("orders", 0, 10, 100), ("offset",)))


def test_a_bridge_of_another_cluster_or_none_is_not_used(ringlog_node, bridge):
    assert "refused" in str(bridge_cluster(f"127.0.0.1:{free_port()}", ringlog_node.bootstrap))
    with ringlog.embedded() as other:
        assert bridge_cluster(address(bridge), other.bootstrap) == "it belongs to another cluster"
    with pytest.raises(RinglogError):
        list(read_bridged(address(bridge), OffsetRange("nowhere", 0, 0, 5), ("offset",)))


def test_a_node_starts_its_bridge_and_starts_it_again(tmp_path):
    port = free_port()
    command = [sys.executable, "-m", "cli.main", "start", "--bridge", "--json", "--no-pin", "--shards", "1"]
    command += ["--listen", f"tcp://127.0.0.1:{port}", "--data-dir", str(tmp_path / "data")]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None
    assert json.loads(node.stdout.readline())["ready"]
    bootstrap, beside = f"127.0.0.1:{port}", f"127.0.0.1:{port + 100}"
    try:
        wait_for("a bridge", lambda: bridge_cluster(beside, bootstrap) is None, stretched(20), every_s=0.2)
        (first,) = _bridges(node.pid)
        first.kill()
        wait_for("another", lambda: _bridges(node.pid) and first not in _bridges(node.pid), stretched(20))
        wait_for("it answers", lambda: bridge_cluster(beside, bootstrap) is None, stretched(20), every_s=0.2)
        children = _bridges(node.pid)
    finally:
        node.send_signal(signal.SIGTERM)
        node.wait(stretched(20))
    wait_for("the end of all", lambda: not [one for one in children if one.is_running()], stretched(10))


def _bridges(pid):
    found = []
    for one in psutil.Process(pid).children(recursive=True):
        try:
            if "bridge" in one.cmdline():
                found.append(one)
        except psutil.NoSuchProcess:  # a zombie is one, too
            continue
    return found
