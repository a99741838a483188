"""C2 finds every planted fault in the files of a data directory, and nothing in good ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringlog.disk.plain import PlainDisk
from ringlog.log.findings import Rule as LogRule
from ringlog.model import TopicPartition
from tests.support.checkers.disk import METADATA_PARTITION, check_disk, partition_dirs
from tests.support.checkers.violations import Rule
from tests.support.logs import SMALL_SEGMENTS, LogWorld

ORDERS = TopicPartition("orders", 0)
EXPECTED = [METADATA_PARTITION, "orders-0"]


def fill(root: Path, partition: TopicPartition, *, close: bool = True) -> None:
    """Two segments on a real disk, with indexes and a producer."""
    disk = PlainDisk()
    world = LogWorld(disk, SMALL_SEGMENTS, root=str(root), partition=partition, memory_bytes=16 << 20)
    for number in range(60):
        world.append(os.urandom(30_000), producer=(7, 0, number))
        world.run()
    world.settle()
    if close:
        world.close()
    disk.shutdown()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    fill(tmp_path, TopicPartition("__cluster_metadata", 0))
    fill(tmp_path, ORDERS)
    return tmp_path


def found(data_dir: Path, **settings) -> str:
    violations = check_disk(str(data_dir), expected=EXPECTED, **settings)
    assert {violation.rule for violation in violations} <= {Rule.DISK, Rule.NO_PARTITION}
    return "\n".join(map(str, violations))


def files(data_dir: Path, suffix: str, partition: str = "orders-0") -> list[Path]:
    return sorted((data_dir / partition).glob(f"*{suffix}"))


def poke(path: Path, at: int, flip: int = 0x10) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= flip
    path.write_bytes(data)


def test_the_files_of_a_clean_stop_have_no_violations(data_dir: Path):
    assert found(data_dir) == ""
    assert sorted(partition_dirs(str(data_dir))) == EXPECTED


def test_partitions_further_down_are_found_too(tmp_path: Path):
    fill(tmp_path / "logs" / "1", ORDERS)
    assert list(partition_dirs(str(tmp_path))) == ["orders-0"]


@pytest.mark.parametrize("partition", EXPECTED)
def test_a_corrupt_segment_is_found(data_dir: Path, partition: str):
    poke(files(data_dir, ".log", partition)[0], 40_000)
    assert LogRule.WHOLE_BATCHES.code in found(data_dir)


def test_a_corrupt_segment_is_found_after_a_crash_too(data_dir: Path):
    poke(files(data_dir, ".log")[0], 40_000)
    assert LogRule.WHOLE_BATCHES.code in found(data_dir, stopped_cleanly=False)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_wrong_index_entry_is_found(data_dir: Path, suffix: str):
    poke(files(data_dir, suffix)[0], 3, flip=0x02)
    assert LogRule.CHECKSUM.code in found(data_dir)


def test_a_gap_in_the_offsets_is_found(data_dir: Path):
    files(data_dir, ".log")[0].unlink()
    assert "00000000000000000000.log" in found(data_dir)


def test_a_partition_that_is_gone_is_found(data_dir: Path):
    for path in (data_dir / METADATA_PARTITION).iterdir():
        path.unlink()
    assert Rule.NO_PARTITION.code in found(data_dir)


def test_a_file_of_no_known_name_is_found(data_dir: Path):
    (data_dir / "orders-0" / "core.1234").write_bytes(b"dump")
    assert LogRule.KNOWN_NAME.code in found(data_dir)


def test_what_a_crash_leaves_is_a_violation_only_after_a_clean_stop(tmp_path: Path):
    fill(tmp_path, TopicPartition("__cluster_metadata", 0))
    fill(tmp_path, ORDERS, close=False)
    assert found(tmp_path, stopped_cleanly=False) == ""
    assert LogRule.PREALLOCATED.code in found(tmp_path)


def test_an_unfinished_file_is_a_violation_after_a_clean_stop(data_dir: Path):
    (data_dir / "orders-0" / "partition.state.tmp").write_bytes(b"half")
    assert LogRule.UNFINISHED.code in found(data_dir)
    assert found(data_dir, stopped_cleanly=False) == ""
