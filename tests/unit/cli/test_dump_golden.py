"""The text that people see, compared with files in tests/golden. To accept a change: RINGLOG_GOLDEN=write pytest."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ringlog.disk.plain import PlainDisk
from ringlog.log.settings import LogSettings
from ringlog.model import TopicPartition
from ringlog.records.encode import encode
from tests.support.logs import LogWorld

GOLDEN = Path(__file__).parents[2] / "golden"
START_MS = 1_700_000_000_000
SEGMENT = "00000000000000000000.log"


@pytest.fixture
def lamps(tmp_path, monkeypatch) -> Path:
    """A small closed partition, the working directory beside it. No compression: its sizes vary with libraries."""
    disk = PlainDisk()
    world = LogWorld(
        disk, LogSettings(), root=str(tmp_path), memory_bytes=16 << 20, partition=TopicPartition("lamps", 0)
    )
    world.now_ms = START_MS
    world.append_raw(
        encode(
            [b"on", None, "grün\n".encode(), b"\xff\x00"],
            keys=[b"hall", b"hall", None, b""],
            headers=[[("unit", b"W"), ("none", None)], None, None, None],
            timestamps=[START_MS, START_MS + 5, START_MS + 2, -1],
        )
    )
    for sequence in (0, 1):
        batch = encode(
            [b"x" * 3000],
            timestamps=START_MS + 10 + sequence,
            producer_id=4000,
            producer_epoch=1,
            base_sequence=sequence,
            transactional=True,
        )
        world.append_raw(batch, leader_epoch=3)
    world.append_raw(
        encode(
            [b"\x00\x00\x00\x00\x00\x00"], keys=[b"\x00\x00\x00\x01"], timestamps=START_MS + 20, control=True
        ),
        3,
    )
    for number in range(3):
        world.append_raw(encode([b"y" * 2500], timestamps=START_MS + 30 + number), leader_epoch=3)
    world.close()
    disk.shutdown()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "lamps-0"


def _same(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("RINGLOG_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("dump-batches.txt", ["lamps-0"]),
        ("dump-records.txt", ["--records", "--max-bytes", "20", "lamps-0"]),
        ("dump-records.jsonl", ["--records", "--json", "--count", "4", "lamps-0"]),
        ("dump-batches.jsonl", ["--json", "lamps-0"]),
        ("dump-index.txt", ["lamps-0/00000000000000000000.index"]),
        ("dump-timeindex.txt", ["lamps-0/00000000000000000000.timeindex"]),
        ("dump-snapshot.txt", ["lamps-0/00000000000000000010.snapshot"]),
        ("dump-state.txt", ["lamps-0/partition.state"]),
        ("dump-state.jsonl", ["--json", "lamps-0/partition.state"]),
    ],
)
def test_dump_prints_what_the_golden_file_has(run, lamps, name, arguments):
    result = run("log", "dump", "--utc", *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    _same(name, result.stdout)


def test_dump_and_verify_of_a_damaged_log_print_what_the_golden_files_have(run, lamps):
    segment = lamps / SEGMENT
    content = bytearray(segment.read_bytes())
    content[300] ^= 0x10
    segment.write_bytes(content + b"torn write" + bytes(5000))
    result = run("log", "dump", "--utc", "lamps-0")
    assert result.exit_code == 1
    _same("dump-damaged.txt", result.stdout)
    result = run("log", "verify", "lamps-0")
    assert result.exit_code == 1
    _same("verify-damaged.txt", result.stdout)


def test_times_are_local_unless_utc_is_asked_for(run, lamps, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert "2023-11-15T03:43:20.000+05:30" in run("log", "dump", "lamps-0").stdout
        assert "2023-11-14T22:13:20.000+00:00" in run("log", "dump", "--utc", "lamps-0").stdout
    finally:
        monkeypatch.undo()
        time.tzset()
