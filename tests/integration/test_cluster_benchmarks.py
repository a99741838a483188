"""The benchmarks of a cluster run on tiny inputs through real nodes, so that they cannot rot."""

from __future__ import annotations

import json

from click.testing import CliRunner

from perf.cluster.command import cluster


def test_the_benchmarks_of_a_cluster_measure_something(tmp_path):
    out = tmp_path / "cluster.json"
    arguments = ["--tiny", "--dir", str(tmp_path / "data"), "--json", str(out)]
    ended = CliRunner().invoke(cluster, arguments)
    assert ended.exit_code == 0, ended.output
    results = {result["name"]: result for result in json.loads(out.read_text())["results"]}
    assert set(results) == {
        "cluster-produce-100",
        "cluster-ack-p50",
        "cluster-ack-p99",
        "failover-p50",
        "failover-p99",
        "failover-others",
    }
    assert all(result["value"] > 0 and result["limit_value"] > 0 for result in results.values())
