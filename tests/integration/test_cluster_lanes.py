"""Clients and replication have lanes of their own on every node: a flood in one does not starve the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ringlog import Admin, Consumer, Producer
from ringlog.model import TopicPartition
from tests.support.cluster import TOPIC, ClusterTrial
from tests.support.node import wait_for
from tests.support.patience import stretched

FLOOD_S = 3.0
WAIT_S_MAX = 2.0
"""For one acknowledgement in a flood: far above what it takes, far below what a starved lane would wait."""
MOVED_BYTES = 48 << 20
CHUNK = [b"x" * 1000] * 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[ClusterTrial]:
    with ClusterTrial(tmp_path_factory.mktemp("lanes")) as made:
        yield made


def alone_on(cluster: ClusterTrial, name: str, node_id: int) -> None:
    """A topic with one replica, on this node."""
    cluster.create_topic(name, 1, factor=1)
    with Admin(cluster.bootstrap) as admin:
        if cluster.topic(name)[0].replicas != [node_id]:
            admin.reassign({TopicPartition(name, 0): [node_id]})
    wait_for("the move", lambda: cluster.topic(name)[0].isr == [node_id], stretched(20))


@contextmanager
def running(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Threads that work until the block ends; none may fail."""
    over, failures = threading.Event(), []

    def run(work: Callable[[threading.Event], None]) -> None:
        try:
            work(over)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(stretched(60))
    assert not failures, failures


def longest_ack_s(
    producer: Producer, topic: str, partition: int, going_on: Callable[[], bool]
) -> tuple[int, float]:
    """Write one record after another for as long as something goes on; how many, and the longest wait for one."""
    waits = []
    while going_on():
        began = time.monotonic()
        producer.produce(topic, b"in between", partition=partition).result(stretched(30))
        waits.append(time.monotonic() - began)
    return len(waits), max(waits)


def test_clients_that_flood_a_node_do_not_starve_its_replication(cluster: ClusterTrial):
    leader = cluster.leader_of(0)
    alone_on(cluster, "flood", leader)

    def write(over: threading.Event) -> None:
        with Producer(cluster.bootstrap, acks=1) as producer:
            while not over.is_set():
                producer.produce_many("flood", CHUNK, partition=0)

    def read(over: threading.Event) -> None:
        with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([("flood", 0)])
            while not over.is_set():
                consumer.poll_batches(100)

    epochs = [one.leader_epoch for one in cluster.topic()]
    with Producer(cluster.bootstrap, linger_ms=0) as producer, Admin(cluster.bootstrap) as admin:
        producer.produce(TOPIC, b"first", partition=0).result(stretched(30))
        before = admin.describe_topic("flood").partitions[0].next_offset
        with running(write, write, read):
            until = time.monotonic() + FLOOD_S
            acks, longest_s = longest_ack_s(producer, TOPIC, 0, lambda: time.monotonic() < until)
        flooded = admin.describe_topic("flood").partitions[0].next_offset - before
    assert flooded > 10_000, "that was no flood"
    assert acks >= 5 and longest_s < stretched(WAIT_S_MAX), f"{acks} commits, one of {longest_s:.2f} s"
    assert all(len(one.isr) == 3 for one in cluster.topic()), "followers kept up"
    assert [one.leader_epoch for one in cluster.topic()] == epochs


def test_replicas_that_are_moved_to_a_node_do_not_starve_its_clients(cluster: ClusterTrial):
    source, target = cluster.leader_of(0), cluster.leader_of(1)
    assert source != target
    alone_on(cluster, "heavy", source)
    alone_on(cluster, "light", target)
    with Producer(cluster.bootstrap, linger_ms=0) as producer, Admin(cluster.bootstrap) as admin:
        for _ in range(MOVED_BYTES // (len(CHUNK) * len(CHUNK[0]))):
            producer.produce_many("heavy", CHUNK, partition=0)
        producer.flush(stretched(60))
        producer.produce("light", b"first", partition=0).result(stretched(30))
        [move] = admin.reassign({TopicPartition("heavy", 0): [target]})
        assert not move.error
        moved = threading.Event()

        def watch(over: threading.Event) -> None:
            wait_for(
                "the move", lambda: cluster.topic("heavy")[0].isr == [target], stretched(60), every_s=0.05
            )
            moved.set()

        with running(watch):
            acks, longest_s = longest_ack_s(producer, "light", 0, lambda: not moved.wait(0.0))
        assert admin.describe_topic("heavy").partitions[0].bytes >= MOVED_BYTES
    assert longest_s < stretched(WAIT_S_MAX), f"{acks} acknowledgements, one after {longest_s:.2f} s"
