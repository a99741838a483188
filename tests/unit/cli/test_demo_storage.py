"""The storage demo tells the truth: it passes on a log that kept its promises, and fails on one that did not."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from click.testing import CliRunner

from cli import demo_helper, demo_writer
from cli import demo_storage as demo_module
from cli.demo_records import BATCH_RECORDS, batch
from cli.demo_tear import tear_last_batch
from cli.failures import ExitCode
from ringlog.errors import DiskFull
from ringlog.limits import SECTOR_BYTES
from ringlog.records.scan import scan, stamp


def run_demo(directory, *arguments):
    return CliRunner().invoke(
        demo_module.storage_demo, ["--records", "20000", "--dir", str(directory), *arguments]
    )


def test_demo_passes_and_removes_its_log(tmp_path):
    ended = run_demo(tmp_path / "data")
    assert ended.exit_code == 0, ended.output
    assert "as it must be" in ended.output
    assert not (tmp_path / "data").exists()


def test_keep_leaves_the_log_and_says_where(tmp_path):
    ended = run_demo(tmp_path, "--keep")
    assert ended.exit_code == 0, ended.output
    assert f"ringlog log verify {tmp_path}/demo-0" in ended.output
    assert any(name.endswith(".cut") for name in os.listdir(tmp_path / "demo-0"))


def test_demo_fails_when_an_acknowledged_record_is_torn(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_module, "tear_last_batch", lambda path, offset: tear_last_batch_but_one(path))
    ended = run_demo(tmp_path)
    assert ended.exit_code == 1
    assert "Lost" in ended.output
    assert (tmp_path / "demo-0").exists()


def tear_last_batch_but_one(path):
    """Tears the second batch of the file, which was acknowledged long ago, and thereby all that follows."""
    with open(path, "r+b") as file:
        table = scan(file.read()).table
        file.truncate(int(table["position"][1]) + 100)
    return demo_module.Tear(0, 100, 0)


def test_demo_refuses_a_directory_with_a_log(tmp_path):
    (tmp_path / "demo-0").mkdir()
    ended = run_demo(tmp_path)
    assert ended.exit_code == 2
    assert "already holds a log" in ended.output


@pytest.mark.parametrize("batches_on_disk", [2, 3, 5])
def test_tear_leaves_acknowledged_batches_whole_and_half_of_one_behind_them(tmp_path, batches_on_disk):
    acknowledged = 2 * BATCH_RECORDS
    data = b"".join(stamped(number * BATCH_RECORDS) for number in range(batches_on_disk))
    path = tmp_path / "0.log"
    path.write_bytes(data + bytes(200_000))
    tear = tear_last_batch(str(path), acknowledged)
    found = scan(path.read_bytes())
    whole = max(batches_on_disk - 1, 2)
    assert found.table["base_offset"].tolist() == [n * BATCH_RECORDS for n in range(whole)]
    assert found.end == tear.position
    assert (tear.position + tear.left_bytes) % SECTOR_BYTES == 0
    assert found.fault is not None and not found.incomplete


def stamped(offset):
    made = batch(offset)
    stamp(made, base_offset=offset, leader_epoch=0)
    return bytes(made)


def test_no_more_is_said_to_be_cut_than_was_left(tmp_path):
    ended = run_demo(tmp_path)
    cut, left = re.search(r"aside\s+([\d,]+) of ([\d,]+) bytes", ended.output).groups()
    assert 0 < int(cut.replace(",", "")) <= int(left.replace(",", ""))


def test_a_full_disk_ends_the_demo_as_the_system_refusing_and_leaves_nothing(tmp_path, monkeypatch):
    def full(directory):
        raise DiskFull("demo-0: write: the disk is full")

    monkeypatch.setattr(demo_writer, "write_for_ever", full)
    assert demo_writer.main(str(tmp_path)) == ExitCode.SYSTEM
    script = f"import os, sys; os.mkdir({str(tmp_path / 'demo-0')!r}); sys.exit({ExitCode.SYSTEM})"
    popen = subprocess.Popen
    monkeypatch.setattr(
        demo_helper.subprocess, "Popen", lambda line, **named: popen([line[0], "-c", script], **named)
    )
    ended = run_demo(tmp_path)
    assert ended.exit_code == ExitCode.SYSTEM, ended.output
    assert os.listdir(tmp_path) == []
