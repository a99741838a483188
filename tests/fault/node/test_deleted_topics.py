"""Topics that are deleted while processes die: what is gone stays gone, and what is there is there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ringlog.errors import RinglogError
from ringlog.net.framing import Api
from ringlog.net.messages import DeleteTopicRequest, encode_body
from tests.support.amounts import cases, chance
from tests.support.checkers.disk import check_disk
from tests.support.checkers.violations import report
from tests.support.node import wait_for
from tests.support.patience import stretched
from tests.support.raw_client import RawClient
from tests.support.trial import Trial


def until_done(client: RawClient, what) -> object:
    """The result of a call, repeated while its error says that this can help."""

    def attempt() -> tuple[object] | None:
        try:
            return (what(),)
        except RinglogError as error:
            assert error.retriable or error.code in ("TOPIC_EXISTS", "UNKNOWN_TOPIC"), (
                f"{error.code}: {error}"
            )
            return None if error.retriable else (None,)

    return wait_for("an answer without an error", attempt, stretched(8))[0]


def delete(client: RawClient, topic: str) -> None:
    until_done(client, lambda: client.request(Api.DELETE_TOPIC, encode_body(DeleteTopicRequest(topic))))


def test_records_of_a_deleted_topic_do_not_come_back_with_its_name(tmp_path: Path):
    with Trial(tmp_path, shards=1) as trial, trial.client(timeout_s=10) as client:
        client.create_topic("again", 1)
        (old,) = client.partition_ids("again")
        client.produce(old, [b"old"] * 10)
        pid = trial.node.pause("shard")  # it never hears of the deletion
        delete(client, "again")
        os.kill(pid, signal.SIGKILL)
        trial.node.wait_replaced("shard", 0, pid)
        until_done(client, lambda: client.create_topic("again", 1))
        (new,) = client.partition_ids("again")
        assert new != old, "an id is never given twice"
        assert until_done(client, lambda: client.end_offset(new)) == 0
        until_done(client, lambda: client.produce(new, [b"new"]))
        assert [record.value for record in client.read(new, 0)[0]] == [b"new"]


def test_a_topic_that_is_deleted_while_its_shard_is_dead_leaves_no_directory(tmp_path: Path):
    with Trial(tmp_path, shards=2) as trial, trial.client(timeout_s=10) as client:
        for topic in ("gone", "kept"):
            client.create_topic(topic, 4)
            for partition in client.partition_ids(topic):
                client.produce(partition, [b"record"] * 10)
        pids = [trial.node.pause("shard", index) for index in (0, 1)]  # neither hears of the deletion
        delete(client, "gone")
        for index, pid in enumerate(pids):
            os.kill(pid, signal.SIGKILL)
            trial.node.wait_replaced("shard", index, pid)
        data = Path(trial.node.data_dir)
        wait_for("the sweep", lambda: not list(data.glob("gone-*")), stretched(8))
        for partition in client.partition_ids("kept"):
            assert until_done(client, lambda p=partition: client.end_offset(p)) == 10


@pytest.mark.timeout(3600)
def test_topics_come_and_go_while_processes_die(tmp_path: Path):
    rng = chance("topics")
    with Trial(tmp_path) as trial, trial.client(timeout_s=2) as client:
        living: dict[str, int] = {}
        for number in cases(short=8, full=300):
            topic = f"t{number % 5}"
            if rng.random() < 0.5:
                trial.node.kill(*rng.choice([("shard", 0), ("shard", 1), ("controller", 0), ("net", 0)]))
            if topic in living:
                delete(client, topic)
                del living[topic]
            until_done(client, lambda topic=topic: client.create_topic(topic, 3))
            for partition in client.partition_ids(topic):
                assert until_done(client, lambda p=partition: client.end_offset(p)) == 0, (
                    "a new topic is empty"
                )
                until_done(client, lambda p=partition, n=number: client.produce(p, [b"%d" % n]))
            living[topic] = number
        for topic, number in living.items():
            for partition in until_done(client, lambda topic=topic: client.partition_ids(topic)):
                values = {record.value for record in client.read(partition, 0)[0]}
                assert values == {b"%d" % number}, f"{topic} has the records of another time"
        assert trial.node.stop() == 0
        found = check_disk(trial.node.data_dir) + trial.node.watch.leaks(within_s=1)
        assert not found, report(found)
