"""The last in-sync replica is gone: the partition stops and says so, or loses records, loudly, if its topic says so."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import ringlog
from ringlog.client.cluster_info import ClusterInfo
from ringlog.controller.topic_config import UNCLEAN_ELECTION
from ringlog.model import TopicPartition
from ringlog.node.control import status
from tests.support.checkers.replicas import check_replicas
from tests.support.checkers.violations import report
from tests.support.cluster import ClusterTrial
from tests.support.node import wait_for
from tests.support.patience import stretched

CLICKS = TopicPartition("clicks", 0)


@pytest.mark.timeout(600)
def test_a_partition_stops_without_replicas_in_sync_until_its_topic_allows_an_unclean_election(
    tmp_path: Path,
):
    with ClusterTrial(tmp_path, partitions=1) as trial:
        trial.create_topic(CLICKS.topic, 1, 2, **{"min.insync.replicas": "1"})
        (one,) = trial.topic(CLICKS.topic)
        last, behind = one.replicas
        (other,) = {1, 2, 3} - {last, behind}
        _write(trial, b"both")
        trial.nodes[behind].kill_all()
        wait_for(
            "one in sync",
            lambda: trial.topic(CLICKS.topic, avoid=[behind])[0].isr == [last],
            stretched(20),
        )
        _write(trial, b"last only")
        trial.nodes[last].kill_all()
        trial.start(behind)
        with ringlog.Admin(trial.bootstrap) as admin:
            wait_for("no leader", lambda: _describe(admin).offline == [CLICKS], stretched(20))
            with pytest.raises(ringlog.errors.RinglogError):
                _write(trial, b"refused", timeout_ms=1_000)
            assert _describe(admin).unclean == []
            admin.alter_topic(CLICKS.topic, {UNCLEAN_ELECTION: "true"})
            wait_for("a leader", lambda: _describe(admin).unclean == [CLICKS], stretched(30))
            _write(trial, b"after")
            trial.start(last)
            trial.wait_in_sync(CLICKS.topic)
            _require_loud(trial, (behind, other))
            assert _read(trial) == [b"both", b"after"], "what only the last one had is lost"
            admin.alter_topic(CLICKS.topic, {UNCLEAN_ELECTION: None})
            wait_for("seen", lambda: not _describe(admin).unclean, stretched(10))
        _judge(trial, (last, behind))


def _describe(admin: ringlog.Admin) -> ClusterInfo:
    return admin.describe_cluster()


def _write(trial: ClusterTrial, value: bytes, timeout_ms: int = 30_000) -> None:
    with ringlog.Producer(
        trial.bootstrap, delivery_timeout_ms=timeout_ms, request_timeout_ms=900
    ) as producer:
        producer.produce(CLICKS.topic, value, partition=0).result(stretched(40))


def _read(trial: ClusterTrial) -> list[bytes]:
    with ringlog.Consumer(trial.bootstrap, auto_offset_reset="earliest") as consumer:
        (end,) = consumer.end_offsets([CLICKS]).values()
        consumer.assign([CLICKS])
        found: list[bytes] = []
        while len(found) < end:
            found += [record.value for record in consumer.poll(200)]
    return found


def _require_loud(trial: ClusterTrial, controllers: tuple[int, ...]) -> None:
    """Each node's status names it, and the controller that did it has logged it."""
    for node in trial.nodes.values():
        wait_for("a status that says it", partial(_says_so, node.data_dir), stretched(10))
    logs = [Path(trial.nodes[node_id].log_path).read_text() for node_id in controllers]
    assert sum("clicks-0 is led by node" in log and "are lost" in log for log in logs) == 1


def _says_so(data_dir: str) -> bool:
    return any("not in sync: records may be lost" in line for line in status(data_dir).wrong)


def _judge(trial: ClusterTrial, node_ids: tuple[int, ...]) -> None:
    trial.stop(*trial.nodes)
    found = check_replicas([trial.nodes[node_id].data_dir for node_id in node_ids], CLICKS.topic)
    for node in trial.nodes.values():
        found += node.watch.leaks(within_s=1)
    assert not found, report(found)
