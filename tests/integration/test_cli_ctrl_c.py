"""Ctrl-C of commands that send: they end soon, say what stands, and leave no process and no traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

import ringlog
from cli.failures import ExitCode
from tests.support.node import wait_for
from tests.support.patience import stretched

PROGRAM = [sys.executable, "-m", "cli.main"]
WITHIN_S = 20.0


@pytest.fixture
def start(ringlog_node):
    """Start a command as a terminal does: in a group of processes of its own, all of which get a Ctrl-C."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        made = subprocess.Popen(
            [*PROGRAM, *arguments, "--bootstrap", ringlog_node.bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(made)
        return made

    yield run
    for one in started:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
        one.communicate()


def records_of(bootstrap: str, topic: str) -> int:
    with ringlog.Admin(bootstrap) as admin:
        if topic not in admin.list_topics():
            return 0
        return sum(one.readable_offset for one in admin.describe_topic(topic).partitions)


def press(one: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Ctrl-C, and what was printed until the end, which comes soon."""
    began_s = time.monotonic()
    os.killpg(one.pid, signal.SIGINT)
    printed = one.communicate(timeout=stretched(WITHIN_S))
    assert time.monotonic() - began_s < stretched(5.0)
    return printed


def test_ctrl_c_of_produce_tells_what_was_acknowledged(start, ringlog_node):
    sending = start("produce", "orders")
    assert sending.stdin is not None
    sending.stdin.write(b"one\ntwo\n")
    sending.stdin.flush()
    wait_for(
        "records of the command",
        lambda: records_of(ringlog_node.bootstrap, "orders") == 2,
        stretched(WITHIN_S),
    )
    time.sleep(0.2)  # the answer is on its way back
    out, errors = press(sending)
    assert (sending.returncode, out) == (ExitCode.INTERRUPTED, b"")
    made = rb"ringlog: there was no topic 'orders': it is created\.\n"
    assert re.fullmatch(made + rb"2 records acknowledged, flushed, in [\d.]+ s\n", errors), errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", "--seconds", "600"],
        ["produce", "--seconds", "600", "--rate", "1000"],
        ["produce", "--seconds", "600", "--producers", "2", "--rate", "1000"],
        ["latency", "--seconds", "600", "--rate", "100"],
    ],
    ids=" ".join,
)
def test_ctrl_c_of_a_benchmark_ends_all_of_it_with_the_figures_so_far(start, ringlog_node, arguments):
    running = start("bench", *arguments, "--topic", "bench-ctrl-c")
    wait_for(
        "records of the benchmark",
        lambda: records_of(ringlog_node.bootstrap, "bench-ctrl-c") > 0,
        stretched(WITHIN_S),
    )
    workers = psutil.Process(running.pid).children(recursive=True)
    assert len(workers) == (2 if "--producers" in arguments else 0)
    time.sleep(0.5)  # so that some were counted
    out, errors = press(running)
    assert running.returncode == ExitCode.INTERRUPTED
    assert re.match(rb"[\d,]+ records in [\d.]+ s(, flushed)?; interrupted, so far:\n", out), out
    assert out.count(b"\n") == 3
    assert re.fullmatch(
        rb"Topic bench-ctrl-c is kept: `.*topic delete bench-ctrl-c` frees its space\.\n", errors
    )
    assert not [one for one in workers if one.is_running()]


def test_ctrl_c_does_not_reach_producers_that_are_still_being_imported(start):
    running = start("bench", "produce", "--seconds", "600", "--producers", "2", "--topic", "bench-ctrl-c")
    wait_for(
        "a producer's process",
        lambda: psutil.Process(running.pid).children(recursive=True),
        stretched(WITHIN_S),
    )
    out, errors = press(running)
    assert (running.returncode, out) == (ExitCode.INTERRUPTED, b"")
    assert re.fullmatch(rb"(Topic bench-ctrl-c is kept: .*\n)?", errors), errors


@pytest.mark.parametrize("more", [[], ["--storage"]], ids=["a node", "--storage"])
def test_ctrl_c_of_the_demo_does_not_reach_its_helpers_while_they_are_imported(tmp_path, more):
    demo = subprocess.Popen(
        [*PROGRAM, "demo", "--records", "100000000", "--dir", str(tmp_path / "data"), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )

    def has_helper() -> bool:
        some = psutil.process_iter(["ppid", "cmdline"])
        return any(
            one.info["ppid"] == demo.pid and any("cli.demo_" in word for word in one.info["cmdline"] or [])
            for one in some
        )

    wait_for("a helper", has_helper, stretched(WITHIN_S))
    _, errors = press(demo)
    assert (demo.returncode, errors) == (ExitCode.INTERRUPTED, b"")
