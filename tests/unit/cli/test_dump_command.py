"""`ringlog log dump`: what it prints, what it skips, and how it ends."""

from __future__ import annotations

import base64
import json
import shutil

import pytest

from cli.failures import ExitCode
from ringlog.records.checksum import crc32c
from ringlog.records.decode import decode
from ringlog.records.encode import encode
from ringlog.records.scan import check


def _lines(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_batches_of_a_partition_are_its_segments_batches(run, partition):
    result = run("log", "dump", "--json", partition.path)
    table = check(partition.segment.read_bytes())
    assert result.exit_code == ExitCode.OK
    assert [(b["position"], b["base_offset"], b["last_offset"], b["nbytes"]) for b in _lines(result)] == [
        (int(row["position"]), int(row["base_offset"]), int(row["last_offset"]), int(row["length"]))
        for row in table
    ]
    assert {b["codec"] for b in _lines(result)} == {"none", "gzip", "snappy", "lz4", "zstd"}


def test_records_in_json_are_whole_and_exact(run, partition):
    result = run("log", "dump", "--records", "--json", "--max-bytes", "3", partition.segment)

    def original(value):
        return base64.b64decode(value["base64"]) if isinstance(value, dict) else value and value.encode()

    printed = [
        (r["offset"], r["timestamp"], original(r["key"]), original(r["value"]), r["headers"])
        for r in _lines(result)
    ]
    assert [(p[0], p[1], p[2], p[3] or None) for p in printed] == [
        (r.offset, r.timestamp, r.key if r.key != b"" else "", r.value or None)
        for r in decode(partition.segment.read_bytes())
    ]
    assert printed[0][4] == [["room", "hall"]]


def test_from_offset_and_count_choose_records(run, partition):
    result = run("log", "dump", "--records", "--json", "--from-offset", 6, "--count", 3, partition.path)
    assert [record["offset"] for record in _lines(result)] == [6, 7, 8]


def test_from_offset_and_count_choose_batches(run, partition):
    result = run("log", "dump", "--json", "--from-offset", 6, "--count", 2, partition.path)
    assert [batch["base_offset"] for batch in _lines(result)] == [4, 8]


def test_long_values_are_cut_in_text(run, partition):
    result = run("log", "dump", "--records", "--max-bytes", 4, "--count", 1, partition.path)
    assert "(+1996 bytes)" in result.stdout


def test_a_broken_batch_is_named_and_the_next_ones_are_shown(run, partition):
    table = check(partition.segment.read_bytes())
    at, following = int(table["position"][3]), int(table["position"][4])
    partition.flip(partition.segment, at + 70)
    result = run("log", "dump", "--json", partition.path)
    lines = _lines(result)
    assert result.exit_code == ExitCode.BROKEN_DATA
    assert [line["type"] for line in lines] == ["batch"] * 4 + ["broken"] + ["batch"] * 8
    assert (lines[3]["position"], lines[3]["crc_ok"]) == (at, False)
    assert (lines[4]["position"], lines[4]["end"]) == (at, following)
    assert "crc" in lines[4]["reason"]
    text = run("log", "dump", partition.path).stdout
    assert f"BROKEN bytes {at}..{following}: crc at byte {at + 17}" in text


def test_a_batch_whose_records_cannot_be_decoded_is_named_and_the_next_ones_are_shown(run, tmp_path):
    bad = encode([b"a", b"b"], timestamps=0, base_offset=0)
    bad[61] = 0x7F
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(bad + encode([b"c"], timestamps=0, base_offset=2))
    result = run("log", "dump", "--records", "--json", segment)
    assert result.exit_code == ExitCode.BROKEN_DATA
    assert [line["type"] for line in _lines(result)] == ["broken", "record"]


def test_preallocated_space_is_said_once_and_is_no_error(run, partition):
    size = partition.segment.stat().st_size
    with partition.segment.open("ab") as file:
        file.truncate(size + 100_000)
    result = run("log", "dump", partition.path)
    assert result.exit_code == ExitCode.OK
    assert result.stdout.endswith(f"100000 bytes of preallocated space from byte {size} on\n")


@pytest.mark.parametrize(
    ("name", "copy", "types"),
    [
        ("00000000000000000000.index", "00000000000000000000.index.bad", {"index_entry"}),
        ("00000000000000000000.timeindex", "00000000000000000000.timeindex.2.bad", {"time_index_entry"}),
        ("00000000000000000048.snapshot", "00000000000000000048.snapshot.bad", {"snapshot", "producer"}),
        ("partition.state", "partition.state.bad", {"state"}),
        ("00000000000000000000.log", "00000000000000000000.log.4096.cut", {"batch"}),
    ],
)
def test_every_file_is_shown_also_when_it_was_set_aside(run, partition, name, copy, types):
    original = run("log", "dump", "--json", partition.path / name)
    assert original.exit_code == ExitCode.OK
    assert {line["type"] for line in _lines(original)} == types
    shutil.copy(partition.path / name, partition.path / copy)
    aside = run("log", "dump", "--json", partition.path / copy)
    assert aside.stdout.replace(copy, name) == original.stdout


@pytest.mark.parametrize("name", ["00000000000000000048.snapshot", "partition.state"])
def test_a_small_file_that_cannot_be_read_is_broken_data(run, partition, name):
    partition.flip(partition.path / name, 20)
    result = run("log", "dump", partition.path / name)
    assert result.exit_code == ExitCode.BROKEN_DATA
    assert "BROKEN" in result.stdout and "checksum" in result.stdout


def test_index_entries_that_do_not_increase_and_half_entries_are_broken_data(run, partition):
    index = partition.path / "00000000000000000000.index"
    content = index.read_bytes()
    index.write_bytes(content[8:16] + content[:8] + b"\0\0\0")
    result = run("log", "dump", "--json", index)
    assert result.exit_code == ExitCode.BROKEN_DATA
    assert [(line["type"], line["position"]) for line in _lines(result)] == [
        ("index_entry", 0),
        ("index_entry", 8),
        ("broken", 8),
        ("broken", 16),
    ]


def test_a_file_of_an_unknown_name_is_refused_with_advice(run, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    result = run("log", "dump", tmp_path / "notes.txt")
    assert result.exit_code == ExitCode.REFUSED
    assert "Give it the name that ringlog gave it" in result.stderr


def test_a_directory_without_segments_is_wrong_usage(run, tmp_path):
    assert run("log", "dump", tmp_path).exit_code == ExitCode.USAGE


def test_records_of_an_index_are_wrong_usage(run, partition):
    result = run("log", "dump", "--records", partition.path / "00000000000000000000.index")
    assert result.exit_code == ExitCode.USAGE


def test_a_missing_path_is_wrong_usage(run, tmp_path):
    assert run("log", "dump", tmp_path / "nowhere").exit_code == ExitCode.USAGE


def test_dump_needs_no_permission_to_write(run, partition):
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition.path.iterdir()}
    for path in partition.path.iterdir():
        run("log", "dump", path)
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in partition.path.iterdir()}
    assert after == before


def test_json_of_a_real_process_parses(command, partition):
    output, errors = command("log", "dump", "--records", "--json", partition.path).communicate(timeout=60)
    assert errors == b""
    assert len([json.loads(line) for line in output.splitlines()]) == 48
