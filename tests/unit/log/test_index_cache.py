"""Indexes of sealed segments in memory: those that were used last, within a bound; others are read from disk again."""

from __future__ import annotations

from ringlog.log.segment import SealedSegment
from tests.support.logs import SMALL_SEGMENTS, LogWorld


def loaded(world: LogWorld) -> list[int]:
    """The segments whose indexes are in memory."""
    return [
        number
        for number, segment in enumerate(world.log.segments)
        if isinstance(segment, SealedSegment) and segment.offsets is not None
    ]


def filled(bytes_max: int) -> LogWorld:
    world = LogWorld(settings=SMALL_SEGMENTS)
    world.store._context.indexes._bytes_max = bytes_max
    for number in range(1_500):
        world.append(b"%d" % number + bytes(4_000))
        if number % 50 == 0:
            world.run()
    world.settle()
    world.evict_all()
    return world


def test_what_is_beyond_the_bound_goes_and_is_read_from_disk_again():
    world = filled(bytes_max=5_000)
    sealed = len(world.log.segments) - 1
    cache = world.store._context.indexes
    assert sealed >= 4
    assert loaded(world)[-1] == sealed - 1, "the youngest stays"
    assert len(loaded(world)) < sealed
    assert cache.nbytes <= 5_000
    for offset in range(0, 1_500, 100):
        found = world.store.read_now(world.partition, offset, 1_000)
        found.release()
        assert cache.nbytes <= 5_000
    assert [int(value.rstrip(b"\0")) for value in world.values()] == list(range(1_500))
    assert len(loaded(world)) < sealed


def test_one_index_is_kept_however_large_it_is():
    world = filled(bytes_max=1)
    assert len(loaded(world)) == 1
    world.store.read_now(world.partition, 0, 1_000).release()
    assert loaded(world) == [0]


def test_with_room_for_all_none_goes():
    world = filled(bytes_max=10**9)
    assert len(loaded(world)) == len(world.log.segments) - 1
