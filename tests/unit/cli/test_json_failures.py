"""Who asked for JSON is told of errors in JSON: one object on stderr, with a code that scripts can rely on."""

from __future__ import annotations

import json

import click
import pytest

import cli.commands
from cli.failures import ExitCode
from cli.lazy import LazyCommand
from cli.options import json_option
from ringlog.errors import InvalidRequest, PartitionBusy


@pytest.fixture
def fail_with(monkeypatch):
    """Let `ringlog fail` end with an error."""

    def plant(error: BaseException) -> None:
        @click.command()
        @json_option
        def fail(as_json: bool) -> None:
            raise error

        monkeypatch.setattr(cli.commands, "fail", fail, raising=False)
        monkeypatch.setitem(cli.commands.ringlog._lazy, "fail", LazyCommand("cli.commands:fail", ""))

    return plant


@pytest.mark.parametrize("arguments", [("fail", "--json"), ("--json", "fail")])
@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (
            PartitionBusy("orders-0 is busy."),
            ExitCode.RETRY,
            {
                "code": "PARTITION_BUSY",
                "message": "orders-0 is busy. Try again in a moment.",
                "retriable": True,
            },
        ),
        (
            InvalidRequest("no such thing"),
            ExitCode.REFUSED,
            {"code": "INVALID_REQUEST", "message": "no such thing. See --help.", "retriable": False},
        ),
        (
            PermissionError(13, "Permission denied", "/data/a\nb"),
            ExitCode.SYSTEM,
            {
                "code": "SYSTEM_ERROR",
                "message": "/data/a\\nb: Permission denied. Run it as the user that owns the data.",
                "retriable": False,
            },
        ),
    ],
)
def test_an_error_is_one_object_with_code_message_and_whether_a_retry_helps(
    run, fail_with, arguments, error, code, told
):
    fail_with(error)
    result = run(*arguments)
    assert (result.exit_code, result.stdout, json.loads(result.stderr)) == (code, "", told)
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["topic", "list", "--json", "--nosuch"], "--nosuch"),
        (["--json", "topic", "list", "--nosuch"], "--nosuch"),
        (["--nosuch", "--json"], "--nosuch"),
        (["topic", "create", "--json"], "NAME"),
        (["--json", "lgo"], "log"),
        (["--json", "topic"], "Missing command"),
        (["topic", "create", "orders", "--partitions", "many", "--json"], "many"),
        (["consume", "orders", "--json", "--format", "%v"], "--format"),
    ],
)
def test_a_wrong_command_line_is_told_in_json_too(run, arguments, word):
    result = run(*arguments)
    told = json.loads(result.stderr)
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert (told["code"], told["retriable"]) == ("WRONG_USAGE", False) and word in told["message"]


@pytest.mark.parametrize(
    "arguments", [["topic", "list", "--nosuch"], ["topic", "list", "--nosuch", "--", "--json"]]
)
def test_who_did_not_ask_for_json_reads_text(run, arguments):
    result = run(*arguments)
    assert result.exit_code == ExitCode.USAGE and "Error: " in result.stderr


def test_help_says_how_errors_look(run):
    assert '{"code": ..., "message": ..., "retriable": ...}' in " ".join(run("--help").stdout.split())
