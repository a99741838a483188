"""Three real nodes as a cluster: they leave and come back in order, wait for each other, and never mix clusters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import zmq

from ringlog import Admin, Producer
from ringlog.consensus.messages import Voter
from ringlog.errors import DeliveryTimeout, NotLeader, RinglogError
from ringlog.limits import BROKER_SESSION_MS
from ringlog.model import TopicPartition
from ringlog.net.framing import Api
from ringlog.net.messages import CreateTopicRequest, TopicReply
from ringlog.node.clean_stop import CLEAN_STOP_NAME
from ringlog.node.control import status
from ringlog.node.quorum_store import QuorumStore, look
from tests.support.cluster import BACK_WITHIN_S, NODES, TOPIC, ClusterNode, ClusterTrial, free_ports
from tests.support.node import NodeProcess, wait_for
from tests.support.patience import stretched
from tests.support.raw_client import RawClient

WITHIN_S = 20.0


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    with ClusterTrial(tmp_path_factory.mktemp("nodes")) as trial:
        yield trial


@pytest.fixture
def cluster(trial):
    """All nodes are there before a test, whatever the one before it did."""
    for node in trial.nodes.values():
        if node.is_running:
            node.thaw()
    trial.start(*(node_id for node_id, node in trial.nodes.items() if not node.is_running))
    trial.wait_in_sync()
    return trial


class Writing(threading.Thread):
    """One record after another to each partition, each waited for."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.partitions = bootstrap, partitions
        self.acked = 0
        self.failed: list[BaseException] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        with Producer(self.bootstrap) as producer:
            while not self.stopped.is_set():
                try:
                    for partition in range(self.partitions):
                        producer.produce(TOPIC, b"x", partition=partition).result(stretched(WITHIN_S))
                        self.acked += 1
                except RinglogError as error:
                    self.failed.append(error)
                    return


def metric(node: NodeProcess, name: str) -> int:
    """A gauge of a node's controller process."""
    return node.metric(name, "controller")


def soon(what: str, condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    wait_for(what, condition, stretched(within_s), every_s=0.05)


def test_nodes_find_each_other_and_agree_on_one_controller(cluster: ClusterTrial):
    controllers = set()
    for node in cluster.nodes.values():
        with RawClient(node.endpoint) as client:
            found = client.metadata([TOPIC])
        assert {broker.node_id for broker in found.brokers} == {1, 2, 3}
        assert found.node_id == node.node_id
        own = next(broker for broker in found.brokers if broker.node_id == node.node_id)
        assert own.endpoints[0] == node.endpoint and own.host_id
        controllers.add(found.controller_id)
    assert len(controllers) == 1
    soon(
        "one that says it is the controller",
        lambda: sum(metric(node, "active_controller") for node in cluster.nodes.values()) == 1,
    )


def test_a_node_that_stops_in_order_hands_over_and_comes_back_in_sync(cluster: ClusterTrial):
    writing = Writing(cluster.bootstrap, cluster.partitions)
    writing.start()
    for victim in (cluster.controller(), cluster.leader_of(0)):
        others = [node for node_id, node in cluster.nodes.items() if node_id != victim]
        before = {node.node_id: Path(node.log_path).read_text() for node in others}
        cluster.stop(victim)
        left = cluster.topic(avoid=[victim])
        assert all(one.leader_node not in (victim, -1) for one in left), "it led until another one did"
        assert all(victim not in one.isr for one in left)
        clean = Path(cluster.nodes[victim].data_dir, CLEAN_STOP_NAME)
        assert clean.exists()
        cluster.start(victim)
        for node in others:
            said = Path(node.log_path).read_text()[len(before[node.node_id]) :]
            assert f"node {victim} is dead" not in said
        assert not clean.exists(), "the next stop has to be clean anew"
        cluster.wait_in_sync(within_s=BACK_WITHIN_S)
    acked = writing.acked
    soon("more acks", lambda: writing.acked > acked or writing.failed)
    writing.stopped.set()
    writing.join(stretched(WITHIN_S))
    assert not writing.failed


def test_a_controller_process_that_dies_alone_changes_nothing_for_clients(cluster: ClusterTrial):
    node = cluster.nodes[cluster.controller()]
    old = node.kill("controller")
    node.wait_replaced("controller", 0, old)
    cluster.create_topic("after", 1)
    cluster.wait_in_sync()
    with RawClient(node.endpoint) as client:
        soon("it knows the topic, too", lambda: client.metadata(["after"]).topics[0].error == "")


def test_what_the_cluster_lacks_is_told_by_status_and_metrics(cluster: ClusterTrial):
    victim = cluster.leader_of(0)
    others = [node for node_id, node in cluster.nodes.items() if node_id != victim]
    cluster.nodes[victim].kill_all()
    for node in others:
        soon("the missing node", lambda node=node: metric(node, "cluster_nodes_fenced") == 1)
        soon(
            "its replicas",
            lambda node=node: metric(node, "under_replicated_partitions") >= cluster.partitions,
        )
        found = status(node.data_dir, sample_s=0.01)
        assert found.cluster is not None and found.cluster.nodes_fenced == 1
        assert any("not in sync" in what for what in found.wrong)
    cluster.start(victim)
    cluster.wait_in_sync(within_s=BACK_WITHIN_S)
    for node in cluster.nodes.values():
        # Before it knows the others it counts nothing.
        soon("its word", lambda node=node: metric(node, "cluster_nodes") == 3)
        soon("nothing lacks", lambda node=node: metric(node, "under_replicated_partitions") == 0)
        assert metric(node, "cluster_nodes_fenced") == 0


@pytest.mark.parametrize("away", [1, 3])
def test_when_all_nodes_have_crashed_the_two_that_are_back_serve_without_the_third(
    cluster: ClusterTrial, away: int
):
    """All that was acknowledged was flushed by each of them: nobody need wait for the machine that never returns."""
    with Producer(cluster.bootstrap) as producer:
        for partition in range(cluster.partitions):
            producer.produce(TOPIC, b"before", partition=partition).result(stretched(WITHIN_S))
    for node in cluster.nodes.values():
        node.freeze()  # all at once: else those that still live go on without who died first
    for node in cluster.nodes.values():
        node.kill_all()
    back = [node_id for node_id in cluster.nodes if node_id != away]
    cluster.start(*back)
    cluster.wait_in_sync(count=2)
    with Producer(cluster.nodes[back[0]].bootstrap) as producer:
        for partition in range(cluster.partitions):
            sent = producer.produce(TOPIC, b"after", partition=partition).result(stretched(WITHIN_S))
            assert sent.durability == "committed"
    cluster.start(away)
    cluster.wait_in_sync()


def test_a_node_whose_cluster_lost_its_quorum_says_so_and_counts_on_nobody_that_it_does_not_hear(
    cluster: ClusterTrial,
):
    left, *victims = cluster.nodes
    node, led = cluster.nodes[left], sum(one.leader_node != left for one in cluster.topic())
    for victim in victims:
        cluster.nodes[victim].freeze()  # both at once: else one is replaced before the other is gone
    for victim in victims:
        cluster.nodes[victim].kill_all()
    for name, least in (
        ("no_controller_ms", BROKER_SESSION_MS),
        ("cluster_nodes_fenced", 2),
        ("offline_partitions", led),
        ("under_replicated_partitions", cluster.partitions),
        ("below_min_isr_partitions", cluster.partitions),
    ):
        soon(name, lambda name=name, least=least: metric(node, name) >= least)
    found = status(node.data_dir, sample_s=0.01)
    assert found.cluster is not None and found.cluster.no_controller_s >= BROKER_SESSION_MS / 1000
    assert any("nobody leads the metadata" in what for what in found.wrong)
    with Admin(node.bootstrap) as admin:
        told = admin.describe_cluster()
        assert (told.controller_id, told.healthy) == (-1, False)
        assert [one.node_id for one in told.nodes if one.live] == [left]
        assert len(told.under_replicated) >= cluster.partitions
        assert len(told.offline) >= led
    cluster.start(*victims)
    cluster.wait_in_sync()
    soon("a controller", lambda: metric(node, "no_controller_ms") == 0)
    soon("nothing lacks", lambda: metric(node, "under_replicated_partitions") == 0)
    with Admin(node.bootstrap) as admin:
        soon("all is well", lambda: admin.describe_cluster().healthy)


def test_a_write_that_no_quorum_could_let_go_on_ends_with_a_typed_timeout_and_may_be_there(
    cluster: ClusterTrial,
):
    name = "in-doubt"  # of one partition: a description asks the leaders of all
    cluster.create_topic(name, 1)
    soon("all in sync", lambda: all(len(one.isr) == 3 for one in cluster.topic(name)))
    left = cluster.leader_of(0, name)
    victims = [node_id for node_id in cluster.nodes if node_id != left]
    with Producer(cluster.bootstrap, delivery_timeout_ms=3000, request_timeout_ms=2000) as producer:
        before = producer.produce(name, b"before", partition=0).result(stretched(WITHIN_S)).offset
        for victim in victims:
            cluster.nodes[victim].freeze()
        for victim in victims:
            cluster.nodes[victim].kill_all()
        with pytest.raises(DeliveryTimeout):
            producer.produce(name, b"in doubt", partition=0).result(stretched(WITHIN_S))
        with Admin(cluster.nodes[left].bootstrap) as admin:
            found = admin.describe_topic(name).partitions[0]
            assert found.readable_offset == before + 1 < found.next_offset, (
                "kept on one disk, and not committed"
            )
    cluster.start(*victims)
    cluster.wait_in_sync()
    with Admin(cluster.bootstrap) as admin:
        admin.delete_topic(name)


def test_partitions_are_moved_and_what_they_left_is_removed(cluster: ClusterTrial):
    name = "moved"
    cluster.create_topic(name, 2, factor=2)
    with Producer(cluster.bootstrap) as producer, Admin(cluster.bootstrap) as admin:
        for partition in (0, 1):
            producer.produce(name, b"kept", partition=partition).result(stretched(WITHIN_S))
        before = {one.index: one.replicas for one in cluster.topic(name)}
        drained = before[0][0]
        moves = admin.drain_node(drained)
        assert not any(move.error for move in moves if move.partition.topic == name)

        def has_left() -> bool:
            here = Path(cluster.nodes[drained].data_dir)
            return not any(drained in one.replicas for one in cluster.topic(name)) and not list(
                here.glob(f"{name}-[0-9]")
            )

        soon("the move", has_left)
        assert all(len(one.isr) == 2 for one in cluster.topic(name))
        stays = {move.partition.topic for move in moves if move.error}
        assert stays <= {TOPIC, "after", "__consumer_offsets"}, "three replicas need all three nodes"
        back = {TopicPartition(name, index): replicas for index, replicas in before.items()}
        admin.drain_node(drained, undo=True)
        assert not any(move.error for move in admin.reassign(back))
        soon("the way back", lambda: {one.index: one.replicas for one in cluster.topic(name)} == before)
        producer.produce(name, b"more", partition=0).result(stretched(WITHIN_S))
    cluster.wait_in_sync(name)


def test_what_was_deleted_does_not_come_back_with_another_leader(cluster: ClusterTrial):
    name = "cut"
    cluster.create_topic(name, 1)
    with Producer(cluster.bootstrap) as producer, Admin(cluster.bootstrap) as admin:
        for number in range(10):
            producer.produce(name, b"%d" % number, partition=0).result(stretched(WITHIN_S))
        assert admin.delete_records(name, {0: 7}, timeout=stretched(WITHIN_S)) == {0: 7}
        first = cluster.leader_of(0, name)
        cluster.nodes[first].kill_all()
        soon("another leader", lambda: cluster.leader_of(0, name) != first)
        producer.produce(name, b"after", partition=0).result(stretched(WITHIN_S))
        found = cluster.topic(name)[0]
        assert start_at_leader(cluster, found.leader_node, found.partition) == 7
        assert admin.delete_records(name, {0: -1}, timeout=stretched(WITHIN_S)) == {0: 11}
        cluster.start(first)
        cluster.wait_in_sync(name)
        soon("it leads again", lambda: cluster.leader_of(0, name) == first)
        start = start_at_leader(cluster, first, found.partition)
        assert start == 11, "it came back without what was deleted meanwhile"


def start_at_leader(cluster: ClusterTrial, node_id: int, partition: int) -> int:
    """Where a partition begins, as its leader says: a node may hear that it leads a moment after others did."""
    with RawClient(cluster.nodes[node_id].endpoint) as client:

        def answered() -> int | None:
            try:
                return client.start_offset(partition)
            except NotLeader:
                return None

        soon("its leader answers", lambda: answered() is not None)
        return client.start_offset(partition)


def test_creating_a_topic_waits_for_a_node_that_is_on_its_way(cluster: ClusterTrial):
    victim = next(node_id for node_id in cluster.nodes if node_id != cluster.controller())
    cluster.stop(victim)
    cluster.nodes[victim].start(wait=False)
    asked = next(node for node_id, node in cluster.nodes.items() if node_id != victim)
    with RawClient(asked.endpoint, timeout_s=stretched(WITHIN_S)) as client:
        reply = client._ask(Api.CREATE_TOPIC, CreateTopicRequest("waited", 1, 3), TopicReply)
    assert sorted(reply.topic.partitions[0].replicas) == [1, 2, 3]
    cluster.wait_ready(victim)


def test_a_directory_of_the_cluster_is_refused_elsewhere(cluster: ClusterTrial, tmp_path: Path):
    victim = 3
    node = cluster.nodes[victim]
    cluster.stop(victim)

    def refusal(stray: NodeProcess) -> str:
        stray.data_dir = node.data_dir
        stray.start(wait=False)
        try:
            assert stray._supervisor is not None
            assert stray._supervisor.wait(stretched(WITHIN_S)) == 3
            return stray.log_tail()
        finally:
            stray.destroy()

    alone = NodeProcess(str(tmp_path / "alone"), shards=1)
    assert "is that of node 3 of cluster" in refusal(alone)
    port = free_ports()
    as_one = ClusterNode(1, tmp_path, f"1@127.0.0.1:{port}", shards=1, options=())
    assert "not 1: use another --data-dir or --node-id" in refusal(as_one)


def test_a_node_that_meets_another_cluster_ends_and_says_so(cluster: ClusterTrial, tmp_path: Path):
    """Its address list was mixed up: it knows its own cluster, and finds strangers there."""
    port = free_ports()
    stray = ClusterNode(1, tmp_path, f"1@127.0.0.1:{port}", shards=1, options=())
    stray.start()
    assert stray.stop() == 0
    path = Path(stray.data_dir, "quorum.log")
    members = cluster.nodes[1]._options[cluster.nodes[1]._options.index("--cluster") + 1]
    cluster.stop(1)
    _have_voters(path, (1, 2, 3))
    mixed = ClusterNode(1, tmp_path, members, shards=1, options=())
    mixed.start(wait=False)
    try:
        assert mixed._supervisor is not None
        assert mixed._supervisor.wait(stretched(WITHIN_S)) == 3
        assert "there is another: node" in mixed.log_tail()
    finally:
        mixed.destroy()
        stray.destroy()


def _have_voters(path: Path, node_ids: tuple[int, ...]) -> None:
    """The file of a cluster of other nodes, as if it had been theirs from the beginning."""
    owner = look(str(path.parent))
    assert owner is not None and owner.cluster_id
    path.unlink()
    store = QuorumStore(str(path.parent), owner.node_id, tuple(Voter(node_id, "") for node_id in node_ids))
    store.join(owner.cluster_id)
    store.close()


def test_a_single_node_may_be_a_cluster(tmp_path: Path):
    node = ClusterNode(5, tmp_path, f"5@127.0.0.1:{free_ports()}", shards=1, options=("--rack", "r1"))
    with node, Producer(node.bootstrap) as producer:
        assert producer.produce("greetings", b"hello").result(stretched(WITHIN_S)).durability == "committed"
        with RawClient(node.endpoint) as client:
            (broker,) = client.metadata([]).brokers
        assert (broker.node_id, broker.rack) == (5, "r1")


def test_a_node_that_waits_for_the_others_sleeps_while_clients_wait_for_it(tmp_path: Path):
    members = ",".join(f"{node_id}@127.0.0.1:{free_ports()}" for node_id in NODES)
    node = ClusterNode(1, tmp_path, members, shards=1, options=())
    node.start(wait=False)
    context = zmq.Context()
    try:
        net = wait_for("its network process", lambda: _child(node, "rl-net-0"), stretched(WITHIN_S))
        client = context.socket(zmq.DEALER)
        client.connect(node.endpoint)
        client.send(b"a question that nobody can answer yet")
        time.sleep(0.5)
        before_s = sum(net.cpu_times()[:2])
        time.sleep(1)
        assert sum(net.cpu_times()[:2]) - before_s < 0.1, "it goes round and round"
    finally:
        context.destroy(0)
        node.destroy()


def _child(node: NodeProcess, name: str) -> psutil.Process | None:
    return next((child for child in psutil.Process(node.pid).children() if child.name() == name), None)
