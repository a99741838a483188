"""Options that are wrong are wrong usage (exit code 2), whoever finds out; a node or a file that is wrong is not."""

from __future__ import annotations

import json

import pytest

from cli.failures import ExitCode
from tests.unit.cli.test_help import COMMANDS

ASKING = [
    path for path in COMMANDS if path[0] in ("topic", "group", "cluster", "produce", "consume", "bench")
]
ARGUMENTS = {
    ("group", "delete"): ["g"],
    ("group", "describe"): ["g"],
    ("group", "reset"): ["g", "--to", "earliest"],
    ("topic", "add-partitions"): ["t", "9"],
    ("topic", "delete-records"): ["t", "0:1"],
}


@pytest.mark.parametrize("path", [*ASKING, ("status",), ("stop",), ("metrics",)], ids=" ".join)
def test_an_address_that_is_none(run, path, tmp_path):
    arguments = ARGUMENTS.get(path, ["t"] if path[0] in ("topic", "produce", "consume") else [])
    result = run(*path, *arguments, "--bootstrap", "nowhere", "--json")
    assert result.exit_code == ExitCode.USAGE
    assert json.loads(result.stderr)["code"] == "WRONG_USAGE"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "here"], "use tcp://HOST:PORT"),
        (["--listen", "tcp://0.0.0.0:9400"], "--insecure"),
        (["--metrics-listen", "here"], "use HOST:PORT"),
        (["--shards", "100000"], "shards=100000"),
        (["--cluster", "here"], "cluster"),
        (["--node-id", "7"], "--cluster"),
        (["--rack", "a"], "--cluster"),
    ],
)
def test_settings_of_a_node_that_are_given_as_options(run, tmp_path, options, said):
    result = run("start", "--data-dir", tmp_path / "data", *options)
    assert result.exit_code == ExitCode.USAGE and said in result.stderr
    assert not (tmp_path / "data").exists()


def test_a_file_of_settings_that_is_wrong_is_refused(run, tmp_path):
    (tmp_path / "node.toml").write_text('listen = "here"')
    result = run("start", "--config", tmp_path / "node.toml", "--data-dir", tmp_path / "data")
    assert result.exit_code == ExitCode.REFUSED and "use tcp://HOST:PORT" in result.stderr


def test_a_file_that_is_good_does_not_excuse_the_options(run, tmp_path):
    (tmp_path / "node.toml").write_text("shards = 1")
    result = run(
        "start", "--config", tmp_path / "node.toml", "--data-dir", tmp_path / "data", "--listen", "here"
    )
    assert result.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("command", ["produce", "consume", "latency"])
def test_a_topic_that_cannot_be(run, node, command):
    result = run("bench", command, "--topic", "@@")
    assert result.exit_code == ExitCode.USAGE and "topic '@@'" in result.stderr


@pytest.mark.parametrize("group", ["", "x" * 300])
def test_a_group_that_cannot_be(run, node, group):
    node.create("t")
    result = run("consume", "t", "--group", group)
    assert result.exit_code == ExitCode.USAGE and "--group: a name has 1 to 256" in result.stderr


def test_an_address_where_a_bridge_cannot_listen(run):
    result = run("bridge", "--listen", "here")
    assert result.exit_code == ExitCode.USAGE and "use tcp://HOST:PORT" in result.stderr
