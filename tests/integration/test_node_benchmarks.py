"""The benchmarks of groups run on tiny inputs through a real node, so that they cannot rot."""

from __future__ import annotations

import json

from click.testing import CliRunner

from perf.node.command import node


def test_the_benchmarks_of_groups_measure_and_disturb_nothing_that_stays(tmp_path):
    out = tmp_path / "node.json"
    arguments = ["--tiny", "--shards", "1", "--only", "commits", "--only", "rebalance"]
    ended = CliRunner().invoke(node, [*arguments, "--dir", str(tmp_path / "data"), "--json", str(out)])
    assert ended.exit_code == 0, ended.output
    results = {result["name"]: result for result in json.loads(out.read_text())["results"]}
    assert list(results) == ["commits", "rebalance"]
    assert all(result["value"] > 0 and result["limit_value"] > 0 for result in results.values())
    assert results["rebalance"]["notes"]["partitions_that_stay_and_were_disturbed"] == 0
