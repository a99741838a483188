"""A mistyped command is answered with the one that was meant, in every group."""

from __future__ import annotations

import pytest

from cli.failures import ExitCode


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["lgo"], "log"),
        (["prodcue", "orders"], "produce"),
        (["topic", "craete"], "create"),
        (["bench", "latencey"], "latency"),
        (["log", "verfy"], "verify"),
    ],
)
def test_a_mistyped_command_names_the_one_that_was_meant(run, typed, meant):
    result = run(*typed)
    assert result.exit_code == ExitCode.USAGE
    assert f"Did you mean '{meant}'?" in result.stderr


def test_a_command_like_no_other_is_only_refused(run):
    result = run("xyzzy")
    assert result.exit_code == ExitCode.USAGE
    assert "No such command" in result.stderr and "Did you mean" not in result.stderr
