"""`ringlog log verify`: which directories it takes, what it prints, and how it ends."""

from __future__ import annotations

import errno
import json
import shutil

import pytest

from cli.failures import ExitCode
from ringlog.disk.plain import PlainDisk


def test_a_good_data_directory_is_good(run, partition):
    for directory in (partition.root, partition.path):
        result = run("log", "verify", directory)
        assert result.exit_code == ExitCode.OK
        assert result.stdout.startswith("1 partition, 1 segment, ")
        assert result.stdout.endswith(" bytes, 0 violations, 0 notes\n")


def test_a_violation_is_one_line_with_path_byte_rule_and_finding(run, partition):
    partition.flip(partition.segment, 70)
    result = run("log", "verify", partition.root)
    assert result.exit_code == ExitCode.BROKEN_DATA
    assert result.stdout.splitlines()[0] == (
        f"{partition.segment}:0: violation: a segment is whole batches with right CRCs up to its end; "
        "found crc at byte 17: not the CRC32C of the batch's bytes [whole-batches]"
    )


def test_notes_alone_are_no_failure(run, partition):
    (partition.path / "partition.state.bad").write_bytes(b"")
    result = run("log", "verify", partition.path)
    assert result.exit_code == ExitCode.OK
    assert "0 violations, 1 note\n" in result.stdout


def test_space_behind_the_logs_of_many_partitions_is_one_line(run, partition):
    with partition.segment.open("ab") as segment:
        segment.write(bytes(4096))
    alone = run("log", "verify", partition.root).stdout.splitlines()
    assert len(alone) == 2 and alone[0].startswith(f"{partition.segment}:") and "[preallocated]" in alone[0]
    for number in (1, 2):
        shutil.copytree(partition.path, partition.root / f"orders-{number}")
    result = run("log", "verify", partition.root)
    assert result.exit_code == ExitCode.OK
    said, summary = result.stdout.splitlines()
    assert said == "note: 3 segments have space reserved behind the log, until they are closed [preallocated]"
    assert summary.endswith("0 violations, 3 notes")
    assert run("log", "verify", "--json", partition.root).stdout.count('"rule":"preallocated"') == 3


def test_all_partitions_of_a_data_directory_are_checked(run, partition):
    shutil.copytree(partition.path, partition.root / "orders-1")
    (partition.root / "elsewhere").mkdir()
    partition.flip(partition.root / "orders-1" / partition.segment.name, 70)
    result = run("log", "verify", "--json", partition.root)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == ExitCode.BROKEN_DATA
    assert {line["path"].split("/")[-2] for line in lines[:-1]} == {"orders-1"}
    assert lines[-1]["type"] == "summary"
    assert (lines[-1]["partitions"], lines[-1]["segments"]) == (2, 2)


def test_json_names_the_rule_and_what_must_hold(run, partition):
    partition.flip(partition.segment, 70)
    first = json.loads(run("log", "verify", "--json", partition.path).stdout.splitlines()[0])
    assert (first["type"], first["rule"], first["path"], first["byte"]) == (
        "violation",
        "whole-batches",
        str(partition.segment),
        0,
    )
    assert first["must_hold"] and first["found"]


def test_a_name_that_is_no_text_does_not_break_the_output(run, partition):
    (partition.path / "two\nlines\udcff").write_bytes(b"")
    text = run("log", "verify", partition.path)
    assert "two\\nlines\\udcff: violation" in text.stdout
    lines = run("log", "verify", "--json", partition.path).stdout.splitlines()
    assert json.loads(lines[0])["rule"] == "known-name"


def test_an_empty_partition_is_good_and_a_directory_without_any_is_wrong_usage(run, tmp_path):
    (tmp_path / "orders-0").mkdir()
    assert run("log", "verify", tmp_path / "orders-0").exit_code == ExitCode.OK
    (tmp_path / "elsewhere").mkdir()
    result = run("log", "verify", tmp_path / "elsewhere")
    assert result.exit_code == ExitCode.USAGE
    assert "is no partition and has none in it" in result.stderr


def test_a_missing_directory_and_a_file_are_wrong_usage(run, partition):
    assert run("log", "verify", partition.root / "nowhere").exit_code == ExitCode.USAGE
    assert run("log", "verify", partition.segment).exit_code == ExitCode.USAGE


def test_a_real_process_ends_with_1_for_violations_and_shows_no_progress_bar_in_a_pipe(command, partition):
    partition.flip(partition.segment, 70)
    process = command("log", "verify", partition.root)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == ExitCode.BROKEN_DATA
    assert errors == b""
    assert b"whole-batches" in output


@pytest.mark.parametrize(
    "name", ["00000000000000000000.log", "00000000000000000000.index", "partition.state"]
)
def test_a_file_that_cannot_be_read_is_named_and_is_the_system_refusing(run, partition, monkeypatch, name):
    real = PlainDisk.open

    def refused(self, path, **named):
        if path.endswith(name):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(self, path, **named)

    monkeypatch.setattr(PlainDisk, "open", refused)
    result = run("log", "verify", partition.root)
    assert result.exit_code == ExitCode.SYSTEM
    assert f"{name}: violation: every file can be read" in result.stdout


def test_a_partition_that_is_being_deleted_is_not_checked(run, partition):
    partition.flip(partition.segment, 70)
    partition.path.rename(partition.root / "orders-0.0-delete")
    assert run("log", "verify", partition.root).exit_code == ExitCode.USAGE


def test_what_was_set_aside_is_said_to_be_kept(run, partition):
    (partition.path / "partition.state.bad").write_bytes(b"abc")
    assert (
        "note: what was set aside is kept, for people to look at and to delete; found 3 bytes of a state"
        in (run("log", "verify", partition.path).stdout)
    )
