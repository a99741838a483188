"""Clients of a cluster: they find leaders, follow them, and outlive nodes. Fake nodes, real sockets."""

from __future__ import annotations

import threading
import time
from collections import defaultdict

import pytest

import ringlog.client.admin
import ringlog.client.describing
from ringlog import Admin, Producer
from ringlog.client.connection import Connection
from ringlog.client.settings import ClientSettings
from ringlog.errors import DeliveryTimeout, NodeUnavailable, PartitionBusy, UnknownTopic
from ringlog.net.framing import Api
from ringlog.net.messages import InitProducerReply, InitProducerRequest, TopicMetadata
from ringlog.records.decode import decode
from tests.support.fake_cluster import FakeCluster
from tests.support.node import wait_for
from tests.support.patience import stretched


@pytest.fixture
def cluster():
    with FakeCluster() as made:
        yield made


def ask(connection, **kwargs):
    return connection.call(Api.INIT_PRODUCER, InitProducerRequest(), InitProducerReply, **kwargs).producer_id


def values_in(cluster: FakeCluster, topic: str) -> dict[int, list[int]]:
    """By partition, what its log holds, in order."""
    found = defaultdict(list)
    for place in cluster.topics[topic].partitions:
        for batch in cluster.logs[place.partition].batches:
            found[place.index] += [int(record.value) for record in decode(batch)]
    return found


class Writer(threading.Thread):
    """Writes numbers to all partitions in turn until it is stopped."""

    def __init__(self, bootstrap: str, topic: str = "t", partitions: int = 6, **settings) -> None:
        super().__init__(daemon=True)
        self.producer = Producer(bootstrap, retry_backoff_ms=10, **settings)
        self.topic, self.partitions = topic, partitions
        self.futures: list = []
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.is_set():
            number = len(self.futures)
            future = self.producer.produce(self.topic, str(number), partition=number % self.partitions)
            self.futures.append(future)
            self.stopped.wait(0.0005)

    def acknowledged(self) -> int:
        return sum(future.done() for future in list(self.futures))

    def wait_for_more(self, count: int = 200) -> None:
        target = self.acknowledged() + count
        wait_for("more acknowledged records", lambda: self.acknowledged() >= target, 30)

    def finish(self) -> None:
        self.stopped.set()
        self.join()
        self.producer.flush(60)
        self.producer.close()


def check_all_once_and_in_order(cluster: FakeCluster, writer: Writer) -> None:
    found = values_in(cluster, writer.topic)
    count = len(writer.futures)
    assert {i: found[i] for i in range(6)} == {i: list(range(i, count, 6)) for i in range(6)}
    assert all(future.done() and future.exception() is None for future in writer.futures)


def test_each_leader_gets_the_batches_of_its_partitions_and_no_others(cluster):
    cluster.create("t")
    with Producer(cluster.bootstrap(2)) as producer:
        for number in range(60):
            producer.produce("t", str(number), partition=number % 6)
        producer.flush(20)
    assert {n: set(some) for n, some in cluster.asked(Api.PRODUCE).items()} == {
        1: {100, 103},
        2: {101, 104},
        3: {102, 105},
    }


def test_a_dead_leader_costs_no_record_and_no_order(cluster):
    cluster.create("t")
    writer = Writer(cluster.bootstrap())
    writer.start()
    writer.wait_for_more()
    cluster.kill(2)
    cluster.elect(2)
    writer.wait_for_more()
    writer.finish()
    check_all_once_and_in_order(cluster, writer)


def test_records_wait_while_nobody_leads_and_go_on_when_somebody_does(cluster):
    cluster.create("t")
    writer = Writer(cluster.bootstrap())
    writer.start()
    writer.wait_for_more()
    cluster.move("t", 1, -1)
    waiting = [cluster.nodes[n].seen for n in cluster.nodes]
    asked = [len(seen) for seen in waiting]
    wait_for("clients that ask again", lambda: sum(map(len, waiting)) > sum(asked) + 50, 30)
    cluster.move("t", 1, 3)
    writer.wait_for_more()
    writer.finish()
    check_all_once_and_in_order(cluster, writer)


def test_order_holds_while_leaders_move_between_living_nodes(cluster):
    cluster.create("t")
    writer = Writer(cluster.bootstrap())
    writer.start()
    for turn in range(12):
        writer.wait_for_more(60)
        cluster.move("t", turn % 6, 1 + (turn // 2) % 3)
    writer.finish()
    check_all_once_and_in_order(cluster, writer)


def test_a_new_leader_gets_the_first_batch_alone_until_it_has_taken_it(cluster):
    """One that does not know the producer would take any sequence: the second must not come before the first."""
    cluster.create("t", partitions=1)
    with Producer(cluster.bootstrap(), retry_backoff_ms=10, linger_ms=0) as producer:
        producer.produce("t", "0").result(10)
        seen = cluster.nodes[2].seen
        cluster.nodes[1].before = lambda header, body: b"" if header.api_key == Api.PRODUCE else None
        sent = [producer.produce("t", str(n)) for n in range(1, 3)]
        wait_for(
            "batches in flight", lambda: sum(h.api_key == Api.PRODUCE for h in cluster.nodes[1].seen) >= 2, 30
        )
        held = threading.Event()
        cluster.nodes[2].before = lambda header, body: (
            b"" if header.api_key == Api.PRODUCE and not held.is_set() else None
        )
        cluster.move("t", 0, 2)
        cluster.kill(1)
        wait_for("the first batch", lambda: any(h.api_key == Api.PRODUCE for h in seen), 30)
        more = [producer.produce("t", str(n)) for n in range(3, 6)]
        assert sum(h.api_key == Api.PRODUCE for h in seen) == 1
        cluster.nodes[2].restart()
        held.set()
        for future in (*sent, *more):
            future.result(30)
    assert values_in(cluster, "t") == {0: list(range(6))}


def test_a_partition_that_nobody_leads_fails_records_after_the_delivery_timeout(cluster):
    cluster.create("t", partitions=1)
    cluster.move("t", 0, -1)
    with (
        Producer(cluster.bootstrap(), delivery_timeout_ms=400, retry_backoff_ms=10) as producer,
        pytest.raises(DeliveryTimeout, match="no node leads"),
    ):
        producer.produce("t", "lost").result(30)


def test_a_node_that_dies_is_replaced_by_one_that_was_never_named(cluster):
    cluster.create("t")
    connection = Connection(ClientSettings(bootstrap=cluster.bootstrap(1)))
    try:
        first = ask(connection)
        cluster.kill(1)
        assert ask(connection, timeout_s=20) > first
        assert connection._loop._links.home.endpoint in (cluster.nodes[2].endpoint, cluster.nodes[3].endpoint)
    finally:
        connection.close()


def test_one_socket_for_each_node_that_is_needed_and_no_more(cluster):
    cluster.create("t")
    with Producer(cluster.bootstrap(1, 2)) as producer:
        for turn in range(3):
            for index in range(6):
                producer.produce("t", str(turn), partition=index).result(10)
        assert len(producer._connection._loop._links._all) == 3


def test_a_node_that_lags_behind_is_not_believed(cluster):
    cluster.create("t")
    stale = (cluster.version, dict(cluster.topics))
    with Admin(cluster.bootstrap(1)) as admin:
        admin.create_topic("new", 2)
        cluster.nodes[1].lags_since = stale
        assert admin.list_topics() == ["new", "t"]
        assert admin.describe_topic("new").name == "new"


def test_a_topic_that_a_node_has_not_heard_of_yet_is_found_a_moment_later(cluster):
    cluster.nodes[1].lags_since = (cluster.version, {})
    cluster.create("new")

    def catch_up(header, body):
        if (
            header.api_key == Api.METADATA
            and sum(h.api_key == Api.METADATA for h in cluster.nodes[1].seen) > 3
        ):
            cluster.nodes[1].lags_since = None

    cluster.nodes[1].before = catch_up
    with Admin(cluster.bootstrap(1)) as admin:
        assert admin.describe_topic("new").name == "new"
        with pytest.raises(UnknownTopic):
            admin.describe_topic("never")


def test_a_topic_is_described_with_its_leaders_replicas_and_in_sync_replicas(cluster):
    cluster.create("t", partitions=3)
    cluster.move("t", 0, 2)
    cluster.move("t", 1, -1)
    with Admin(cluster.bootstrap()) as admin:
        found = admin.describe_topic("t")
    assert [p.leader for p in found.partitions] == [2, -1, 3]
    assert [p.leader_epoch for p in found.partitions] == [2, 2, 1]
    assert [p.replicas for p in found.partitions] == [[1, 2, 3]] * 3
    assert [p.isr for p in found.partitions] == [[2, 3], [1, 3], [1, 2, 3]]
    assert [p.status for p in found.partitions] == ["open", "no leader", "open"]


@pytest.mark.parametrize("how", ["silent", "gone"])
def test_a_topic_is_described_without_the_offsets_of_leaders_that_cannot_be_reached(
    cluster, how, monkeypatch
):
    monkeypatch.setattr(ringlog.client.describing, "SILENCE_S", 1.0)
    for name in ("s", "t"):
        cluster.create(name, partitions=3)
    with Admin(cluster.bootstrap(1)) as admin:
        admin.describe_topic("t")
        if how == "silent":
            cluster.nodes[3].silent = True
        else:
            cluster.kill(3)
        began_s = time.monotonic()
        found = admin.describe_topic("t")
        both = admin.describe_topics()
        took_s = time.monotonic() - began_s
    assert [p.next_offset for p in found.partitions] == [0, 0, -1]
    assert [p.status for p in found.partitions] == ["open", "open", "no answer"]
    assert [(p.leader, p.replicas) for p in found.partitions] == [(n, [1, 2, 3]) for n in (1, 2, 3)]
    assert [[p.is_known for p in topic.partitions] for topic in both] == [[True, True, False]] * 2
    assert [topic.name for topic in both] == ["s", "t"]
    assert took_s < stretched(5), "a second each, however many topics there are"


def test_a_topic_whose_leader_moves_from_a_silent_node_is_described_whole(cluster):
    cluster.create("t", partitions=3)
    with Admin(cluster.bootstrap(1)) as admin:
        admin.describe_topic("t")
        cluster.nodes[3].silent = True
        threading.Timer(0.5, cluster.elect, [3]).start()
        assert all(p.is_known for p in admin.describe_topic("t").partitions)


def test_a_leader_that_opens_its_log_is_waited_for_as_long_as_the_caller_says(cluster, monkeypatch):
    monkeypatch.setattr(ringlog.client.describing, "SILENCE_S", 0.2)
    cluster.create("t", partitions=1)
    node, ready_s = cluster.nodes[1], time.monotonic() + 0.6
    answer = node.answer

    def answer_later(header, body):
        if header.api_key == Api.DESCRIBE_PARTITIONS and time.monotonic() < ready_s:
            raise PartitionBusy("it is being opened")
        return answer(header, body)

    monkeypatch.setattr(node, "answer", answer_later)
    with Admin(cluster.bootstrap(1)) as admin:
        assert admin.describe_topic("t", timeout=60).partitions[0].is_known


def test_topics_are_described_without_one_that_is_deleted_meanwhile(cluster, monkeypatch):
    for name in ("kept", "deleted"):
        cluster.create(name, partitions=3)
    describe = ringlog.client.admin.describe

    def describe_later(*args):
        with cluster.lock:
            if cluster.topics.pop("deleted", None) is not None:
                cluster.version += 1
        return describe(*args)

    monkeypatch.setattr(ringlog.client.admin, "describe", describe_later)
    with Admin(cluster.bootstrap(1)) as admin:
        assert [one.name for one in admin.describe_topics()] == ["kept"]


def test_topics_are_described_though_the_first_lookup_of_one_fails(cluster, monkeypatch):
    for name in ("s", "t"):
        cluster.create(name, partitions=3)
    failures = [NodeUnavailable("nobody tells about t at the moment")]
    with Admin(cluster.bootstrap(1)) as admin:
        topic = admin._connection.topic

        def topic_later(name, **wanted):
            if name == "t" and failures:
                raise failures.pop()
            return topic(name, **wanted)

        monkeypatch.setattr(admin._connection, "topic", topic_later)
        assert all(p.is_known for one in admin.describe_topics() for p in one.partitions)
    assert not failures


def test_a_topic_is_made_though_a_leader_cannot_be_reached(cluster, monkeypatch):
    monkeypatch.setattr(ringlog.client.describing, "SILENCE_S", 0.5)
    cluster.nodes[3].silent = True
    with Admin(cluster.bootstrap(1)) as admin:
        made = admin.create_topic("t", 3)
    assert [p.is_known for p in made.partitions] == [True, True, False]


def test_a_cluster_is_described_with_its_nodes_and_its_dangers(cluster):
    cluster.create("t", partitions=4, config={"min.insync.replicas": "3"})
    cluster.elect(3)
    cluster.move("t", 0, -1)
    with Admin(cluster.bootstrap()) as admin:
        found = admin.describe_cluster()
    assert (found.cluster_id, found.controller_id, found.healthy) == ("fake", 1, False)
    assert [(node.node_id, node.live, node.rack, node.leads) for node in found.nodes] == [
        (1, True, "r1", 2),
        (2, True, "r2", 1),
        (3, False, "r3", 0),
    ]
    assert found.under_replicated == [("t", 0), ("t", 2)]
    assert found.below_min_insync == [("t", 2)]
    assert found.offline == [("t", 0)]


def test_an_address_that_another_node_has_taken_over_is_not_used(cluster):
    cluster.create("t", partitions=2)
    cluster.nodes[2].claims = 3
    with (
        Producer(
            cluster.bootstrap(1), delivery_timeout_ms=round(stretched(1.5) * 1000), retry_backoff_ms=10
        ) as producer,
        pytest.raises(DeliveryTimeout, match="is node 3 now, not 2"),
    ):
        producer.produce("t", "x", partition=1).result(stretched(30))
    assert cluster.asked(Api.PRODUCE)[2] == []


def test_clusters_are_not_mixed(cluster):
    with FakeCluster(nodes=1, cluster_id="other") as other:
        connection = Connection(ClientSettings(bootstrap=cluster.bootstrap(1)))
        try:
            ask(connection)
            connection._view.named[:] = [other.nodes[1].endpoint]
            for node_id in cluster.nodes:
                cluster.kill(node_id)
            with pytest.raises(NodeUnavailable):
                ask(connection, timeout_s=2)
            assert other.asked(Api.INIT_PRODUCER) == {1: []}
        finally:
            connection.close()


def test_an_older_answer_about_a_leader_does_not_replace_a_newer_one(cluster):
    connection = Connection(ClientSettings(bootstrap=cluster.bootstrap(1)))
    try:
        old = cluster.create("t", partitions=2)
        cluster.move("t", 0, 2)
        connection.topic("t")
        connection._topics.put(old, 0)
        known = connection.topic("t")
        assert isinstance(known, TopicMetadata)
        assert [place.leader_node for place in known.partitions] == [2, 2]
    finally:
        connection.close()


def test_a_leader_that_is_silent_is_left_for_the_one_that_took_over(cluster):
    cluster.create("t")
    writer = Writer(cluster.bootstrap(2))
    writer.start()
    writer.wait_for_more()
    cluster.nodes[2].silent = True
    cluster.elect(2)
    writer.wait_for_more()
    cluster.nodes[2].silent = False
    writer.wait_for_more()
    writer.finish()
    check_all_once_and_in_order(cluster, writer)


def test_what_any_node_can_answer_is_asked_elsewhere_when_home_is_silent(cluster):
    connection = Connection(ClientSettings(bootstrap=cluster.bootstrap(2)))
    try:
        first = ask(connection)
        cluster.nodes[2].silent = True
        assert ask(connection, timeout_s=20) > first
        assert connection._loop._links.home.node in (1, 3)
    finally:
        connection.close()


def test_a_leader_that_is_slow_and_still_leads_keeps_its_records(cluster):
    """Its silence is noticed, others are asked, nothing has moved: no batch is sent twice."""
    cluster.create("t", partitions=2)
    with Producer(cluster.bootstrap(1)) as producer:
        producer.produce("t", "0", partition=1).result(20)
        looks = len(cluster.asked(Api.METADATA)[1]) + len(cluster.asked(Api.METADATA)[3])
        cluster.nodes[2].delay_s = 2.5
        future = producer.produce("t", "1", partition=1)
        future.result(30)
        assert len(cluster.asked(Api.METADATA)[1]) + len(cluster.asked(Api.METADATA)[3]) > looks
        assert len(cluster.asked(Api.PRODUCE)[2]) == 2
