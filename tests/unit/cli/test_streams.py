"""A command ends well whatever became of its streams."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli.failures import ExitCode


def shell(line, *arguments):
    program = f'"{sys.executable}" -m cli.main'
    return subprocess.run(
        ["bash", "-c", line.replace("RINGLOG", program), "bash", *map(str, arguments)],
        capture_output=True,
        timeout=60,
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_no_exit_code(partition, closed):
    ended = shell(f'RINGLOG log verify "$1" {closed}', partition.root)
    assert (ended.returncode, ended.stderr) == (ExitCode.OK, b"")


def test_a_closed_output_hides_no_violation(partition):
    partition.flip(partition.segment, 70)
    assert shell('RINGLOG log verify "$1" >&-', partition.root).returncode == ExitCode.BROKEN_DATA


def test_a_closed_output_never_ends_up_in_a_file_of_the_log(partition):
    before = {path: path.read_bytes() for path in partition.path.iterdir()}
    shell('RINGLOG log dump --records "$1" >&-', partition.path)
    assert {path: path.read_bytes() for path in partition.path.iterdir()} == before


def test_the_demo_ends_quietly_when_nobody_reads_it(tmp_path):
    ended = shell(
        'RINGLOG demo --records 5000 --dir "$1" | head -n 1 >&2; exit "${PIPESTATUS[0]}"', tmp_path / "data"
    )
    assert ended.returncode == ExitCode.OUTPUT_CLOSED
    assert ended.stderr.count(b"\n") == 1


def test_a_dump_is_written_in_large_pieces(partition, monkeypatch, run):
    pieces = []
    monkeypatch.setattr("cli.output.GatheredOutput._hand_over", _counting(pieces))
    lines = run("log", "dump", "--records", partition.path).stdout.count("\n")
    assert lines > 10 and len(pieces) == 1


def _counting(pieces):
    from cli.output import GatheredOutput

    original = GatheredOutput._hand_over

    def counted(self):
        pieces.append(len(self._lines))
        original(self)

    return counted
