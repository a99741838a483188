"""Every command explains itself, with examples, and quickly."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from cli.commands import ringlog
from cli.failures import ExitCode


def commands(group=ringlog, path=()):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


COMMANDS = sorted(commands())


def test_all_commands_are_there():
    names = {" ".join(path) for path in COMMANDS}
    topic = {"create", "list", "describe", "alter", "delete", "add-partitions"}
    assert names >= {f"topic {name}" for name in topic} | {
        "produce",
        "consume",
        "start",
        "stop",
        "status",
        "metrics",
    }
    assert names >= {f"group {name}" for name in ("list", "describe", "reset", "delete")}
    assert names >= {"bench produce", "bench consume", "bench latency", "log dump", "log verify", "demo"}
    assert names >= {"doctor", "plan", "tune", "cluster describe"}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_examples_that_begin_with_the_command(run, path):
    text = run(*path, "--help").stdout
    assert "Examples:" in text and f"ringlog {' '.join(path)}" in text.partition("Examples:")[2]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_json_may_follow_every_command(run, path):
    if path != ("demo",):
        assert "--json" in run(*path, "--help").stdout


@pytest.mark.parametrize("path", [("stop",), ("status",), ("metrics",)], ids=" ".join)
def test_bootstrap_may_follow_commands_that_look_after_a_node(run, path):
    assert "--bootstrap" in run(*path, "--help").stdout


@pytest.mark.parametrize(
    "path",
    [path for path in COMMANDS if path[0] in ("topic", "group", "cluster", "produce", "consume", "bench")],
)
def test_bootstrap_may_follow_every_command_that_talks_to_a_node(run, path):
    text = run(*path, "--help").stdout
    assert "--bootstrap" in text and "RINGLOG_BOOTSTRAP" in text


def test_no_help_imports_what_is_slow():
    paths = [path for path in COMMANDS if path != ("demo",)]
    program = (
        "import sys; from cli.commands import ringlog\n"
        f"for path in {paths}:\n"
        "    try: ringlog([*path, '--help'])\n"
        "    except SystemExit: continue\n"
        "print(sorted({'numpy', 'zmq', 'liburing', 'rich', 'msgspec', 'pyarrow', 'psutil'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


LOCAL = [path for path in COMMANDS if path[0] in ("plan", "doctor", "start", "tune", "demo", "log")]


@pytest.mark.parametrize("path", LOCAL, ids=" ".join)
@pytest.mark.parametrize("is_before", [True, False])
def test_an_address_may_stand_with_commands_that_ask_no_node_too(run, path, is_before):
    address = ("--bootstrap", "127.0.0.1:1")
    result = run(*address, *path, "--help") if is_before else run(*path, *address, "--help")
    assert result.exit_code == ExitCode.OK


def test_what_stands_there_must_be_an_address(run):
    result = run("doctor", "--bootstrap", "nowhere::")
    assert result.exit_code == ExitCode.USAGE and "no address" in result.stderr
