"""Promises of a walk over a segment file: every batch once, whatever windows cut, and no memory left to the disk."""

from __future__ import annotations

import pytest

from ringlog.limits import BLOCK_BYTES, MIB
from ringlog.log.jobs import run_now
from ringlog.log.scanner import ScanEnd, Scratch, scan_file
from ringlog.records.scan import stamp
from tests.support.fake_disk import FakeDisk
from tests.support.fake_disk_faults import Faults
from tests.support.logs import aligned_memory, batch_of

PATH = "/data/log"


def written(batches: list[bytearray], faults: Faults | None = None) -> tuple[FakeDisk, int]:
    """A disk with a file of these batches, and how many bytes they are."""
    content = b"".join(batches)
    whole = aligned_memory(-(-len(content) // BLOCK_BYTES) * BLOCK_BYTES)
    whole[: len(content)] = content
    disk = FakeDisk(7, faults=faults or Faults())
    disk.make_dir("/data")
    file = disk.open(PATH, write=True, create=True, direct=True)
    assert disk.wait(disk.write(file, [whole], 0, durable=True)) == len(whole)
    disk.close(file)
    return disk, len(content)


def stamped(*sizes: int) -> list[bytearray]:
    batches, offset = [batch_of(bytes(size)) for size in sizes], 0
    for batch in batches:
        offset = stamp(memoryview(batch), base_offset=offset, leader_epoch=0, append_time_ms=None)
    return batches


def walk(disk: FakeDisk, nbytes: int) -> tuple[ScanEnd, list[int]]:
    seen: list[int] = []
    file = disk.open(PATH, direct=True)
    end = run_now(
        disk,
        scan_file(
            disk,
            file,
            0,
            nbytes,
            lambda rows: seen.extend(rows["last_offset"].tolist()),
            expected_offset=0,
            scratch=Scratch(),
        ),
    )
    return end, seen


@pytest.mark.parametrize("size", [100_000, 700_000, 1_999_000, 3 * MIB, 9 * MIB])
def test_every_batch_is_seen_once_wherever_windows_end(size):
    batches = stamped(*[size] * (1 + 20 * MIB // size))
    disk, nbytes = written(batches)
    end, seen = walk(disk, nbytes)
    assert (end.position, end.fault, seen) == (nbytes, None, list(range(len(batches))))


@pytest.mark.parametrize("nth", range(5))
def test_a_read_that_fails_leaves_none_under_way(nth):
    faults = Faults()
    disk, nbytes = written(stamped(*[500_000] * 20), faults)
    faults.fail("read", nth=nth)
    with pytest.raises(OSError, match="Input/output error"):
        walk(disk, nbytes)
    assert disk.in_flight == 0


def test_a_walk_that_ends_at_a_bad_batch_leaves_no_read_under_way():
    batches = stamped(*[500_000] * 20)
    batches[3][100] ^= 1
    disk, nbytes = written(batches)
    end, seen = walk(disk, nbytes)
    assert seen == [0, 1, 2] and end.fault is not None and end.position == sum(map(len, batches[:3]))
    assert disk.in_flight == 0
