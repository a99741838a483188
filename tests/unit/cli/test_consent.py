"""Commands that delete ask a person at a terminal first, and nobody else."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import pytest

from cli.failures import ExitCode
from tests.support.router import RouterNode

NO_TOPIC = "there is no topic 'orders'"
"""What those are told who are not asked, or agree: nothing else stands between them and the deletion."""
DELETING = [["topic", "delete", "orders"], ["topic", "delete-records", "orders", "0=-1"]]


@pytest.fixture(scope="module")
def address():
    """Of a node that has no topics."""
    with RouterNode() as made:
        yield ["--bootstrap", made.bootstrap]


def at_a_terminal(*arguments: str, typed: bytes) -> tuple[int, str]:
    """The exit code of a command, and what its terminal showed."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", *arguments], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, typed)
    shown = b""
    with suppress(OSError):  # how a terminal says that its other end is closed
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    return process.wait(timeout=60), shown.decode()


@pytest.mark.parametrize("arguments", DELETING, ids=" ".join)
def test_who_says_no_keeps_everything_and_is_told_so(address, arguments):
    code, shown = at_a_terminal(*arguments, *address, typed=b"n\n")
    assert code == ExitCode.REFUSED
    assert "Delete" in shown and "orders" in shown and "[y/N]" in shown
    assert "nothing was deleted" in shown and NO_TOPIC not in shown


@pytest.mark.parametrize("arguments", DELETING, ids=" ".join)
@pytest.mark.parametrize(("more", "typed"), [([], b"y\n"), (["--yes"], b"")], ids=["y", "--yes"])
def test_who_agrees_before_or_after_the_question_gets_on(address, arguments, more, typed):
    code, shown = at_a_terminal(*arguments, *address, *more, typed=typed)
    assert (code, "[y/N]" in shown) == (ExitCode.REFUSED, not more)
    assert NO_TOPIC in shown


def test_who_goes_away_at_the_question_is_not_told_of_broken_data(address):
    code, shown = at_a_terminal(*DELETING[0], *address, typed=b"\x04")
    assert code == ExitCode.INTERRUPTED and NO_TOPIC not in shown and "Aborted" not in shown


@pytest.mark.parametrize("arguments", DELETING, ids=" ".join)
def test_a_script_is_not_asked(run, address, arguments):
    result = run(*arguments, *address)
    assert NO_TOPIC in result.stderr and "[y/N]" not in result.output
