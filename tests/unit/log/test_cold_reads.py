"""Reads from disk that go on where the last one ended: what is read is served, and read once."""

from __future__ import annotations

import pytest

from ringlog.limits import BLOCK_BYTES, COLD_PLACES_PER_LOG_MAX, KIB, MIB
from ringlog.log.settings import LogSettings
from ringlog.records.scan import check
from tests.support.logs import LogWorld

ONE_SEGMENT = LogSettings(segment_bytes=256 * MIB, batch_bytes_max=4 * MIB)


def cold(sizes: list[int]) -> LogWorld:
    """A log of batches of such sizes that is not in memory any more."""
    world = LogWorld(settings=ONE_SEGMENT)
    for size in sizes:
        world.append(bytes(size))
        world.settle()
    world.evict_all()
    return world


def read_all(world: LogWorld, bytes_max: int) -> tuple[int, int, int]:
    """Read on to the end; batches, reads of the disk, and the bytes that those moved."""
    first, batches, offset = len(world.fake.calls), 0, 0
    while offset < world.log.next_offset:
        with world.store.read_now(world.partition, offset, bytes_max) as slices:
            batches += len(check(slices.tobytes()))
            offset = slices.next_offset
    reads = [call for call in world.fake.calls[first:] if call.kind == "read"]
    return batches, len(reads), sum(call.length for call in reads)


@pytest.mark.parametrize("bytes_max", [64 * KIB, 1 * MIB])
def test_large_batches_are_read_once_each(bytes_max):
    world = cold([700 * KIB] * 12)
    batches, reads, nbytes = read_all(world, bytes_max)
    assert (batches, reads) == (12, 12)
    assert nbytes <= world.log.active.position + 12 * 2 * BLOCK_BYTES


def test_of_batches_of_all_sizes_little_is_read_twice():
    world = cold([100, 900 * KIB, 50, 50, 300 * KIB, 2 * KIB, 1500 * KIB, 10] * 6)
    batches, _, nbytes = read_all(world, 1 * MIB)
    assert batches == 48
    assert (
        nbytes < 2 * world.log.active.position
    )  # a batch larger than a read, or unknown to the index, costs two


def test_small_batches_are_read_many_at_a_time():
    world = cold([2 * KIB] * 1000)
    batches, reads, nbytes = read_all(world, 256 * KIB)
    assert batches == 1000
    assert reads <= 10 and nbytes <= world.log.active.position * 1.1


def test_places_of_many_readers_are_kept_within_a_bound():
    world = cold([8 * KIB] * (2 * COLD_PLACES_PER_LOG_MAX))
    for offset in range(2 * COLD_PLACES_PER_LOG_MAX):
        world.store.read_now(world.partition, offset, 1).release()
    assert len(world.store._readers[world.partition]._places) == COLD_PLACES_PER_LOG_MAX
