"""The demo of a node tells the truth: it passes when nothing is lost, and fails when something is."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner
from rich.console import Console

from cli import demo as demo_module
from cli.demo import Loaded, show
from cli.demo_reader import ReadReport


def test_demo_kills_a_shard_and_loses_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["--records", "20000", "--partitions", "4"]
    ended = CliRunner().invoke(demo_module.demo, arguments)
    assert ended.exit_code == 0, ended.output
    assert "kill -9" in ended.output
    assert "20,000 records, all flushed" in ended.output
    assert os.listdir(tmp_path) == [], "neither the data nor ./build, which was not there before"


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("was_there", [False, True])
def test_demo_leaves_a_directory_as_it_was_unless_it_shall_keep_its_data(
    tmp_path, monkeypatch, keep, was_there
):
    def leave_data(console, records, partitions, directory):
        with open(os.path.join(directory, "data"), "w"):
            return True

    monkeypatch.setattr(demo_module, "run", leave_data)
    data = tmp_path / "data"
    if was_there:
        data.mkdir()
    ended = CliRunner().invoke(demo_module.demo, ["--dir", str(data), *(["--keep"] if keep else [])])
    assert ended.exit_code == 0, ended.output
    assert data.is_dir() is (was_there or keep)
    assert (data / "data").exists() is keep
    assert ("The data is kept" in ended.output) is keep


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
