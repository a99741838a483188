"""Old records on a node of real processes: retention, deletion and compaction, seen by clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ringlog
from ringlog.errors import InvalidRecord, InvalidRequest, OffsetOutOfRange, UnknownTopic
from ringlog.model import TopicPartition
from ringlog.node.control import status
from tests.support.node import NodeProcess, wait_for
from tests.support.patience import stretched

WITHIN_S = 30.0


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with ringlog.embedded(data_dir=str(tmp_path_factory.mktemp("node") / "data"), shards=1) as made:
        yield made


def produce(node, topic, records):
    with ringlog.Producer(node.bootstrap) as producer:
        for key, value in records:
            producer.produce(topic, value, key=key, partition=0)
        producer.flush()


def consume(node, topic, start=None):
    """All records of partition 0, from its beginning or an offset on."""
    place = TopicPartition(topic, 0)
    with ringlog.Consumer(node.bootstrap, auto_offset_reset="error") as consumer:
        consumer.assign([place])
        if start is None:
            consumer.seek_to_beginning()
        else:
            consumer.seek(place, start)
        end = consumer.end_offsets([place])[place]
        records = []
        until = time.monotonic() + WITHIN_S
        while consumer.position(place) < end:
            assert time.monotonic() < until
            records += consumer.poll(timeout_ms=500)
        return records


def describe(admin, topic):
    return admin.describe_topic(topic).partitions[0]


def kill_shard(node):
    """kill -9, and wait for the one that replaces it."""

    def shard():
        return next((one.pid for one in status(node.data_dir).processes if one.role == "shard"), None)

    killed = shard()
    os.kill(killed, signal.SIGKILL)
    wait_for("another shard", lambda: shard() not in (killed, None), within_s=stretched(WITHIN_S))


def test_a_topic_stays_below_its_size(node):
    with ringlog.Admin(node.bootstrap) as admin:
        config = {"segment.bytes": 1 << 20, "retention.bytes": 2 << 20}
        admin.create_topic("sized", 1, config=config)
        produce(node, "sized", [(None, bytes(200_000)) for _ in range(40)])
        wait_for(
            "deletion of old segments",
            lambda: (
                describe(admin, "sized").bytes < 4 << 20 and describe(admin, "sized").log_start_offset > 0
            ),
            within_s=WITHIN_S,
        )
        start = describe(admin, "sized").log_start_offset
    assert [record.offset for record in consume(node, "sized")] == list(range(start, 40))
    with pytest.raises(OffsetOutOfRange):
        consume(node, "sized", start=0)


def test_old_records_of_an_idle_topic_go(node):
    with ringlog.Admin(node.bootstrap) as admin:
        admin.create_topic("aged", 1, config={"retention.ms": 1_000})
        produce(node, "aged", [(None, b"x")] * 10)
        wait_for("deletion by age", lambda: describe(admin, "aged").log_start_offset == 10, within_s=WITHIN_S)
        produce(node, "aged", [(None, b"young")])
    assert [(r.offset, r.value) for r in consume(node, "aged")] in ([(10, b"young")], [])


def test_deleted_records_are_gone_for_all_readers_and_after_a_restart_of_the_shard(node):
    with ringlog.Admin(node.bootstrap) as admin:
        admin.create_topic("cut", 1)
        produce(node, "cut", [(None, b"%d" % n) for n in range(10)])
        assert admin.delete_records("cut", {0: 4}) == {0: 4}
        assert [r.offset for r in consume(node, "cut")] == [4, 5, 6, 7, 8, 9]
        assert admin.delete_records("cut", {0: -1}) == {0: 10}
        assert describe(admin, "cut").log_start_offset == 10
        with pytest.raises(OffsetOutOfRange):
            admin.delete_records("cut", {0: 11})
        kill_shard(node)
        assert describe(admin, "cut").log_start_offset == 10
        produce(node, "cut", [(None, b"after")])
    assert [(r.offset, r.value) for r in consume(node, "cut")] == [(10, b"after")]


def test_a_compacted_topic_keeps_the_latest_of_each_key_for_new_readers_and_those_under_way(node):
    with ringlog.Admin(node.bootstrap) as admin:
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": 1 << 20,
            "min.cleanable.dirty.ratio": 0.01,
        }
        admin.create_topic("latest", 1, config=config)
        with pytest.raises(InvalidRequest):
            admin.delete_records("latest", {0: 0})
        sent = [(b"key-%d" % (n % 7), b"%d-" % n + bytes(50_000)) for n in range(200)]
        produce(node, "latest", sent)
        with ringlog.Consumer(
            node.bootstrap, auto_offset_reset="earliest", fetch_max_bytes=100_000
        ) as reader:
            reader.assign([("latest", 0)])
            seen = [reader.poll(timeout_ms=5_000, max_records=1)[0]]
            before = describe(admin, "latest").bytes
            wait_for("compaction", lambda: describe(admin, "latest").bytes < before / 3, within_s=WITHIN_S)
            # One that began before the swap reads on behind where it was.
            until = time.monotonic() + WITHIN_S
            while reader.position(("latest", 0)) < len(sent):
                assert time.monotonic() < until
                seen += reader.poll(timeout_ms=500)
    assert 7 <= len(seen) < len(sent) // 2, "most was compacted away before it came there"
    assert [r.offset for r in seen] == sorted({r.offset for r in seen})
    assert all(sent[r.offset] == (r.key, r.value) for r in seen)
    assert {r.key: r.value for r in seen} == dict(sent)
    found = consume(node, "latest")
    assert [r.offset for r in found] == sorted({r.offset for r in found})
    assert all(sent[r.offset] == (r.key, r.value) for r in found)
    latest = dict(sent)
    assert {r.key: r.value for r in found} == latest
    assert len(found) <= len(sent) // 3, "what was waited for, in records"
    directory = Path(node.data_dir) / "latest-0"
    wait_for("the swap of files", lambda: not list(directory.glob("*.clean")), within_s=WITHIN_S)


def test_settings_that_cannot_be_are_refused(node):
    with ringlog.Admin(node.bootstrap) as admin:
        for config in (
            {"cleanup.policy": "burn"},
            {"retention.ms": -2},
            {"min.cleanable.dirty.ratio": 1.5},
            {"compression.type": "brotli"},
            {"min.compaction.lag.ms": 10, "max.compaction.lag.ms": 5},
        ):
            with pytest.raises(InvalidRequest):
                admin.create_topic("odd", 1, config=config)


def test_defaults_of_a_node_hold_for_its_topics_and_are_shown_as_such(tmp_path):
    config = tmp_path / "node.toml"
    config.write_text('[topic_defaults]\n"cleanup.policy" = "compact"\n"segment.bytes" = 2097152\n')
    with (
        NodeProcess(str(tmp_path / "data"), shards=1, options=("--config", str(config))) as running,
        ringlog.Admin(running.bootstrap) as admin,
        ringlog.Producer(running.bootstrap) as producer,
    ):
        admin.create_topic("table", 1)
        admin.create_topic("events", 1, config={"cleanup.policy": "delete"})
        assert admin.topic_defaults() == {"cleanup.policy": "compact", "segment.bytes": "2097152"}
        with pytest.raises(InvalidRecord):
            producer.produce("table", b"no key", partition=0).result(10)
        assert producer.produce("table", b"value", key=b"key", partition=0).result(10).offset == 0
        assert producer.produce("events", b"no key", partition=0).result(10).offset == 0
        command = ["topic", "describe", "table", "events", "--settings", "--json"]
        shown = run_cli(*command, "--bootstrap", running.bootstrap)
        table, events = (json.loads(line)["settings"] for line in shown.splitlines())
    assert table["cleanup.policy"] == {"value": "compact", "source": "node"}
    assert events["cleanup.policy"] == {"value": "delete", "source": "topic"}
    assert table["segment.bytes"]["source"] == events["segment.bytes"]["source"] == "node"
    assert table["retention.ms"]["source"] == "default"


def test_a_node_with_defaults_that_cannot_be_does_not_start(tmp_path):
    config = tmp_path / "node.toml"
    config.write_text('[topic_defaults]\n"retention.ms" = "soon"\n')
    ended = subprocess.run(
        [sys.executable, "-m", "ringlog.node", "--data-dir", str(tmp_path / "data"), "--config", str(config)],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode != 0 and b"topic_defaults: retention.ms='soon'" in ended.stdout + ended.stderr


def test_a_producer_finds_a_topic_that_was_deleted_and_made_anew(node):
    with ringlog.Admin(node.bootstrap) as admin, ringlog.Producer(node.bootstrap) as producer:
        took_s = []
        for _ in range(3):
            admin.create_topic("anew", 1)
            producer.produce("anew", b"old", partition=0).result(10)
            admin.delete_topic("anew")
            admin.create_topic("anew", 1)
            began = time.monotonic()
            assert producer.produce("anew", b"new", partition=0).result(10).offset == 0
            took_s.append(time.monotonic() - began)
            admin.delete_topic("anew")
    assert min(took_s) < stretched(1.0), took_s


def test_a_producer_hears_of_a_deletion_at_once(node):
    with ringlog.Admin(node.bootstrap) as admin, ringlog.Producer(node.bootstrap) as producer:
        admin.create_topic("brief", 3)
        for partition in range(3):
            producer.produce("brief", b"old", partition=partition).result(10)
        admin.delete_topic("brief")
        began = time.monotonic()
        futures = [producer.produce("brief", b"new", partition=number % 3) for number in range(30)]
        assert {type(future.exception(60)) for future in futures} == {UnknownTopic}
        assert time.monotonic() - began < stretched(5.0)
        assert "brief" not in admin.list_topics()


def run_cli(*arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments], capture_output=True, check=True, timeout=60
    )
    return ended.stdout.decode()
