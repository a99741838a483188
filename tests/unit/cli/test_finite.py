"""Numbers that are none are wrong usage, wherever an option takes a number."""

from __future__ import annotations

import pytest

from cli.failures import ExitCode

PLAN = ["plan", "--records-per-s", "1M", "--record-size", "1KB"]


@pytest.mark.parametrize("wrong", ["nan", "inf"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "produce", "--seconds"],
        ["bench", "produce", "--count", "10", "--rate"],
        ["bench", "consume", "--count", "10", "--rate"],
        ["bench", "latency", "--count", "10", "--rate"],
        ["stop", "--timeout"],
        ["tune", "--budget"],
        ["tune", "--compare-seconds"],
        [*PLAN, "--cpu-s-per-gb"],
        [*PLAN, "--headroom"],
    ],
    ids=" ".join,
)
def test_a_number_that_is_none_is_wrong_usage(run, node, tmp_path, arguments, wrong):
    if arguments[0] in ("stop", "tune"):
        arguments = [arguments[0], "--data-dir", tmp_path, *arguments[1:]]
    result = run(*arguments, wrong)
    assert result.exit_code == ExitCode.USAGE, result.output
    assert wrong in result.stderr
