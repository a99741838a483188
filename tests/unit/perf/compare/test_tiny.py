"""A whole comparison on tiny amounts: real brokers, verified delivery, the JSON that programs read."""

from __future__ import annotations

import json
import signal

from click.testing import CliRunner

from perf.compare.command import compare
from perf.compare.model import Durability, Samples, Workload
from perf.compare.run import Comparison
from perf.compare.scale import TINY
from perf.compare.systems import PEERS


def test_a_tiny_comparison_measures_ringlog_and_whoever_is_here(tmp_path):
    handler = signal.getsignal(signal.SIGTERM)
    out, data = tmp_path / "out" / "compare.json", tmp_path / "data"
    arguments = [
        "--tiny",
        "--peers",
        "redis,rabbitmq",
        "--no-fetch",
        "--part",
        "throughput",
        "--device",
        str(data),
        "--json",
        str(out),
    ]
    arguments += ["--history", str(tmp_path / "history.ndjson"), "--report", str(tmp_path / "report")]
    ended = CliRunner().invoke(compare, arguments)
    assert ended.exit_code == 0, ended.output
    found = json.loads(out.read_text())
    for kind in ("results", "limits", "ratios"):
        assert all(isinstance(value, float) for value in found[kind].values())
    results = found["results"]
    assert results["produce.ringlog.100B.p2.x1.D2.records_per_s"] > 0
    assert results["consume.ringlog.100B.p2.x1.D2.cpu_s_per_gb"] > 0
    assert found["limits"]["durable_batch_gb_per_s"] > 0
    redis = "produce.redis.100B.p2.x1.D2.records_per_s" in results
    assert redis == ("produce.100B.p2.x1.ringlog-D2/redis-D2" in found["ratios"])
    assert redis or "make peers" in found["skipped"]["redis"]
    rabbitmq = "consume.rabbitmq.100B.p2.x1.D1.records_per_s" in results
    assert rabbitmq == ("consume.100B.p2.x1.ringlog-D2/rabbitmq-D1" in found["ratios"])
    assert rabbitmq or "make peers" in found["skipped"]["rabbitmq"]
    assert (tmp_path / "report" / "index.html").read_text().startswith("<!doctype html>")
    assert list(data.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is handler


def test_the_waits_of_an_open_loop_are_measured_through_a_real_node(tmp_path):
    samples = Samples()
    comparison = Comparison(TINY, ["ringlog"], str(tmp_path), samples, print, lambda: None, fetch=False)
    peer = PEERS["ringlog"]
    with peer.start(str(tmp_path / "node"), Durability.D2, False) as broker:
        waited = comparison.open_loop(
            0, broker, "ringlog", Workload(100, 2, 1, Durability.D2), "10pct", 2_000.0
        )
    assert 0 < waited.p50_ms <= waited.p99_ms <= waited.p999_ms <= waited.max_ms
    assert waited.achieved_per_s > 0


def test_a_peer_that_does_not_exist_is_named(tmp_path):
    ended = CliRunner().invoke(compare, ["--tiny", "--peers", "pulsar", "--device", str(tmp_path)])
    assert ended.exit_code == 2
    assert "there is no peer 'pulsar'" in ended.output
