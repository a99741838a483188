"""Commands that look after a node of this host: which one is meant, and what an address has to do with it."""

from __future__ import annotations

import os

import pytest

from cli.failures import ExitCode
from ringlog.errors import NodeRunning
from ringlog.node.identity import DataDirLock, NodeInfo

COMMANDS = ("status", "stop", "metrics")


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    """The directory of nodes that are told nothing, in which one listens on port 7777."""
    monkeypatch.delenv("RINGLOG_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    path = str(tmp_path / "ringlog")
    lock = DataDirLock(path)
    lock.take()
    lock.write_info(
        NodeInfo(
            os.getpid(), ["tcp://127.0.0.1:7777"], 1, 1, 0, "/ringlog-no-board", "/ringlog-no-stats", None, []
        )
    )
    yield path
    lock.leave()


@pytest.mark.parametrize("command", COMMANDS)
def test_an_address_of_the_environment_is_not_left_aside_in_silence(run, data_dir, monkeypatch, command):
    monkeypatch.setenv("RINGLOG_BOOTSTRAP", "127.0.0.1:1")
    result = run(command)
    assert result.exit_code == ExitCode.REFUSED
    assert result.stderr == (
        f"ringlog: the node of {data_dir} listens on tcp://127.0.0.1:7777, not at 127.0.0.1:1 (RINGLOG_BOOTSTRAP). "
        "Name the --data-dir of the one that is meant\n"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_where_no_node_runs_it_is_said_that_an_address_does_not_find_one(run, tmp_path, monkeypatch, command):
    monkeypatch.delenv("RINGLOG_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("RINGLOG_BOOTSTRAP", "127.0.0.1:1")
    for result in (run(command), run(command, "--bootstrap", "127.0.0.1:1")):
        assert result.exit_code == ExitCode.RETRY
        assert "by its data directory, not by its address, here 127.0.0.1:1" in result.stderr
        assert "name its --data-dir" in result.stderr


@pytest.mark.parametrize("command", ["status", "metrics"])
@pytest.mark.parametrize("by", ["option", "environment", "same address"])
def test_a_directory_that_is_named_counts_and_so_does_a_node_that_listens_there(
    run, data_dir, monkeypatch, command, by
):
    monkeypatch.setenv("RINGLOG_BOOTSTRAP", "127.0.0.1:1" if by != "same address" else "h:1,127.0.0.1:7777")
    if by == "environment":
        monkeypatch.setenv("RINGLOG_DATA_DIR", data_dir)
    result = run(command, *(["--data-dir", data_dir] if by == "option" else []))
    assert f"the node of {data_dir} is stopping" in result.stderr, "its memory was looked for"


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_directory_is_not_the_default_one(run, data_dir, command):
    result = run(command, "--data-dir", "")
    assert result.exit_code == ExitCode.USAGE
    assert "it is empty: name a directory, or leave the option out" in result.stderr


@pytest.mark.parametrize("command", ["status", "metrics"])
def test_advice_names_the_directory_that_was_meant(run, data_dir, tmp_path, command):
    other = str(tmp_path / "my other")
    result = run(command, "--data-dir", other)
    assert f"Start one with `ringlog start --data-dir '{other}'`, or check --data-dir" in result.stderr


def test_who_is_told_to_stop_a_node_is_not_led_to_another_one(tmp_path, data_dir):
    other = str(tmp_path / "other")
    held = DataDirLock(other)
    held.take()
    with pytest.raises(NodeRunning, match=f"Stop it with `ringlog stop --data-dir {other}`"):
        DataDirLock(other).take()
    with pytest.raises(NodeRunning, match="Stop it with `ringlog stop`, or use another"):
        DataDirLock(data_dir).take()
    held.leave()
