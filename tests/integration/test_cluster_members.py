"""A cluster grows by a node and loses another one for good: real nodes, with records on them all the time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.commands import ringlog
from ringlog import Admin, Consumer, Producer
from tests.support.cluster import TOPIC, ClusterTrial
from tests.support.node import wait_for
from tests.support.patience import stretched

WITHIN_S = 30.0
OLD, ALL, LEFT = (1, 2, 3), (1, 2, 3, 4), (1, 2, 4)


def command(trial: ClusterTrial, *words: object, code: int = 0) -> str:
    done = CliRunner().invoke(
        ringlog, ["cluster", *map(str, words), "--bootstrap", trial.bootstrap, "--json"]
    )
    assert done.exit_code == code, f"{done.output}\n{done.exception}"
    return done.output


def soon(what: str, condition: Any) -> Any:
    return wait_for(what, condition, stretched(WITHIN_S), every_s=0.1)


def restart(trial: ClusterTrial, nodes: Iterable[int], members: Iterable[int]) -> None:
    """One after another, with another list of nodes."""
    for node_id in nodes:
        trial.stop(node_id)
        trial.nodes[node_id].name_members(trial.members(members))
        trial.start(node_id)
        trial.wait_in_sync()


@pytest.mark.timeout(300)
def test_a_node_joins_and_another_one_is_drained_stopped_and_removed_for_good(tmp_path: Path):
    trial = ClusterTrial(tmp_path, nodes=ALL, first=OLD)
    with trial, Producer(trial.bootstrap) as producer:
        sent = [producer.produce(TOPIC, b"%d" % n, partition=n % 3) for n in range(30)]
        restart(trial, OLD, ALL)
        trial.start(4)
        with Admin(trial.bootstrap) as admin:
            soon(
                "the new node",
                lambda: [one.node_id for one in admin.describe_cluster().nodes if one.live] == [*ALL],
            )
            assert "is not drained" in command(trial, "remove", 3, code=3)
            command(trial, "drain", 3)
            soon("the drain", lambda: not any(3 in one.replicas for one in trial.topic()))
            trial.wait_in_sync()
            assert "is running" in command(trial, "remove", 3, code=3)
            trial.stop(3)
            assert json.loads(command(trial, "remove", 3)) == {"removed": 3}
            # Any node is asked, and hears of it from the controller a moment later.
            soon("the end of it", lambda: [one.node_id for one in admin.describe_cluster().nodes] == [*LEFT])
            assert admin.describe_cluster().healthy
        sent += [producer.produce(TOPIC, b"%d" % n, partition=n % 3) for n in range(30, 60)]

        trial.nodes[3].start(wait=False)
        code = trial.nodes[3].wait_end(stretched(WITHIN_S))
        assert code not in (0, None) and "was removed from this cluster" in trial.nodes[3].log_tail()

        # Of four voters three would be needed; of the three that are left, two are enough.
        trial.nodes[trial.controller()].kill_all()
        sent += [producer.produce(TOPIC, b"%d" % n, partition=n % 3) for n in range(60, 90)]
        producer.flush(stretched(WITHIN_S))
        assert all(one.result(stretched(WITHIN_S)).durability == "committed" for one in sent)
        for node_id in [one for one in LEFT if not trial.nodes[one].is_running]:
            trial.nodes[node_id].name_members(trial.members(LEFT))
            trial.start(node_id)
        trial.wait_in_sync()
        with Consumer(trial.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(TOPIC, partition) for partition in range(3)])
            read: list[int] = []
            soon(
                "all records",
                lambda: read.extend(int(r.value) for r in consumer.poll(100)) or len(read) >= 90,
            )
        assert sorted(read) == list(range(90))
