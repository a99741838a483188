"""`ringlog cluster` and the columns of `ringlog topic` that only a cluster has: what is asked, and what is printed."""

from __future__ import annotations

import json

import pytest

from cli.failures import ExitCode
from ringlog.client.admin import Admin
from ringlog.client.moving import Move
from ringlog.model import TopicPartition
from tests.support.fake_cluster import FakeCluster
from tests.support.router import RouterNode


@pytest.fixture
def cluster():
    with FakeCluster() as made:
        yield made


@pytest.fixture
def ask(run, cluster):
    """Run a command with the cluster's addresses."""
    return lambda *words: run(*words, "--bootstrap", cluster.bootstrap())


def rows(result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines()]


def test_a_topic_is_made_with_replicas_and_a_minimum_in_sync(ask, cluster):
    made = ask("topic", "create", "orders", "-p", 3, "--replication-factor", 3, "--min-insync", 2)
    assert made.stdout == "Created orders with 3 partitions on 3 nodes each.\n"
    assert cluster.topics["orders"].config == {"min.insync.replicas": "2"}
    assert cluster.factors == [3]


def test_without_a_number_of_replicas_the_cluster_decides(ask, cluster):
    assert json.loads(ask("topic", "create", "orders", "-p", 2, "--json").stdout)["replicas"] == 3
    assert cluster.factors == [-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--replication-factor", 2, "--min-insync", 3), "nothing could ever be written"),
        (("--min-insync", 2, "--config", "min.insync.replicas=1"), "give one of them"),
    ],
)
def test_what_could_never_work_is_refused_before_anyone_is_asked(ask, cluster, words, said):
    result = ask("topic", "create", "orders", *words)
    assert result.exit_code == ExitCode.USAGE
    assert said in " ".join(result.stderr.split())
    assert cluster.topics == {}


def test_describe_shows_leader_replicas_and_who_is_in_sync(ask, cluster):
    cluster.create("orders", 3)
    cluster.move("orders", 0, 2)
    cluster.move("orders", 1, -1)
    result = ask("topic", "describe", "orders")
    heading = next(line for line in rows(result) if line[0] == "PARTITION")
    assert heading[:5] == ["PARTITION", "LEADER", "REPLICAS", "IN", "SYNC"]
    assert [line[:4] for line in rows(result)[-3:]] == [
        ["0", "2", "1,2,3", "2,3"],
        ["1", "none", "1,2,3", "1,3"],
        ["2", "3", "1,2,3", "1,2,3"],
    ]
    [found] = [json.loads(line) for line in ask("topic", "describe", "orders", "--json").stdout.splitlines()]
    assert [(p["leader"], p["replicas"], p["isr"]) for p in found["partitions"]][1] == (-1, [1, 2, 3], [1, 3])


def test_a_healthy_cluster_says_so(ask, cluster):
    cluster.create("orders", 3)
    result = ask("cluster", "describe")
    assert "cluster fake: 3 nodes, 1 topic, 3 partitions; node 1 leads the metadata" in result.stdout
    assert rows(result)[2][:6] == ["1", "live", "r1", "1", "3", "3"]
    assert result.stdout.endswith("All replicas are in sync.\n")


def test_what_is_in_danger_is_named(ask, cluster):
    cluster.create("orders", 3, {"min.insync.replicas": "3"})
    cluster.elect(3)
    cluster.move("orders", 0, -1)
    text = ask("cluster", "describe").stdout
    assert "1 partition (orders-0) without a leader: start the nodes that were in sync last; " in text
    assert "1 partition (orders-2) below min.insync.replicas" in text
    assert "2 partitions (orders-0, orders-2) with replicas that are not in sync." in text
    assert "Away: 3." in text
    found = json.loads(ask("cluster", "describe", "--json").stdout)
    assert (found["healthy"], found["offline"], found["below_min_insync"]) == (
        False,
        ["orders-0"],
        ["orders-2"],
    )
    assert [(node["node"], node["live"]) for node in found["nodes"]] == [(1, True), (2, True), (3, False)]


def test_a_node_that_is_drained_is_shown_as_such_also_when_it_is_away(ask, cluster):
    cluster.draining = {2, 3}
    cluster.elect(3)
    states = [(line[0], line[1]) for line in rows(ask("cluster", "describe"))[2:5]]
    assert states == [("1", "live"), ("2", "drained"), ("3", "away,drained")]
    cluster.create("orders", 3)
    result = ask("cluster", "describe")
    assert [line[1] for line in rows(result)[2:5]] == ["live", "draining", "away,draining"]
    assert "Node 2 is being drained, and 3 replicas of it are not being moved: " in result.stdout
    found = json.loads(ask("cluster", "describe", "--json").stdout)
    assert [(node["live"], node["drain"]) for node in found["nodes"]] == [
        (True, None),
        (True, "draining"),
        (False, "draining"),
    ]


def test_a_cluster_whose_metadata_nobody_leads_is_not_called_healthy(ask, cluster):
    cluster.create("orders", 3)
    cluster.controller_id = -1
    text = ask("cluster", "describe").stdout
    assert "Nobody leads the metadata: most nodes are away, or node" in text
    assert "All replicas are in sync." not in text
    assert json.loads(ask("cluster", "describe", "--json").stdout)["healthy"] is False


def test_a_node_by_itself_says_so(run):
    with RouterNode() as node:
        node.create("orders", 2)
        result = run("cluster", "describe", "--bootstrap", node.bootstrap)
    assert result.stdout == f"node 0 at {node.endpoint}, by itself, 1 topic, 2 partitions\n"


def test_another_node_answers_when_the_first_is_dead(ask, cluster):
    cluster.kill(1)
    assert "3 nodes" in ask("cluster", "describe").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("reassign", "orders", "-p", 0, "--replicas", "2,3"), "The moves have begun;"),
        (
            ("reassign", "orders", "-p", 0, "--cancel"),
            "The moves are cancelled: the replicas are what they were",
        ),
        (("drain", 3), "The moves have begun;"),
        (("drain", 3, "--undo"), "The moves are cancelled: the replicas are what they were"),
    ],
)
def test_who_calls_moves_off_is_told_so(ask, monkeypatch, words, said):
    taken = [Move(TopicPartition("orders", 0), [2, 3])]
    monkeypatch.setattr(Admin, "reassign", lambda *_, **__: taken)
    monkeypatch.setattr(Admin, "drain_node", lambda *_, **__: taken)
    result = ask("cluster", *words)
    assert result.exit_code == ExitCode.OK
    first, last = result.stdout.splitlines()
    assert first.startswith(
        "orders-0 stays on 2, 3" if "cancelled" in said else "orders-0 is going to be on 2, 3"
    )
    assert last.startswith(said)


def test_a_drain_that_is_not_whole_names_what_stays_and_ends_with_1(ask, monkeypatch):
    taken = Move(TopicPartition("orders", 0), [1, 2])
    stays = Move(TopicPartition("orders", 1), [1, 2, 3], "NOT_ENOUGH_BROKERS", "there is none. Add a node")
    monkeypatch.setattr(Admin, "drain_node", lambda *_, **__: [taken, stays])
    result = ask("cluster", "drain", 3)
    assert result.exit_code == 1
    assert "orders-1 stays: there is none. Add a node (NOT_ENOUGH_BROKERS)" in result.stdout
    assert (
        "1 partition (orders-1) cannot leave node 3, which gets no new replicas all the same" in result.stderr
    )
    assert "drain 3` again, or take it back with --undo" in result.stderr
