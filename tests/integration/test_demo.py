"""The demo of a node tells the truth: it passes when nothing is lost, and fails when something is."""

from __future__ import annotations

from click.testing import CliRunner
from rich.console import Console

from cli import demo as demo_module
from cli.demo import Loaded, show
from cli.demo_reader import ReadReport


def test_demo_kills_a_shard_and_loses_nothing(tmp_path):
    arguments = ["--records", "20000", "--partitions", "4", "--dir", str(tmp_path / "data")]
    ended = CliRunner().invoke(demo_module.demo, arguments)
    assert ended.exit_code == 0, ended.output
    assert "kill -9" in ended.output
    assert "20,000 records, all flushed" in ended.output


def test_demo_refuses_a_directory_that_is_not_empty(tmp_path):
    (tmp_path / "mine").write_text("keep me")
    ended = CliRunner().invoke(demo_module.demo, ["--dir", str(tmp_path)])
    assert ended.exit_code == 2
    assert "not empty" in ended.output


def test_demo_fails_when_a_record_is_missing_twice_or_out_of_order():
    loaded = Loaded(1.0, 1, 1.0)
    good = ReadReport(read=10, seconds=1.0)
    assert show(Console(quiet=True), 10, loaded, good, 1.0, 1.0)
    for bad in (
        ReadReport(read=9, seconds=1.0, missing=1),
        ReadReport(read=11, seconds=1.0, repeated=1),
        ReadReport(read=10, seconds=1.0, disordered=1),
    ):
        assert not show(Console(quiet=True), 10, loaded, bad, 1.0, 1.0)
