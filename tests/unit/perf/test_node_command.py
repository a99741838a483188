"""`python -m perf node` says at once what it lacks."""

from __future__ import annotations

import importlib.util
import os

import pytest
from click.testing import CliRunner

from perf.node import command


@pytest.fixture
def without_arrow(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize("only", [[], ["--only", "latency", "--only", "consume"]])
def test_without_pyarrow_it_ends_before_a_node_is_started(tmp_path, without_arrow, only):
    ended = CliRunner().invoke(command.node, ["--tiny", "--dir", str(tmp_path / "data"), *only])
    assert ended.exit_code == 1 and isinstance(ended.exception, SystemExit)
    assert "pyarrow is not installed" in ended.output and "--only produce-small" in ended.output
    assert os.listdir(tmp_path) == []


def test_benchmarks_that_need_no_columns_are_not_refused(without_arrow):
    command.require_arrow(["latency"])
