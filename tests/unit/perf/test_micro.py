"""Every benchmark runs on tiny inputs, so that none can rot; and the command writes what it shows."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from perf.micro.catalogue import BENCHMARKS, run_one
from perf.micro.command import micro
from perf.micro.scale import TINY, Bench


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmark_measures_itself_and_its_limit(name, tmp_path):
    for result in run_one(name, Bench(TINY, str(tmp_path))):
        assert result.value > 0
        assert result.limit_value > 0
        assert result.ratio > 0


def test_command_writes_results_and_machine_and_removes_its_files(tmp_path):
    data, out = tmp_path / "data", tmp_path / "out" / "micro.json"
    arguments = ["--tiny", "--only", "check", "--dir", str(data), "--json", str(out)]
    ended = CliRunner().invoke(micro, arguments)
    assert ended.exit_code == 0, ended.output
    report = json.loads(out.read_text())
    assert [result["name"] for result in report["results"]] == ["check"]
    assert report["machine"]["cores"] > 0
    assert report["scale"] == "tiny"
    assert list(data.iterdir()) == []


def test_strict_exits_with_1_when_a_goal_is_missed(tmp_path, monkeypatch):
    missed = run_one("check", Bench(TINY, str(tmp_path)))[0]
    missed = type(missed)(**{**{f: getattr(missed, f) for f in missed.__struct_fields__}, "reached": False})
    monkeypatch.setitem(BENCHMARKS, "check", lambda bench: missed)
    arguments = ["--tiny", "--only", "check", "--dir", str(tmp_path), "--json", str(tmp_path / "x.json")]
    assert CliRunner().invoke(micro, arguments).exit_code == 0
    assert CliRunner().invoke(micro, [*arguments, "--strict"]).exit_code == 1
