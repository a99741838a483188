"""Promises of places: a batch that is made where it will lie is not copied, and nothing else changes for it."""

from __future__ import annotations

import random

import pytest

from ringlog.errors import PartitionBusy
from ringlog.limits import KIB, MIB
from ringlog.log.arena import SLAB_BYTES
from ringlog.log.batch import batch_infos
from ringlog.log.settings import LogSettings
from ringlog.log.write_queue import PLACED_BYTES_MIN
from ringlog.model import Codec, TopicPartition
from ringlog.records.scan import check
from tests.support.logs import LogWorld, batch_of

LARGE = bytes(700 * KIB)


def place_and_append(world: LogWorld, *values: bytes) -> memoryview | None:
    """Append a batch as a shard does that finds it in the memory of a client; where it was placed."""
    batch = batch_of(*values, timestamp=world.now_ms)
    place = world.log.place(len(batch), world.now_ms)
    data = memoryview(batch) if place is None else place
    data[:] = batch
    world.store.append(world.partition, data, batch_infos(check(batch)), now_ms=world.now_ms)
    world.log.waiting.leave_place()
    return place


def a_world(**settings: int) -> LogWorld:
    """With a partition that has memory."""
    world = LogWorld(settings=LogSettings(**settings))
    world.append(b"first")
    world.settle()
    return world


def test_a_batch_that_is_made_in_its_place_is_not_copied():
    world = a_world()
    place = place_and_append(world, LARGE)
    extent = world.log.waiting.oldest
    assert place is not None and extent is not None
    ((_, memory),) = extent.slices(extent.end - place.nbytes, extent.end)
    assert memory == place
    place[-1] ^= 1
    assert memory == place, "they are the same bytes"
    place[-1] ^= 1
    world.settle()
    world.evict_all()
    assert world.values() == [b"first", LARGE]


def test_large_batches_are_placed_one_after_another():
    world = a_world()
    places = [place_and_append(world, LARGE) for _ in range(12)]
    assert all(place is not None for place in places)
    world.settle()
    world.evict_all()
    assert world.values() == [b"first"] + [LARGE] * 12


def test_a_chunk_with_much_room_left_is_filled_up():
    """A third of it would stay empty otherwise, or more."""
    world = a_world()
    sizes = [700 * KIB, 700 * KIB, 200 * KIB, 600 * KIB]
    placed = [place_and_append(world, bytes(size)) is not None for size in sizes]
    assert placed == [True, True, True, True]
    half = [place_and_append(world, bytes(400 * KIB)) is not None for _ in range(8)]
    assert True in half and False in half
    world.settle()
    world.evict_all()
    assert [len(value) for value in world.values()] == [5, *sizes, *[400 * KIB] * 8]


def test_small_batches_and_partitions_without_memory_get_no_place():
    world = LogWorld()
    assert world.log.place(PLACED_BYTES_MIN, world.now_ms) is None, "it has no memory yet"
    world.append(bytes(PLACED_BYTES_MIN))
    assert world.log.place(PLACED_BYTES_MIN - 1, world.now_ms) is None
    assert world.log.place(PLACED_BYTES_MIN, world.now_ms) is not None


def test_what_is_compressed_again_before_it_is_written_gets_no_place():
    world = LogWorld(settings=LogSettings(codec=Codec.ZSTD))
    world.append(bytes(PLACED_BYTES_MIN))
    assert world.log.place(PLACED_BYTES_MIN, world.now_ms) is None


def test_what_no_append_may_have_gets_no_place():
    world = a_world()
    assert world.log.place(world.log.settings.batch_bytes_max + 1, world.now_ms) is None
    world.log.stop()
    assert world.log.place(PLACED_BYTES_MIN, world.now_ms) is None


def test_a_roll_after_a_batch_was_placed_moves_it():
    world = a_world(segment_bytes=1 * MIB)
    for number in range(6):
        value = bytes([number]) * (700 * KIB)
        assert place_and_append(world, value) is not None
        if number % 2:
            world.settle()
    assert len(world.log.segments) == 6
    world.settle()
    world.evict_all()
    assert [value[:1] for value in world.values()[1:]] == [bytes([number]) for number in range(6)]


def test_the_end_of_an_extent_is_not_copied_before_its_head_was_read():
    """The first append to an opened log continues a block that only the file has."""
    before = LogWorld(settings=LogSettings())
    before.append(b"old")
    before.settle()
    before.close()
    world = before.reopened()
    world.append(b"new")
    assert place_and_append(world, LARGE) is None, "its extent cannot end here, and has no room"
    world.settle()
    world.evict_all()
    assert world.values() == [b"old", b"new", LARGE]


def test_a_place_that_was_not_used_is_left_to_others():
    world = LogWorld(settings=LogSettings(), memory_bytes=4 * MIB)
    names = [TopicPartition("others", number) for number in range(8)]
    for name in names:
        world.store.open(name, world.settings, now_ms=0)
        data = batch_of(b"first")
        world.store.append(name, memoryview(data), batch_infos(check(data)), now_ms=0)
    world.settle()
    for name in names:
        log = world.store.logs[name]
        assert log.place(SLAB_BYTES - 64 * KIB, 0) is not None
        log.waiting.leave_place()
    for _ in range(3):
        world.append(LARGE)  # none of them keeps a slab for a batch that was refused
    world.settle()


def test_a_batch_that_there_is_no_memory_for_is_a_typed_refusal():
    world = LogWorld(settings=LogSettings(), memory_bytes=2 * MIB)
    world.append(b"first")
    world.settle()
    world.fake.hold_all("write", ".log")
    with pytest.raises(PartitionBusy, match="Retry"):
        for _ in range(4):
            place_and_append(world, LARGE)
    world.fake.release_all()
    world.settle()
    place_and_append(world, LARGE)
    world.settle()
    world.evict_all()
    assert world.values() == [b"first"] + [LARGE] * (world.log.next_offset - 1)


def test_a_batch_that_fits_only_into_two_pieces_is_taken_without_a_place():
    world = LogWorld(settings=LogSettings(), memory_bytes=3 * MIB)
    world.append(b"first")
    world.settle()
    arena = world.store._context.arena
    taken = [arena.take(SLAB_BYTES) for _ in range(2)]
    assert taken[1] is not None and taken[0] is not None
    taken[0].release()  # the slabs on both sides of another's are free, no two of them together
    value = bytes(SLAB_BYTES - 100)
    assert world.log.place(len(batch_of(value)), world.now_ms) is None
    for _ in range(10):
        place_and_append(world, value)
        world.append(b"small")
        world.settle()
    world.evict_all()
    assert world.values() == [b"first", *[value, b"small"] * 10]


@pytest.mark.parametrize("seed", range(30))
def test_placed_and_copied_batches_are_read_as_they_were_appended(seed):
    chance = random.Random(seed)
    world = LogWorld(settings=LogSettings(segment_bytes=4 * MIB), memory_bytes=16 * MIB)
    expected: list[bytes] = []
    for number in range(60):
        size = chance.choice([10, 5_000, 40 * KIB, 300 * KIB, 520 * KIB, 760 * KIB])
        value = number.to_bytes(4, "big") * (size // 4)
        step = chance.randrange(12)
        if step == 0:
            world.close()
            world = world.reopened()
        elif step == 1:
            world.evict_all()
        elif step == 2 and (place := world.log.place(size, world.now_ms)) is not None:
            place[:] = b"\xff" * size  # it turns out to be no batch
            world.log.waiting.leave_place()
        try:
            if chance.random() < 0.7:
                place_and_append(world, value)
            else:
                world.append(value)
            expected.append(value)
        except PartitionBusy:
            world.settle()
        if chance.random() < 0.3:
            world.run()
    world.settle()
    assert world.values() == expected
    world.evict_all()
    assert world.values() == expected
    world.close()
    assert world.reopened().values() == expected
