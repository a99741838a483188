"""Moves of replicas between real nodes in racks, by the command: bounded, watched, called off, and done."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from click.testing import CliRunner

from cli.commands import ringlog
from ringlog import Admin, Producer
from ringlog.errors import InvalidRequest
from ringlog.model import TopicPartition
from tests.support.cluster import ClusterTrial
from tests.support.node import wait_for
from tests.support.patience import stretched

WITHIN_S = 20.0
NAME = "heavy"
VALUES, VALUE_BYTES = 64, 32 << 10


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with ClusterTrial(tmp_path_factory.mktemp("moves"), partitions=1, racks={1: "a", 2: "a", 3: "b"}) as made:
        yield made


@pytest.fixture
def command(cluster):
    """Run `ringlog cluster …`; the objects that it printed."""

    def run(*words: object, code: int = 0) -> list[dict[str, Any]]:
        spoken = ["cluster", *map(str, words), "--bootstrap", cluster.bootstrap, "--json"]
        done = CliRunner().invoke(ringlog, spoken)
        assert done.exit_code == code, f"{done.output}\n{done.exception}"
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def soon(what: str, condition: Any) -> Any:
    return wait_for(what, condition, stretched(WITHIN_S), every_s=0.1)


def test_replicas_go_to_different_racks(cluster: ClusterTrial):
    cluster.create_topic("spread", 6, factor=2)
    racks = {1: "a", 2: "a", 3: "b"}
    assert all({racks[node] for node in one.replicas} == {"a", "b"} for one in cluster.topic("spread"))
    leaders = {one.replicas[0] for one in cluster.topic("spread")}
    assert leaders == {1, 2, 3}, "leaders are spread all the same"


def test_a_move_is_bounded_watched_called_off_and_begun_again(cluster: ClusterTrial, command):
    cluster.create_topic(NAME, 1, factor=1)
    [home] = cluster.topic(NAME)[0].replicas
    away = home % 3 + 1
    with Producer(cluster.bootstrap, linger_ms=50) as producer:
        for sent in [producer.produce(NAME, os.urandom(VALUE_BYTES), partition=0) for _ in range(VALUES)]:
            sent.result(stretched(WITHIN_S))
    assert command("throttle", "100KB") == [{"move_bytes_per_s": 100_000}]
    [begun] = command("reassign", NAME, "--partition", 0, "--replicas", away)
    assert begun["error"] == ""

    def under_way() -> dict[str, Any] | None:
        moves = command("moves")
        return moves[0] if moves and moves[0]["moved_bytes"] > 0 else None

    seen = soon("progress", under_way)
    assert (seen["partition"], seen["adding"], seen["removing"]) == (f"{NAME}-0", [away], [home])
    assert seen["total_bytes"] >= VALUES * VALUE_BYTES, "at this rate it takes twenty seconds"
    assert 0 < seen["percent"] < 100
    [back] = command("reassign", NAME, "--partition", 0, "--cancel")
    assert back["replicas"] == [home]
    # Each command may ask another node, and those hear of it one after the other.
    soon("word of it at every node", lambda: all(command("moves") == [] for _ in range(3)))
    soon("the old replicas", lambda: cluster.topic(NAME)[0].replicas == [home])

    command("reassign", NAME, "--partition", 0, "--replicas", away)
    assert command("throttle", "none") == [{"move_bytes_per_s": None}]
    soon("the end of the move", lambda: cluster.topic(NAME)[0].isr == [away])
    with Admin(cluster.bootstrap) as admin:
        assert admin.describe_topic(NAME).partitions[0].next_offset == VALUES


def test_a_drained_node_keeps_nothing_that_another_one_could(cluster: ClusterTrial, command):
    cluster.create_topic("loose", 3, factor=1)
    moves = command("drain", 2, code=1)
    stays = {move["partition"] for move in moves if move["error"]}
    assert stays >= {"orders-0"}, "three replicas need three nodes"
    assert all(move["error"] == "NOT_ENOUGH_BROKERS" for move in moves if move["error"])

    def has_left() -> bool:
        return not any(2 in one.replicas for name in ("loose", "spread") for one in cluster.topic(name))

    soon("the drain", has_left)

    def drains() -> list[str | None]:
        return [node["drain"] for node in command("describe")[0]["nodes"]]

    soon("it is shown", lambda: drains() == [None, "draining", None])
    with Admin(cluster.bootstrap) as admin:
        assert len(admin.create_topic("as-it-can", 1).partitions[0].replicas) == 2
        with pytest.raises(InvalidRequest, match="node 2 is drained"):
            admin.create_topic("too-many", 1, 3)
        with pytest.raises(InvalidRequest, match="nothing moves them"):
            admin.remove_node(2)
    command("drain", 2, "--undo")
    soon("the end of it", lambda: drains() == [None] * 3)
    with Admin(cluster.bootstrap) as admin:
        [move] = admin.reassign({TopicPartition("loose", 0): [2]})
        assert not move.error, "it may have replicas again"


@pytest.mark.timeout(180)
def test_leaders_follow_the_load_and_stay_where_it_took_them(cluster: ClusterTrial):
    cluster.create_topic("busy", 3)
    with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        moves = admin.reassign({TopicPartition("busy", index): [1, 2, 3] for index in range(3)})
        assert not any(move.error for move in moves)
        soon("one leader of all", lambda: {one.leader_node for one in cluster.topic("busy")} == {1})

        def spread() -> bool:
            for index in range(3):
                producer.produce_many("busy", [bytes(1_000)] * 1_000, partition=index)
            producer.flush(stretched(WITHIN_S))
            return {one.leader_node for one in cluster.topic("busy")} == {1, 2, 3}

        wait_for("leaders by load", spread, stretched(60), every_s=0.1)
        preferred = [one.replicas[0] for one in cluster.topic("busy")]
        assert sorted(preferred) == [1, 2, 3] and all(len(one.isr) == 3 for one in cluster.topic("busy"))
        sent = sum(info.next_offset for info in admin.describe_topic("busy").partitions)
        assert sent % 1_000 == 0, "nothing was lost or doubled on the way"
