"""Where a demo keeps its data: what cannot be written is refused with what to do."""

from __future__ import annotations

import os

import pytest

from cli.demo_place import make_place
from cli.failures import ExitCode


@pytest.mark.parametrize("kind", [[], ["--storage"]], ids=["node", "storage"])
@pytest.mark.parametrize("given", [False, True], ids=["by default", "named"])
def test_a_directory_that_may_not_be_written_is_refused_with_what_to_do(
    run, tmp_path, monkeypatch, kind, given
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    result = run("demo", *kind, *(["--dir", "mine"] if given else []))
    assert result.exit_code == ExitCode.SYSTEM
    where = tmp_path / ("mine" if given else "build")
    told = f"ringlog: {where}: Permission denied. Name a directory that may be written: --dir DIR.\n"
    assert result.stderr == told


def test_a_directory_that_cannot_be_made_is_refused_with_what_to_do(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").write_text("a file")
    result = run("demo")
    assert result.exit_code == ExitCode.SYSTEM
    assert f"{tmp_path}/build: File exists" in result.stderr and "--dir DIR" in result.stderr


def test_what_was_named_is_made_and_by_default_a_new_directory_under_build(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make_place("mine/own") == "mine/own" and os.path.isdir("mine/own")
    assert os.path.dirname(make_place(None)) == "build"
