"""Replies that a node puts into a consumer's memory: each record is read once, whole and in order, whoever stops, dies
or forks, and what was read stays what it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from ringlog.client import consumer as consumer_module
from ringlog.client.admin import Admin
from ringlog.client.consumer import Consumer
from ringlog.client.near_memory import landing_memory
from ringlog.client.producer import Producer
from ringlog.client.records import ConsumerRecord
from tests.support.amounts import cases, chance
from tests.support.node import NodeProcess, wait_for
from tests.support.patience import stretched

TOPIC, PARTITIONS, RECORD_BYTES = "near", 4, 1000
RECORDS = 40_000
"""Ten megabytes in each partition."""


@pytest.fixture
def node(tmp_path: Path):
    with NodeProcess(str(tmp_path / "data"), shards=2) as made:
        with Admin(made.bootstrap) as admin:
            admin.create_topic(TOPIC, num_partitions=PARTITIONS)
        with Producer(made.bootstrap, batch_size=100_000) as producer:
            rows = np.arange(RECORDS, dtype="<u8")
            per_partition = RECORDS // PARTITIONS
            futures = [
                producer.produce_many(TOPIC, filled(rows[start : start + per_partition]), partition=partition)
                for partition, start in enumerate(range(0, RECORDS, per_partition))
            ]
            for future in futures:
                future.result(60)
        yield made


def filled(numbers: np.ndarray) -> np.ndarray:
    """Records that begin with their number, and are filled with it."""
    rows = np.repeat((numbers % 251).astype(np.uint8)[:, None], RECORD_BYTES, axis=1)
    rows[:, :8] = numbers.view(np.uint8).reshape(-1, 8)
    return rows


def number_of(record: ConsumerRecord) -> int:
    """Of a record that must be whole."""
    value = record.value
    number = int.from_bytes(value[:8], "little")
    assert value[8:] == bytes([number % 251]) * (RECORD_BYTES - 8)
    assert number == record.partition * (RECORDS // PARTITIONS) + record.offset
    return number


def near_bytes(node: NodeProcess) -> int:
    return node.metric("near_bytes_out_total", "net")


def mapped(node: NodeProcess) -> int:
    """How many memories of clients the network process has mapped."""
    maps = Path(f"/proc/{node.pid_of('net')}/maps").read_text()
    return sum("ringlog-client" in line for line in maps.splitlines())


def read_all(
    consumer: Consumer, at_each: Callable[[int], None] = lambda read: None, most: int = 700
) -> list[int]:
    """The numbers of all records from the beginning on."""
    consumer.assign([(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: list[int] = []
    until = time.monotonic() + stretched(60)
    while len(found) < RECORDS and time.monotonic() < until:
        found += [number_of(record) for record in consumer.poll(timeout_ms=500, max_records=most)]
        at_each(len(found))
    assert not consumer.poll(timeout_ms=200), "more records than there are"
    return found


def assert_whole(found: list[int]) -> None:
    """Each once, and in the order of its partition, which `number_of` has checked to be that of its offsets."""
    assert sorted(found) == list(range(RECORDS))
    size = RECORDS // PARTITIONS
    for partition in range(PARTITIONS):
        mine = [number for number in found if number // size == partition]
        assert mine == sorted(mine)


@pytest.mark.parametrize("cold", [False, True])
def test_a_consumer_on_the_same_host_has_its_replies_put_into_its_memory(node: NodeProcess, cold: bool):
    if cold:
        node.stop()
        node.start()
    with Consumer(node.bootstrap) as consumer:
        assert_whole(read_all(consumer))
        wait_for("the stats", lambda: near_bytes(node) > 0.8 * RECORDS * RECORD_BYTES, stretched(5))
        assert mapped(node) == 1
    wait_for("the memory is let go of", lambda: mapped(node) == 0, stretched(5))


def test_records_that_are_kept_stay_what_they_were_while_others_are_read(node: NodeProcess):
    kept: list[ConsumerRecord] = []
    with Consumer(node.bootstrap) as consumer:
        for _ in range(4):
            consumer.assign([(TOPIC, partition, 0) for partition in range(PARTITIONS)])
            read = 0
            until = time.monotonic() + stretched(60)
            while read < RECORDS and time.monotonic() < until:
                records = consumer.poll(timeout_ms=500, max_records=700)
                kept += records[:: max(1, len(records) - 1)]
                read += len(records)
            consumer.assign([])
        assert read == RECORDS
        for record in kept:
            number_of(record)


def test_arrow_batches_and_raw_batches_come_that_way_too(node: NodeProcess):
    pytest.importorskip("pyarrow")
    with Consumer(node.bootstrap) as consumer:
        consumer.assign([(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        batches = []
        while sum(batch.num_rows for batch in batches) < RECORDS:
            batches.append(consumer.poll_arrow(timeout_ms=stretched(20) * 1000))
        numbers = sorted(
            int.from_bytes(value[:8], "little")
            for batch in batches
            for value in batch.column("value").to_pylist()
        )
    assert numbers == list(range(RECORDS))
    wait_for("the stats", lambda: near_bytes(node) > 0.8 * RECORDS * RECORD_BYTES, stretched(5))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", ["net", "shard"])
def test_fetches_that_were_given_up_leave_nothing_in_memory_that_is_in_use(node: NodeProcess, part: str):
    """A part stands still for longer than fetches wait: when it goes on, it writes where they said."""
    rng = chance(f"near-replies-{part}")
    stopping = threading.Event()

    def disturb() -> None:
        for _ in cases(short=3, full=30):
            if stopping.is_set():
                return
            pid = node.pause(part)
            time.sleep(rng.uniform(0.2, 0.6))
            node.resume(pid)
            time.sleep(0.1)

    settings = {"request_timeout_ms": 50, "fetch_max_wait_ms": 20, "retry_backoff_ms": 1}
    with Consumer(node.bootstrap, **settings, retry_backoff_max_ms=20) as consumer:
        disturber = threading.Thread(target=disturb)
        disturber.start()
        try:
            for _ in range(3):
                assert_whole(read_all(consumer, most=2000))
        finally:
            stopping.set()
            disturber.join()
    assert near_bytes(node) > 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", ["net", "shard"])
def test_a_part_that_is_killed_in_the_middle_costs_no_record(node: NodeProcess, part: str):
    for _ in cases(short=2, full=20):
        with Consumer(node.bootstrap) as consumer:
            killed: list[int] = []

            def kill(read: int, killed: list[int] = killed) -> None:
                if read > RECORDS // 3 and not killed:
                    killed.append(node.kill(part))

            assert_whole(read_all(consumer, kill))
            node.wait_replaced(part, 0, killed[0])
            before = near_bytes(node)
            assert_whole(read_all(consumer))
            wait_for("replies in memory again", lambda b=before: near_bytes(node) > b, stretched(5))


def test_a_consumer_that_is_killed_leaves_nothing_mapped(node: NodeProcess):
    script = f"""
from ringlog import Consumer
consumer = Consumer("{node.bootstrap}")
while True:
    consumer.assign([("{TOPIC}", partition, 0) for partition in range({PARTITIONS})])
    for _ in range(20):
        consumer.poll(1000)
    consumer.assign([])
    print("read", flush=True)
"""
    for _ in cases(short=3, full=30):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None and reader.stdout.readline() == b"read\n"
            reader.kill()
        wait_for("its memory is let go of", lambda: mapped(node) == 0, stretched(10))
    with Consumer(node.bootstrap) as consumer:
        assert_whole(read_all(consumer))


def in_a_process(script: str, node: NodeProcess) -> None:
    head = f"""
import os
from ringlog import Consumer
from tests.fault.node.test_near_replies import PARTITIONS, RECORDS, TOPIC, number_of
consumer = Consumer("{node.bootstrap}")
consumer.assign([(TOPIC, partition, 0) for partition in range(PARTITIONS)])
"""
    # Not run(): the child of a fork that hangs would keep a pipe open.
    process = subprocess.Popen([sys.executable, "-c", head + script], start_new_session=True)
    try:
        assert process.wait(stretched(40)) == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_what_was_read_before_a_fork_stays_what_it_was_while_the_parent_reads_on(node: NodeProcess):
    script = """
kept = [record for _ in range(20) for record in consumer.poll(5000, 200)]
to_child, from_parent = os.pipe()
child = os.fork()
if child:
    os.close(to_child)
    read = len(kept)
    kept.clear()  # what the child has is all that holds these places
    for _ in range(3):
        while read < RECORDS:
            read += len([number_of(record) for record in consumer.poll(5000, 3000)])
        consumer.seek_to_beginning()
        read = 0
    os.close(from_parent)
    assert os.waitpid(child, 0)[1] == 0
    consumer.close()
else:
    os.close(from_parent)
    os.read(to_child, 1)  # until the parent has read it all
    numbers = [number_of(record) for record in kept]
    while len(numbers) < RECORDS:
        numbers += [number_of(record) for record in consumer.poll(5000, 3000)]
    assert sorted(numbers) == list(range(RECORDS))
    os._exit(0)
"""
    in_a_process(script, node)
    wait_for("the parent goes on to read so", lambda: near_bytes(node) > 2.5 * RECORDS * RECORD_BYTES, 5)


def test_the_child_of_a_fork_reads_on_though_its_parent_had_nothing_left(node: NodeProcess):
    script = """
read = 0
while read < RECORDS:
    read += len(consumer.poll(5000, 3000))
assert not consumer.poll(0)
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    from ringlog import Producer
    with Producer(consumer._settings.bootstrap) as producer:
        producer.produce(TOPIC, b"more", partition=0).result(30)
    while not (records := consumer.poll(1000)):
        continue
    os._exit(0 if [record.value for record in records] == [b"more"] else 1)
"""
    in_a_process(script, node)


def test_a_node_that_cannot_open_the_memory_sends_replies_as_ever(node: NodeProcess, monkeypatch):
    """As of another PID namespace, or another user's."""
    made = []

    def elsewhere():
        memory = landing_memory()
        made.append((memory, memory.descriptor))
        memory.descriptor = 1_000_000
        return memory

    monkeypatch.setattr(consumer_module, "landing_memory", elsewhere)
    with Consumer(node.bootstrap) as consumer:
        assert_whole(read_all(consumer))
    assert made and near_bytes(node) == 0


def test_a_host_that_gives_no_such_memory_gets_replies_as_ever(node: NodeProcess, monkeypatch):
    monkeypatch.setattr(consumer_module, "landing_memory", lambda: None)
    with Consumer(node.bootstrap) as consumer:
        assert_whole(read_all(consumer))
    assert near_bytes(node) == 0
