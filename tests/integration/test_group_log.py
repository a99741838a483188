"""What a node knows of groups: lag over all shards in one answer, and state from a log that was compacted."""

from __future__ import annotations

import time

import pytest

import ringlog
from ringlog.client.commits import OffsetAndMetadata
from ringlog.limits import OFFSETS_PARTITIONS
from ringlog.net.framing import Api
from ringlog.net.group_messages import OFFSETS_TOPIC
from ringlog.node.group_metrics import ask_node, lag_lines
from ringlog.records.partitioner import partition_for
from tests.support.node import NodeProcess, wait_for
from tests.support.patience import stretched

PARTITIONS = 4
WITHIN_S = stretched(30)


@pytest.fixture
def node(tmp_path):
    with NodeProcess(str(tmp_path), shards=2) as running:
        with ringlog.Admin(running.bootstrap) as admin:
            admin.create_topic("t", PARTITIONS)
        yield running


def produce(node: NodeProcess, count: int) -> None:
    """So many records in every partition."""
    with ringlog.Producer(node.bootstrap) as producer:
        for number in range(count * PARTITIONS):
            producer.produce("t", b"x", partition=number % PARTITIONS)
        producer.flush()


def commit(consumer: ringlog.Consumer, offset: int, metadata: str = "") -> None:
    consumer.commit({("t", index): OffsetAndMetadata(offset, metadata) for index in range(PARTITIONS)})


def test_lag_of_partitions_of_all_shards_is_answered_in_one_request(node):
    with (
        ringlog.Admin(node.bootstrap) as admin,
        ringlog.Consumer(node.bootstrap, group_id="g", enable_auto_commit=False) as consumer,
    ):
        assert len({p.lane for p in admin._connection.topic("t").partitions}) == 2
        produce(node, 10)
        began = time.monotonic()
        commit(consumer, 4)
        asked: list[Api] = []
        ask = admin._connection.ask
        admin._connection.ask = lambda api, *more, **named: (asked.append(api), ask(api, *more, **named))[1]
        told = admin.describe_group("g")
        assert [api for api in asked if api != Api.METADATA] == [Api.GROUP_DESCRIBE]
        assert [(p.committed, p.log_start_offset, p.readable_offset, p.lag) for p in told.partitions] == [
            (4, 0, 10, 6)
        ] * PARTITIONS
        assert (told.lag, len(told.partitions)) == (6 * PARTITIONS, PARTITIONS)
        assert 0 < told.lag_ms < (time.monotonic() - began + 10) * 1000
        # It grows while nobody reads, falls to nothing with a commit, and is never negative.
        wait_for("lag in time", lambda: admin.describe_group("g").lag_ms > told.lag_ms, WITHIN_S)
        (listed,) = admin.list_groups()
        assert (listed.lag, listed.lag_ms >= told.lag_ms) == (6 * PARTITIONS, True)
        assert f'ringlog_group_lag_records{{group="g"}} {6 * PARTITIONS}\n' in lag_lines(
            ask_node(node.endpoint).groups
        )
        commit(consumer, 10)
        assert {(p.lag, p.lag_ms) for p in admin.describe_group("g").partitions} == {(0, 0)}
        commit(consumer, 1000)
        assert (admin.describe_group("g").lag, admin.describe_group("g").lag_ms) == (0, 0)


def test_lag_in_time_is_known_to_the_shard_that_takes_the_place_of_a_dead_one(node):
    with (
        ringlog.Admin(node.bootstrap) as admin,
        ringlog.Consumer(node.bootstrap, group_id="g", enable_auto_commit=False) as consumer,
    ):
        produce(node, 10)
        commit(consumer, 4)
        wait_for("a lag of a second", lambda: admin.describe_group("g").lag_ms > 1000, WITHIN_S)
        for shard in (0, 1):
            node.wait_replaced("shard", shard, node.kill("shard", shard))
        wait_for(
            "all shards", lambda: all(p.lag == 6 for p in admin.describe_group("g").partitions), WITHIN_S
        )
        assert all(p.lag_ms > 1000 for p in admin.describe_group("g").partitions)


def test_a_coordinator_is_read_from_a_log_that_was_compacted(node):
    home = partition_for(b"g", OFFSETS_PARTITIONS)
    with (
        ringlog.Admin(node.bootstrap) as admin,
        ringlog.Consumer(node.bootstrap, group_id="g", enable_auto_commit=False) as consumer,
        ringlog.Consumer(node.bootstrap, group_id="other", enable_auto_commit=False) as other,
    ):
        consumer.subscribe(["t"])
        wait_for(
            "an assignment",
            lambda: (consumer.poll(50), len(consumer.assignment()) == PARTITIONS)[1],
            WITHIN_S,
        )
        epoch = admin.describe_group("g").epoch
        commit(other, 77, "elsewhere")
        small = {"segment.bytes": 1 << 20, "min.cleanable.dirty.ratio": 0.01}
        admin.alter_topic(OFFSETS_TOPIC, small)
        sequence = 0

        def log_bytes() -> int:
            return admin.describe_topic(OFFSETS_TOPIC).partitions[home].bytes

        while log_bytes() < 6 << 20:
            for _ in range(20):
                sequence += 1
                commit(consumer, sequence, f"{sequence}-" + "m" * 4000)
        wait_for("compaction", lambda: log_bytes() < 3 << 20, WITHIN_S)
        lane = next(p.lane for p in admin._connection.topic(OFFSETS_TOPIC).partitions if p.index == home)
        node.wait_replaced("shard", lane, node.kill("shard", lane))
        told = admin.describe_group("g")
        assert [(p.committed, p.metadata[:10]) for p in told.partitions] == [
            (sequence, f"{sequence}-{'m' * 10}"[:10])
        ] * PARTITIONS
        assert (told.epoch, told.state, len(told.members)) == (epoch, "stable", 1), "nobody rebalanced"
        assert {(p.committed, p.metadata) for p in admin.describe_group("other").partitions} == {
            (77, "elsewhere")
        }
        commit(consumer, sequence + 1)
        assert {p.committed for p in admin.describe_group("g").partitions} == {sequence + 1}
