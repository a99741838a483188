"""SIGSTOP of a shard: clients get a typed timeout, then go on as if nothing had been."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ringlog.client.producer import Producer
from ringlog.errors import RequestTimeout, RinglogError
from ringlog.net.messages import ErrorReply, decode_body
from tests.support.amounts import amount, cases, chance
from tests.support.patience import stretched
from tests.support.trial import TOPIC, Trial


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("clients", ["library", "plain"][: amount(short=1, full=2)])
def test_load_goes_on_after_a_pause_of_a_shard_and_nothing_acknowledged_is_lost(tmp_path: Path, clients: str):
    rng = chance("pause")
    longest_s = amount(short=1, full=30)
    with Trial(tmp_path) as trial:
        with trial.load(plain=clients == "plain") as load:
            load.wait_warm()
            for _ in cases(short=3, full=100):
                pid = trial.node.pause("shard", rng.randrange(2))
                time.sleep(rng.uniform(0.1, longest_s))
                trial.node.resume(pid)
                load.wait_writable(time.monotonic(), stretched(5.0))
        trial.judge(records_min=100)


def test_a_producer_of_a_paused_shard_gets_a_typed_timeout_in_time(tmp_path: Path):
    with Trial(tmp_path, shards=1, partitions=1) as trial:
        settings = {"delivery_timeout_ms": 700, "request_timeout_ms": 500}
        with Producer(bootstrap=trial.node.bootstrap, **settings) as producer:
            producer.produce(TOPIC, b"before").result(5)
            pid = trial.node.pause("shard")
            try:
                asked_at = time.monotonic()
                with pytest.raises(RinglogError) as caught:
                    producer.produce(TOPIC, b"meanwhile").result(10)
                assert time.monotonic() - asked_at < stretched(3.0)
                assert caught.value.code in ("DELIVERY_TIMEOUT", "REQUEST_TIMEOUT", "SHARD_UNAVAILABLE")
            finally:
                trial.node.resume(pid)
            until = time.monotonic() + stretched(5)
            while True:
                try:
                    producer.produce(TOPIC, b"after").result(5)
                    break
                except RinglogError:
                    assert time.monotonic() < until, "the producer never goes on"


def test_what_a_paused_shard_serves_does_not_hold_up_the_others(tmp_path: Path):
    with Trial(tmp_path, shards=2, partitions=2) as trial, trial.client(timeout_s=2.0) as client:
        lanes = {one.lane: one.partition for one in client.metadata([TOPIC]).topics[0].partitions}
        assert set(lanes) == {0, 1}
        pid = trial.node.pause("shard", 0)
        try:
            with pytest.raises(RinglogError) as caught:
                client.produce(lanes[0], [b"meanwhile"])
            assert caught.value.retriable
            asked_at = time.monotonic()
            for _ in range(20):
                client.produce(lanes[1], [b"meanwhile"])
            assert client.metadata([TOPIC]).topics[0].error == ""
            assert time.monotonic() - asked_at < stretched(1.0)
        finally:
            trial.node.resume(pid)
        assert client.produce(lanes[0], [b"after"]).base_offset >= 0


@pytest.mark.parametrize("role", ["shard", "controller"])
def test_what_its_client_gave_up_while_a_process_stood_still_is_not_done_afterwards(
    tmp_path: Path, role: str
):
    with Trial(tmp_path, shards=1, partitions=1) as trial, trial.client(timeout_s=0.5) as client:
        (partition,) = client.partition_ids(TOPIC)
        pid = trial.node.pause(role)
        try:
            with pytest.raises(RequestTimeout):
                if role == "shard":
                    client.produce(partition, [b"given up"])
                else:
                    client.create_topic("given-up")
            time.sleep(0.2)  # the node has counted from a little later than the client
        finally:
            trial.node.resume(pid)
        reply = client.next_reply(timeout_s=stretched(5))
        assert reply is not None, "the node says that it was not done"
        assert decode_body(reply[1], ErrorReply).code == RequestTimeout.code
        with trial.client() as other:
            assert other.end_offset(partition) == 0
            assert [topic.name for topic in other.metadata(None).topics] == [TOPIC]
