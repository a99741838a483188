"""SIGSTOP of a shard: clients get a typed timeout, then go on as if nothing had been."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import ringlog
from ringlog.errors import RinglogError
from tests.support.amounts import amount
from tests.support.trial import TOPIC, Trial


@pytest.mark.timeout(3600)
def test_load_goes_on_after_a_pause_of_a_shard_and_nothing_acknowledged_is_lost(tmp_path: Path):
    rng = random.Random("pause")
    longest_s = amount(short=1, full=30)
    with Trial(tmp_path) as trial:
        with trial.load() as load:
            load.wait_warm()
            for _ in range(amount(short=3, full=100)):
                pid = trial.node.pause("shard", rng.randrange(2))
                time.sleep(rng.uniform(0.1, longest_s))
                trial.node.resume(pid)
                load.wait_writable(time.monotonic(), within_s=5.0)
        trial.judge(records_min=100)


def test_a_producer_of_a_paused_shard_gets_a_typed_timeout_in_time(tmp_path: Path):
    with Trial(tmp_path, shards=1, partitions=1) as trial:
        settings = {"delivery_timeout_ms": 700, "request_timeout_ms": 500}
        with ringlog.Producer(bootstrap=trial.node.bootstrap, **settings) as producer:
            producer.produce(TOPIC, b"before").result(5)
            pid = trial.node.pause("shard")
            try:
                asked_at = time.monotonic()
                with pytest.raises(RinglogError) as caught:
                    producer.produce(TOPIC, b"meanwhile").result(10)
                assert time.monotonic() - asked_at < 3.0
                assert caught.value.code in ("DELIVERY_TIMEOUT", "REQUEST_TIMEOUT", "SHARD_UNAVAILABLE")
            finally:
                trial.node.resume(pid)
            until = time.monotonic() + 5
            while True:
                try:
                    producer.produce(TOPIC, b"after").result(5)
                    break
                except RinglogError:
                    assert time.monotonic() < until, "the producer never goes on"


def test_a_plain_request_to_a_paused_shard_is_answered_with_a_timeout_at_its_deadline(tmp_path: Path):
    with Trial(tmp_path, shards=1, partitions=1) as trial, trial.client(timeout_s=1.0) as client:
        (partition,) = client.partition_ids(TOPIC)
        client.produce(partition, [b"before"])
        pid = trial.node.pause("shard")
        try:
            frame = client.request_frame(0, b"", partition=partition, deadline_ms=400)
            client.send(frame)
            asked_at = time.monotonic()
            reply = client.next_reply(timeout_s=3)
            assert reply is not None, "the node itself says that the time is over"
            assert time.monotonic() - asked_at < 2.0
        finally:
            trial.node.resume(pid)
        client.timeout_s = 5
        assert client.produce(partition, [b"after"]).base_offset >= 1
