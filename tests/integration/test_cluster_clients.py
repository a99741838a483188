"""Clients of a real cluster of three nodes: they outlive nodes that die and nodes that stand still."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict

import pytest
from click.testing import CliRunner

from cli.commands import ringlog
from cli.failures import ExitCode
from ringlog import Admin, Consumer, Producer
from ringlog.errors import UnknownTopic
from ringlog.model import TopicPartition
from ringlog.net.group_messages import OFFSETS_TOPIC
from ringlog.records.partitioner import partition_for
from tests.support.cluster import ClusterTrial
from tests.support.node import wait_for
from tests.support.patience import stretched

PARTITIONS = 3
WITHIN_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    trial = ClusterTrial(tmp_path_factory.mktemp("cluster"), partitions=PARTITIONS)
    for node_id, node in trial.nodes.items():
        node._options += ("--rack", f"rack-{node_id}")
    with trial:
        yield trial


@pytest.fixture
def topic(cluster, request):
    """A topic of the test's own."""
    name = request.node.name[:60]
    cluster.create_topic(name, PARTITIONS, **{"min.insync.replicas": "2"})
    return name


@pytest.fixture
def whole(cluster):
    """Nodes that a test has killed or stopped are back before the next one."""
    yield cluster
    for node in cluster.nodes.values():
        if node.is_running:
            node.thaw()
    cluster.start(*(node_id for node_id, node in cluster.nodes.items() if not node.is_running))
    cluster.wait_in_sync()


class Writer(threading.Thread):
    """Numbers, to all partitions in turn, until it is stopped; by each number the future."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.topic = topic
        self.producer = Producer(bootstrap)
        self.futures: list = []
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.002):
            number = len(self.futures)
            future = self.producer.produce(self.topic, str(number), partition=number % PARTITIONS)
            self.futures.append(future)

    def wait_for_more(self, count: int = 100) -> None:
        """Until so many that are sent from now on are acknowledged, in every partition."""
        target = len(self.futures) + count
        wait_for(
            f"{count} more acknowledged records",
            lambda: (
                len(self.futures) > target
                and all(f.done() for f in self.futures[target - PARTITIONS : target])
            ),
            stretched(WITHIN_S),
        )

    def finish(self) -> int:
        """All that was written stands; how many."""
        self.stopped.set()
        self.join()
        self.producer.flush(stretched(WITHIN_S))
        self.producer.close()
        for future in self.futures:
            future.result(0)
        return len(self.futures)


def read_all(consumer: Consumer, count: int) -> dict[int, list[int]]:
    """By partition, the numbers that a consumer gets until it has so many."""
    found: dict[int, list[int]] = defaultdict(list)
    until_s = time.monotonic() + stretched(WITHIN_S)
    while sum(map(len, found.values())) < count and time.monotonic() < until_s:
        for record in consumer.poll(200):
            found[record.partition].append(int(record.value))
    return found


def each_once_in_order(count: int) -> dict[int, list[int]]:
    return {i: list(range(i, count, PARTITIONS)) for i in range(PARTITIONS)}


def test_a_client_that_was_told_one_address_outlives_the_leader_behind_it(whole, topic):
    dead = whole.leader_of(0, topic)
    writer = Writer(whole.nodes[dead].bootstrap, topic)
    writer.start()
    with Consumer(whole.nodes[dead].bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, i) for i in range(PARTITIONS)])
        writer.wait_for_more()
        whole.nodes[dead].kill_all()
        writer.wait_for_more()
        count = writer.finish()
        assert read_all(consumer, count) == each_once_in_order(count)


def test_a_leader_that_stands_still_is_left_for_the_one_that_takes_over(whole, topic):
    still = whole.leader_of(1, topic)
    writer = Writer(whole.bootstrap, topic)
    writer.start()
    writer.wait_for_more()
    whole.nodes[still].freeze()
    writer.wait_for_more()
    whole.nodes[still].thaw()
    writer.wait_for_more()
    count = writer.finish()
    with Consumer(whole.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, i) for i in range(PARTITIONS)])
        assert read_all(consumer, count) == each_once_in_order(count)


def test_a_producer_hears_at_once_that_its_topic_was_deleted(cluster, topic):
    with Producer(cluster.bootstrap) as producer, Admin(cluster.bootstrap) as admin:
        for partition in range(PARTITIONS):
            producer.produce(topic, b"old", partition=partition).result(stretched(WITHIN_S))
        admin.delete_topic(topic)

        def is_refused() -> bool:
            """A leader may hear of the deletion a moment later, and take records until then."""
            try:
                producer.produce(topic, b"new", partition=0).result(stretched(WITHIN_S))
            except UnknownTopic:
                return True
            return False

        wait_for("the news", is_refused, stretched(5.0))


def test_a_group_goes_on_where_it_was_when_the_node_that_keeps_it_dies(whole, topic):
    group = f"readers-of-{topic}"[:100]
    writer = Writer(whole.bootstrap, topic)
    writer.start()
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(whole.bootstrap, **settings) as consumer:
        consumer.subscribe([topic])
        found = read_all(consumer, 60)
        consumer.commit()
        home = partition_for(group.encode(), 50)
        whole.nodes[whole.leader_of(home, OFFSETS_TOPIC)].kill_all()
        writer.wait_for_more()
        count = writer.finish()
        for partition, numbers in read_all(consumer, count - sum(map(len, found.values()))).items():
            found[partition] += numbers
        assert found == each_once_in_order(count)
        consumer.commit()
    with Admin(whole.bootstrap) as admin:
        committed = admin.group_offsets(group)
        assert {tp: at.offset for tp, at in committed.items()} == {
            TopicPartition(topic, i): len(numbers) for i, numbers in found.items()
        }
        assert admin.describe_group(group).lag == 0
        assert group in [one.group_id for one in admin.list_groups()]


def test_lag_is_known_of_partitions_that_the_groups_node_has_no_replica_of(whole):
    group = "far"
    with (
        Admin(whole.bootstrap) as admin,
        Producer(whole.bootstrap) as producer,
        Consumer(whole.bootstrap, group_id=group, enable_auto_commit=False) as consumer,
    ):
        admin.create_topic("scattered", PARTITIONS, replication_factor=1)
        for number in range(10 * PARTITIONS):
            producer.produce("scattered", b"x", partition=number % PARTITIONS)
        producer.flush(WITHIN_S)
        consumer.commit({("scattered", i): 4 for i in range(PARTITIONS)})
        leaders = {part.leader for part in admin.describe_topic("scattered").partitions}
        assert len(leaders) > 1, "so one of them at least does not keep the group"
        told = admin.describe_group(group)
        assert [(p.committed, p.readable_offset, p.lag) for p in told.partitions] == [(4, 10, 6)] * PARTITIONS
        assert told.lag == 6 * PARTITIONS


def test_a_consumer_reads_from_a_follower_in_its_rack_and_from_the_leader_when_that_dies(whole, topic):
    leader = whole.leader_of(0, topic)
    near = next(node_id for node_id in whole.nodes if node_id != leader)
    with Producer(whole.bootstrap) as producer:
        for number in range(20):
            producer.produce(topic, str(number), partition=0).result(stretched(WITHIN_S))
        settings = {"client_rack": f"rack-{near}", "fetch_max_wait_ms": 20_000}
        with Consumer(whole.nodes[near].bootstrap, **settings) as consumer:
            consumer.assign([(topic, 0, 0)])
            first = read_all(consumer, 19)[0]
            assert first == list(range(len(first))), "a follower hears of the last commit a little later"
            links = consumer._connection._loop._links
            assert {link.node for link in links._all} == {near}, "the leader was not asked"
            whole.nodes[near].kill_all()
            producer.produce(topic, "20", partition=0).result(stretched(WITHIN_S))
            assert read_all(consumer, 21 - len(first)) == {0: list(range(len(first), 21))}


def run(cluster: ClusterTrial, *words: object):
    return CliRunner().invoke(ringlog, [*map(str, words), "--bootstrap", cluster.bootstrap])


def test_commands_make_a_replicated_topic_and_tell_of_the_cluster(whole):
    made = run(whole, "topic", "create", "cli", "-p", 2, "--replication-factor", 3, "--min-insync", 2)
    assert made.stdout == "Created cli with 2 partitions on 3 nodes each.\n", made.stderr
    found = json.loads(run(whole, "cluster", "describe", "--json").stdout)
    assert [node["node"] for node in found["nodes"] if node["live"]] == [1, 2, 3]
    [described] = map(json.loads, run(whole, "topic", "describe", "cli", "--json").stdout.splitlines())
    assert [sorted(p["isr"]) for p in described["partitions"]] == [[1, 2, 3]] * 2


def test_more_replicas_than_nodes_are_refused_with_what_to_do(whole):
    refused = run(whole, "topic", "create", "wide", "--replication-factor", 4)
    assert refused.exit_code in (ExitCode.REFUSED, ExitCode.RETRY)
    assert "4" in refused.stderr and "node" in refused.stderr, refused.stderr
