"""Tuning for real: a node obeys every setting that tune writes, a probe keeps to its budget, a comparison compares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import msgspec
import pytest

import ringlog
from ringlog.config import NodeConfig, config_path_of
from ringlog.errors import NodeFailed
from ringlog.node.embedded import embedded
from tests.support.facts import KIB, facts
from tuning.advice.advise import advise
from tuning.advice.setting import Setting
from tuning.apply.config_text import tuned_text
from tuning.compare import LOADS, compare, tunable
from tuning.probe.measured import BUFFERED, DSYNC, FLUSH, FRESH, PLAIN, REUSED, Facts
from tuning.probe.run import Shape, probe

TINY = Shape(
    write_sizes=(4 * KIB, 64 * KIB),
    write_depths=(1, 4),
    other_sizes=(4 * KIB,),
    other_depths=(1, 4),
    reads=((4 * KIB, 2),),
    frame_sizes=(KIB, 64 * KIB),
)
PROGRAM = [sys.executable, "-m", "cli.main"]


def test_a_node_obeys_every_setting_that_tune_can_write(tmp_path):
    core = min(os.sched_getaffinity(0))
    settings = {
        "shards": 2,
        "nets": 1,
        "pin": True,
        "shard_cores": str(core),
        "net_cores": str(core),
        "spin_us": 200,
        "disk_engine": "auto",
        "disk_depth": 2,
        "group_bytes": 64 * KIB,
        "tail_bytes_per_shard": 32 << 20,
        "segment.bytes": 2 << 20,
        "preallocate_bytes_max": 64 * KIB,
    }
    assert set(settings) >= {setting.name for setting in advise(facts()).settings}
    config = tmp_path / "tuned.toml"
    config.write_text(
        tuned_text("", [Setting(name, value, "a test") for name, value in settings.items()], "one")
    )
    with embedded(data_dir=str(tmp_path / "data"), config=str(config)) as node:
        for process in node.info.processes:
            if process.role != "controller":
                assert os.sched_getaffinity(process.pid) == {core}, process
        with ringlog.Producer(bootstrap=node.bootstrap) as producer:
            values = [b"%05d" % number + bytes(5000) for number in range(2000)]
            producer.produce_many("orders", values).result(60)
        with ringlog.Admin(node.bootstrap) as admin:
            described = admin.describe_topic("orders")
            assert "segment.bytes" not in described.config, "the node's default holds, also when it changes"
            assert admin.topic_defaults() == {"segment.bytes": str(2 << 20)}
            admin.create_topic("own", num_partitions=1, config={"segment.bytes": "5000000"})
            assert admin.describe_topic("own").config["segment.bytes"] == "5000000"
        with ringlog.Consumer(bootstrap=node.bootstrap) as consumer:
            consumer.assign([("orders", partition.index, 0) for partition in described.partitions])
            read = []
            until = time.monotonic() + 60
            while len(read) < len(values) and time.monotonic() < until:
                read += [record.value for record in consumer.poll(timeout_ms=1000, max_records=10_000)]
        assert sorted(read) == values
        segments = list((tmp_path / "data").glob("orders-*/*.log"))
        assert len(segments) >= 5 and all(segment.stat().st_size <= 2 << 20 for segment in segments)


def test_a_core_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    config = tmp_path / "tuned.toml"
    config.write_text('shards = 1\nshard_cores = "4095"\n')
    with (
        pytest.raises(NodeFailed, match="shard_cores: core 4095 cannot be used"),
        embedded(config=str(config)),
    ):
        pass


def test_a_tiny_probe_measures_everything_and_leaves_nothing_behind(tmp_path):
    shown = []
    found = probe(
        str(tmp_path), budget_s=1.0, shape=TINY, on_progress=lambda share, name: shown.append(share)
    )
    measured = found.measured
    assert {(p.method, p.space) for p in measured.writes} == {
        (method, space) for method in (DSYNC, FLUSH, BUFFERED, PLAIN) for space in (FRESH, REUSED)
    }
    assert {(p.size_bytes, p.depth) for p in measured.writes if p.method == DSYNC} == {
        (size, depth) for size in TINY.write_sizes for depth in TINY.write_depths
    }
    for point in (*measured.writes, *measured.reads):
        assert point.count >= 3 and 0 < point.p50_us <= point.p99_us and point.bytes_per_s > 0
    assert {(p.scheme, p.frame_bytes) for p in measured.wires} == {
        (scheme, size) for scheme in ("tcp", "ipc") for size in TINY.frame_sizes
    }
    assert (
        measured.memcpy_bytes_per_s
        and measured.hop_sleeping_us
        and set(measured.wire_round_trip_us) == {"tcp", "ipc"}
    )
    if len(found.system.cores) > 1:
        assert measured.hop_spinning_us and measured.core_pairs
    assert shown == sorted(shown) and shown[-1] == 1.0
    assert list(tmp_path.iterdir()) == []
    assert msgspec.json.decode(msgspec.json.encode(found), type=Facts) == found, "facts survive their file"
    advise(found)


def test_a_tiny_comparison_runs_the_same_load_before_and_after(tmp_path):
    before = {"shards": 1, "pin": False, "tail_bytes_per_shard": 32 << 20}
    turns = []
    found = compare(
        str(tmp_path),
        before,
        {**before, "group_bytes": 64 * KIB},
        seconds=0.05,
        rounds=1,
        loads=(LOADS[0], LOADS[2]),
        on_progress=lambda share, name: turns.append(name),
    )
    assert [compared.load for compared in found] == [LOADS[0], LOADS[2]]
    assert all(compared.before > 0 and compared.after > 0 and compared.gain > 0 for compared in found)
    assert turns == ["round 1 of 1, before", "round 1 of 1, after", "done"]
    assert list(tmp_path.iterdir()) == []


def test_the_command_probes_applies_and_undoes(tmp_path):
    def tune(*arguments: str) -> str:
        line = [*PROGRAM, "tune", "--data-dir", str(tmp_path), *arguments]
        return subprocess.run(line, capture_output=True, text=True, check=True, timeout=120).stdout

    told = json.loads(tune("--budget", "1", "--apply", "--json", "--report", str(tmp_path / "page.html")))
    assert told["advice"]["policy"] == "balanced" and told["facts"]["measured"]["writes"]
    path = config_path_of(str(tmp_path))
    with open(path, encoding="utf-8") as file:
        assert f"shards = {told['advice']['settings'][0]['value']}" in file.read()
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") >= 5 and "http" not in page, "it needs nothing but itself"
    again = tune("--facts", str(tmp_path / "tune-facts.json"), "--policy", "laptop")
    assert "Nothing was changed" in again and "LAPTOP" in again
    assert f"Removed {path}" in tune("--undo")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["page.html", "tune-facts.json"]


def test_what_a_throw_away_node_is_told_is_what_the_node_would_be():
    told = tunable(
        NodeConfig(
            data_dir="/x",
            listen="tcp://127.0.0.1:1",
            shards=3,
            node_id=1,
            cluster="1@127.0.0.1:5,2@127.0.0.1:7",
            rack="a",
            advertise="tcp://127.0.0.1:9",
        )
    )
    assert told["shards"] == 3
    assert not {"data_dir", "listen", "metrics_listen", "node_id", "cluster", "rack", "advertise"} & set(told)
    NodeConfig(data_dir="/y", **told)
