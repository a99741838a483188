"""What every command does: help that is fast, errors as one line, exit codes that scripts can rely on."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys

import click
import pytest

import cli.commands
from cli.failures import ExitCode, exit_code, failure_line
from cli.lazy import LazyCommand
from ringlog import __version__
from ringlog.errors import (
    CorruptFile,
    InvalidRequest,
    InvariantBroken,
    PartitionBusy,
    RequestTimeout,
    UnknownGroup,
)


def test_version_is_that_of_the_package(run):
    assert run("--version").stdout == f"ringlog, version {__version__}\n"


def test_help_lists_the_groups_with_examples_and_exit_codes(run):
    text = run("--help").stdout
    assert "ringlog log verify /data" in text
    assert "Look into the files of partitions" in text
    assert "Watch a log append, die, recover" in text
    assert "Exit codes:" in text


def test_help_of_every_command_has_examples_and_json(run):
    for command in ("dump", "verify"):
        text = run("log", command, "--help").stdout
        assert "Examples:" in text and "--json" in text


@pytest.mark.parametrize("arguments", [["--help"], ["log", "--help"], ["log", "dump", "--help"]])
def test_help_imports_neither_numpy_nor_liburing_nor_rich(arguments):
    program = (
        "import sys, cli.commands\n"
        f"try: cli.commands.ringlog({arguments})\n"
        "except SystemExit: print(sorted({'numpy', 'liburing', 'rich', 'msgspec'} & set(sys.modules)))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output.splitlines()[-1] == "[]"


def test_an_unknown_command_is_wrong_usage(run):
    result = run("lgo")
    assert result.exit_code == ExitCode.USAGE
    assert "No such command" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InvalidRequest("no such thing"), ExitCode.REFUSED, "ringlog: no such thing. See --help."),
        (
            InvalidRequest("shards=100000: use 0 to 256"),
            ExitCode.REFUSED,
            "ringlog: shards=100000: use 0 to 256",
        ),
        (
            InvalidRequest("this cluster has 1 node, so use 1"),
            ExitCode.REFUSED,
            "ringlog: this cluster has 1 node, so use 1",
        ),
        (
            InvalidRequest("bootstrap 'x' is no address: say host:port"),
            ExitCode.REFUSED,
            "ringlog: bootstrap 'x' is no address: say host:port",
        ),
        (
            PartitionBusy("orders-0 is busy."),
            ExitCode.RETRY,
            "ringlog: orders-0 is busy. Try again in a moment.",
        ),
        (
            RequestTimeout("no answer within 30 s"),
            ExitCode.RETRY,
            "ringlog: no answer within 30 s. Try again in a moment.",
        ),
        (
            CorruptFile("magic", 0, "wrong"),
            ExitCode.REFUSED,
            "ringlog: magic at byte 0: wrong. `ringlog log verify` lists all that is broken.",
        ),
        (
            InvariantBroken("offsets grow"),
            ExitCode.REFUSED,
            "ringlog: offsets grow. This is a bug of ringlog: please report it with this line.",
        ),
        (
            UnknownGroup("there is no group 'g'"),
            ExitCode.REFUSED,
            "ringlog: there is no group 'g'. `ringlog group list` shows those that there are.",
        ),
        (
            OSError(30, "Read-only file system", "/data"),
            ExitCode.SYSTEM,
            "ringlog: /data: Read-only file system. Mount it for writing, or name another directory.",
        ),
        (
            PermissionError(13, "Permission denied", "/data/a\nb"),
            ExitCode.SYSTEM,
            "ringlog: /data/a\\nb: Permission denied. Run it as the user that owns the data.",
        ),
        (OSError("odd"), ExitCode.SYSTEM, "ringlog: odd. The system's manual explains the error."),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do_and_a_stable_code(monkeypatch, run, error, code, line):
    def fail() -> None:
        raise error

    command = click.Command("fail", callback=fail)
    monkeypatch.setattr(cli.commands, "fail", command, raising=False)
    monkeypatch.setitem(cli.commands.ringlog._lazy, "fail", LazyCommand("cli.commands:fail", ""))
    result = run("fail")
    assert (result.exit_code, result.stderr, result.stdout) == (code, line + "\n", "")
    assert (exit_code(error), failure_line(error)) == (code, line)


def test_interrupt_ends_quietly_with_130(monkeypatch, run):
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.commands, "wait", click.Command("wait", callback=interrupt), raising=False)
    monkeypatch.setitem(cli.commands.ringlog._lazy, "wait", LazyCommand("cli.commands:wait", ""))
    result = run("wait")
    assert (result.exit_code, result.stdout, result.stderr) == (ExitCode.INTERRUPTED, "", "")


def test_an_interrupt_while_the_command_is_still_being_imported_is_as_quiet():
    program = """
import sys

class Interrupting:
    def find_spec(self, name, *more):
        if name == "click":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
import cli.main
cli.main.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.INTERRUPTED, b"", b"")


def test_ctrl_c_ends_a_real_command_quietly_though_nobody_reads_its_output(command, partition):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    process = command("log", "dump", "--records", "--max-bytes", "5000", partition.path, stdout=writer)
    os.close(writer)
    assert process.stderr is not None
    os.read(reader, 1)  # the first bytes are there: the pipe is full, and the command waits in a write
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == ExitCode.INTERRUPTED
    assert process.stderr.read() == b""
    process.stderr.close()
    os.close(reader)


def test_a_closed_pipe_ends_a_real_command_quietly(command, partition):
    process = command("log", "dump", "--records", "--max-bytes", "5000", partition.path)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=60) == ExitCode.OUTPUT_CLOSED
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["topic", "--help"]])
def test_a_closed_pipe_ends_help_as_it_ends_any_command(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (ExitCode.OUTPUT_CLOSED, b"")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["topic", "--help"]])
def test_help_that_cannot_be_written_is_told_in_a_line(arguments):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *arguments], stdout=full, stderr=subprocess.PIPE, check=False
        )
    line = b"ringlog: No space left on device. Free some space.\n"
    assert (done.returncode, done.stderr) == (ExitCode.SYSTEM, line)


def test_the_system_says_whether_a_data_directory_may_be_read(run, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # what a check of the command line would go by
    assert run("status", "--data-dir", tmp_path).exit_code == ExitCode.RETRY  # no node runs there
