"""Batches that a node reads out of a producer's memory: each stands once and in order, whoever stops or dies."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from ringlog.client.admin import Admin
from ringlog.client.consumer import Consumer
from ringlog.client.producer import Producer
from tests.support.amounts import cases, chance
from tests.support.node import NodeProcess, wait_for
from tests.support.patience import stretched

TOPIC, PARTITIONS, RECORD_BYTES = "near", 4, 1000
CHUNK = 300
"""Records of one call: some batches of 100 KB."""
SETTINGS = {"batch_size": 100_000, "buffer_memory": 8_000_000}


@pytest.fixture
def node(tmp_path: Path):
    with NodeProcess(str(tmp_path / "data"), shards=2) as made:
        with Admin(made.bootstrap) as admin:
            admin.create_topic(TOPIC, num_partitions=PARTITIONS)
        yield made


def near_bytes(node: NodeProcess) -> int:
    return node.metric("near_bytes_in_total", "net")


def chunk_of(number: int) -> np.ndarray:
    """Records that begin with their number, and are filled with it."""
    rows = np.full((CHUNK, RECORD_BYTES), number % 251, dtype=np.uint8)
    numbers = np.arange(number * CHUNK, (number + 1) * CHUNK, dtype="<u8")
    rows[:, :8] = numbers.view(np.uint8).reshape(CHUNK, 8)
    return rows


def read_back(node: NodeProcess, count: int) -> list[list[int]]:
    """The numbers of all records, by partition; each must be whole."""
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    until = time.monotonic() + stretched(30)
    with Consumer(node.bootstrap) as consumer:
        consumer.assign([(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        while sum(map(len, found)) < count and time.monotonic() < until:
            for record in consumer.poll(timeout_ms=500, max_records=10_000):
                number = int.from_bytes(record.value[:8], "little")
                assert record.value[8:] == bytes([number // CHUNK % 251]) * (RECORD_BYTES - 8)
                found[record.partition].append(number)
        more = consumer.poll(timeout_ms=300)
    assert not more, "more records than were sent"
    return found


def test_a_producer_on_the_same_host_has_its_batches_read_where_they_lie(node: NodeProcess):
    with Producer(node.bootstrap, **SETTINGS) as producer:
        for number in range(20):
            producer.produce_many(TOPIC, chunk_of(number)).result(30)
    assert sorted(chain(*read_back(node, 20 * CHUNK))) == list(range(20 * CHUNK))
    sent = 20 * CHUNK * RECORD_BYTES
    wait_for("the stats", lambda: near_bytes(node) > 0.8 * sent, stretched(5))


def test_large_batches_that_were_made_record_by_record_or_are_compressed_are_read_there_too(
    node: NodeProcess,
):
    rows = chunk_of(0)
    with Producer(node.bootstrap, **SETTINGS, linger_ms=500) as producer:
        for row in rows:
            producer.produce(TOPIC, row.tobytes(), partition=0)
        producer.flush(30)
    wait_for("the stats", lambda: near_bytes(node) > 0, stretched(5))
    noise = np.random.default_rng(3).integers(0, 256, (CHUNK, RECORD_BYTES), dtype=np.uint8)
    noise[:, :8] = chunk_of(1)[:, :8]
    before = near_bytes(node)
    with Producer(node.bootstrap, **SETTINGS, compression_type="lz4") as producer:
        producer.produce_many(TOPIC, noise, partition=1).result(30)
    wait_for("the stats", lambda: near_bytes(node) > before, stretched(5))
    with Consumer(node.bootstrap) as consumer:
        consumer.assign([(TOPIC, 0, 0), (TOPIC, 1, 0)])
        found: dict[int, list[bytes]] = {0: [], 1: []}
        until = time.monotonic() + stretched(20)
        while sum(map(len, found.values())) < 2 * CHUNK and time.monotonic() < until:
            for record in consumer.poll(timeout_ms=500):
                found[record.partition].append(record.value)
    assert found == {0: [row.tobytes() for row in rows], 1: [row.tobytes() for row in noise]}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", ["net", "shard"])
def test_requests_that_were_given_up_leave_nothing_of_other_batches(node: NodeProcess, part: str):
    """A part stands still for longer than requests wait: when it goes on, other batches lie where they did."""
    rng = chance(f"near-{part}")
    stopping = threading.Event()
    futures = []
    settings = {**SETTINGS, "request_timeout_ms": 150, "retry_backoff_ms": 1, "retry_backoff_max_ms": 20}
    with Producer(node.bootstrap, **settings) as producer:

        def send() -> None:
            while not stopping.is_set():
                futures.append(producer.produce_many(TOPIC, chunk_of(len(futures))))
                time.sleep(0.002)

        sender = threading.Thread(target=send)
        sender.start()
        for _ in cases(short=3, full=30):
            time.sleep(0.2)
            pid = node.pause(part)
            time.sleep(rng.uniform(0.2, 0.6))
            node.resume(pid)
        time.sleep(0.3)
        stopping.set()
        sender.join()
        for future in futures:
            future.result(stretched(60))
    count = len(futures) * CHUNK
    found = read_back(node, count)
    assert sorted(chain(*found)) == list(range(count))
    assert all(numbers == sorted(numbers) for numbers in found)
    assert near_bytes(node) > 0


def test_a_new_network_process_is_shared_the_memory_anew(node: NodeProcess):
    with Producer(node.bootstrap, **SETTINGS) as producer:
        producer.produce_many(TOPIC, chunk_of(0)).result(30)
        node.wait_replaced("net", 0, node.kill("net"))
        for number in range(1, 10):
            producer.produce_many(TOPIC, chunk_of(number)).result(30)
        wait_for("the new process reads the memory", lambda: near_bytes(node) > 0, stretched(5))
    assert sorted(chain(*read_back(node, 10 * CHUNK))) == list(range(10 * CHUNK))


def test_a_child_of_a_fork_makes_its_batches_in_memory_of_its_own(node: NodeProcess):
    script = f"""
import os, sys, numpy as np
from ringlog import Producer
from tests.fault.node.test_near_batches import CHUNK, SETTINGS, TOPIC, chunk_of
producer = Producer("{node.bootstrap}", **SETTINGS)
producer.produce_many(TOPIC, chunk_of(0)).result(30)
child = os.fork()
for number in (range(1, 40, 2) if child else range(2, 40, 2)):
    producer.produce_many(TOPIC, chunk_of(number)).result(30)
producer.close()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=stretched(100), cwd=os.getcwd())
    assert sorted(chain(*read_back(node, 40 * CHUNK))) == list(range(40 * CHUNK))
