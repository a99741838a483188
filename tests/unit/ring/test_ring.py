"""The ring facade: what its handles promise, one by one."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest

from ringlog import limits
from ringlog.errors import InvalidRequest, RingClosed, RingCorrupt, RingStale, RingTaken
from ringlog.native import _kernel
from ringlog.ring.ring import Ring, RingReader, RingWriter, ring_bytes
from tests.support.twins import ring as twin

CAPACITY = 4096


@pytest.fixture
def memory() -> bytearray:
    return bytearray(ring_bytes(CAPACITY))


@pytest.fixture
def ring(memory) -> Ring:
    return Ring.create(memory, capacity_bytes=CAPACITY, generation=9)


def bodies(reader: RingReader) -> list[bytes]:
    return [bytes(message.body) for message in reader.read_all()]


def test_a_message_of_any_size_up_to_the_maximum_comes_through(ring) -> None:
    writer, reader = ring.writer(), ring.reader()
    for size in range(writer.body_bytes_max + 1):
        assert writer.write(bytes([size & 0xFF]) * size, kind=size)
        (message,) = reader.read_all()
        assert (message.kind, message.body) == (size, bytes([size & 0xFF]) * size)
        reader.release()


def test_one_byte_more_than_the_maximum_is_refused(ring) -> None:
    writer = ring.writer()
    for call in (writer.write, lambda data: writer.claim(len(data))):
        with pytest.raises(InvalidRequest):
            call(bytes(writer.body_bytes_max + 1))
    assert writer.used_bytes() == 0


def test_a_full_ring_says_so_and_takes_more_after_a_release(ring) -> None:
    writer, reader = ring.writer(), ring.reader()
    largest = bytes(writer.body_bytes_max)
    assert [writer.write(largest) for _ in range(4)] == [True, True, True, False]
    assert writer.claim(len(largest)) is None
    assert len(bodies(reader)) == 3
    assert not writer.write(largest)  # read is not released
    reader.release()
    assert writer.write(largest)


def test_write_many_says_how_many_fitted(ring) -> None:
    writer, reader = ring.writer(), ring.reader()
    offsets = np.arange(101) * 64
    data = bytes(range(100)) * 64
    fitted = writer.write_many(offsets, data)
    assert 0 < fitted < 100
    assert bodies(reader) == [data[64 * i : 64 * i + 64] for i in range(fitted)]
    reader.release()
    assert writer.write_many(offsets[fitted:], data) > 0


@pytest.mark.parametrize(
    "offsets", [[], [1, 0], [0, 11], [-1, 3], [0, 5, 4, 10], [0, 2**62, 10], [0, -(2**63), 10]]
)
def test_offsets_that_do_not_ascend_within_the_data_publish_nothing(ring, offsets) -> None:
    writer = ring.writer()
    with pytest.raises(InvalidRequest):
        writer.write_many(np.array(offsets, dtype=np.int64), b"0123456789")
    assert writer.used_bytes() == 0


def test_one_message_that_can_never_fit_stops_a_bulk_write_before_it_starts(ring) -> None:
    writer = ring.writer()
    with pytest.raises(InvalidRequest):
        writer.write_many(np.array([0, 5, 6 + writer.body_bytes_max]), bytes(CAPACITY))
    assert writer.used_bytes() == 0


def test_an_aborted_claim_is_never_seen(ring) -> None:
    writer, reader = ring.writer(), ring.reader()
    view = writer.claim(20)
    assert view is not None
    view[:] = b"s" * 20
    assert bodies(reader) == []
    writer.abort()
    writer.write(b"after")
    assert bodies(reader) == [b"after"]


def test_a_claim_is_seen_when_committed_and_its_view_dies(ring) -> None:
    writer, reader = ring.writer(), ring.reader()
    view = writer.claim(3)
    assert view is not None
    view[:] = b"abc"
    writer.commit(kind=4)
    assert [(m.kind, bytes(m.body)) for m in reader.read_all()] == [(4, b"abc")]
    with pytest.raises(ValueError, match="released"):
        view[0] = 0


def test_one_claim_at_a_time(ring) -> None:
    writer = ring.writer()
    assert writer.claim(3) is not None
    for call in (
        lambda: writer.claim(3),
        lambda: writer.write(b""),
        lambda: writer.write_many(np.zeros(2, int), b""),
    ):
        with pytest.raises(InvalidRequest):
            call()
    writer.abort()
    for call in (writer.commit, writer.abort):
        with pytest.raises(InvalidRequest):
            call()


def test_views_of_messages_die_at_the_release(ring) -> None:
    writer, reader = ring.writer(), ring.reader()
    writer.write(b"abc")
    (message,) = reader.read_all()
    reader.release()
    with pytest.raises(ValueError, match="released"):
        bytes(message.body)


def test_a_message_whose_buffer_is_lent_out_is_not_released(ring) -> None:
    writer, reader = ring.writer(), ring.reader()
    writer.write(b"abc")
    lent = pickle.PickleBuffer(reader.read_all()[0].body)  # as a send in flight would hold it
    with pytest.raises(BufferError):
        reader.release()
    assert writer.used_bytes() > 0
    lent.release()
    reader.release()
    assert writer.used_bytes() == 0


def test_the_reader_may_change_a_message_before_it_is_released(ring) -> None:
    writer, reader = ring.writer(), ring.reader()
    writer.write(b"abc")
    (message,) = reader.read_all()
    message.body[0:1] = b"X"
    assert message.body == b"Xbc"


def test_a_closed_writer_ends_the_ring_once_everything_was_read(ring) -> None:
    writer, reader = ring.writer(), ring.reader()
    writer.write(b"last")
    writer.close()
    writer.close()  # idempotent
    assert not reader.ended
    assert bodies(reader) == [b"last"]
    assert reader.ended
    with pytest.raises(InvalidRequest):
        writer.write(b"more")


def test_a_closed_reader_is_told_to_the_writer(ring) -> None:
    writer, reader = ring.writer(), ring.reader()
    reader.close()
    reader.close()
    for call in (
        lambda: writer.write(b"x"),
        lambda: writer.claim(1),
        lambda: writer.write_many(np.zeros(2, int), b""),
    ):
        with pytest.raises(RingClosed):
            call()


def test_a_handle_dropped_without_close_leaves_the_ring_open(ring) -> None:
    writer = ring.writer()
    ring.reader()  # dropped at once, as a forked child drops its copies
    assert writer.write(b"x")


@pytest.mark.parametrize("side", ["writer", "reader"])
def test_a_generation_has_one_of_each_side_in_its_life(ring, side) -> None:
    first = getattr(ring, side)()
    for _ in range(2):
        with pytest.raises(RingTaken):
            getattr(ring, side)()
        first.close()


def test_a_ring_is_opened_where_it_was_made(ring, memory) -> None:
    opened = Ring.open(memory, generation=9)
    assert opened.capacity_bytes == CAPACITY
    assert ring.writer().write(b"x")
    assert bodies(opened.reader()) == [b"x"]


def test_a_handle_of_another_generation_is_refused(ring, memory) -> None:
    for side in (RingWriter, RingReader, lambda memory, generation: Ring.open(memory, generation=generation)):
        with pytest.raises(RingStale):
            side(memory, 8)


def test_every_call_on_a_retired_generation_is_refused(ring) -> None:
    writer, reader = ring.writer(), ring.reader()
    writer.write(b"x")
    assert writer.claim(1) is not None
    ring.retire()
    for call in (writer.commit, writer.used_bytes, reader.read_all, reader.release, ring.writer, ring.retire):
        with pytest.raises(RingStale):
            call()
    writer.abort()
    for call in (
        lambda: writer.write(b"x"),
        lambda: writer.claim(1),
        lambda: writer.write_many(np.zeros(2, int), b""),
    ):
        with pytest.raises(RingStale):
            call()


@pytest.mark.parametrize("capacity", [0, 2048, 4095, 4097, 6144, 2**31])
def test_a_capacity_that_is_no_power_of_two_within_bounds_is_refused(capacity) -> None:
    with pytest.raises(InvalidRequest):
        Ring.create(bytearray(ring_bytes(8192)), capacity_bytes=capacity)


def test_memory_that_is_too_small_or_unaligned_is_refused(memory) -> None:
    with pytest.raises(InvalidRequest):
        Ring.create(memory[:-1], capacity_bytes=CAPACITY)
    with pytest.raises(InvalidRequest):
        Ring.create(memoryview(bytearray(ring_bytes(CAPACITY) + 1))[1:], capacity_bytes=CAPACITY)
    with pytest.raises(InvalidRequest):
        Ring.create(memory, capacity_bytes=CAPACITY, generation=0)


def test_the_bounds_are_those_of_the_limits() -> None:
    Ring.create(bytearray(ring_bytes(limits.RING_BYTES_MIN)), capacity_bytes=limits.RING_BYTES_MIN)
    with pytest.raises(InvalidRequest):
        Ring.create(bytearray(ring_bytes(limits.RING_BYTES_MIN)), capacity_bytes=limits.RING_BYTES_MIN // 2)
    assert _kernel.RING_CAPACITY_MAX == limits.RING_BYTES_MAX


@pytest.mark.parametrize(
    ("at", "value", "field"),
    [
        (twin.MAGIC, 1, "magic"),
        (twin.VERSION, 2, "layout version"),
        (twin.CAPACITY, 3 << 10, "capacity"),
        (twin.CAPACITY, 1 << 20, "capacity"),
        (twin.CAPACITY, 0, "capacity"),
        (twin.CONSUMER_POSITION, 4, "consumer position"),
        (twin.CONSUMER_POSITION, 8, "producer position"),
        (twin.PRODUCER_POSITION, 12, "producer position"),
        (twin.PRODUCER_POSITION, 2**64 - 8, "producer position"),
        (twin.WRITER_STATE, 77 << 32 | 77, "side state"),
    ],
)
def test_memory_that_is_no_ring_is_refused_with_field_and_position(ring, memory, at, value, field) -> None:
    twin.Memory(memory).put_u64(at, value)
    for side in (RingWriter, RingReader):
        with pytest.raises(RingCorrupt) as caught:
            side(memory, 9)
        assert caught.value.field == field
        assert caught.value.position in (at, at + 4, twin.PRODUCER_POSITION)


def test_a_writer_refuses_a_ring_whose_positions_are_more_than_a_lap_apart(ring, memory) -> None:
    twin.Memory(memory).put_u64(twin.PRODUCER_POSITION, CAPACITY)
    with pytest.raises(RingCorrupt, match="producer position"):
        ring.writer()


@pytest.mark.parametrize("consumer", [4, 8, 2**63])
def test_a_consumer_position_that_cannot_be_stops_the_writer_for_good(ring, memory, consumer) -> None:
    writer = ring.writer()
    twin.Memory(memory).put_u64(twin.CONSUMER_POSITION, consumer)
    for _ in range(2):
        with pytest.raises(RingCorrupt, match="consumer position"):
            writer.used_bytes()
        twin.Memory(memory).put_u64(twin.CONSUMER_POSITION, 0)  # a repaired ring stays refused


@pytest.mark.parametrize("producer", [12, 0, CAPACITY, 2**64 - 8])
def test_a_producer_position_that_cannot_be_stops_the_reader_for_good(ring, memory, producer) -> None:
    writer, reader = ring.writer(), ring.reader()
    writer.write(b"x")
    twin.Memory(memory).put_u64(twin.PRODUCER_POSITION, producer)
    for _ in range(2):
        with pytest.raises(RingCorrupt):
            reader.read_all()
        twin.Memory(memory).put_u64(twin.PRODUCER_POSITION, 16)


def test_messages_before_the_damage_are_read_first(ring, memory) -> None:
    writer, reader = ring.writer(), ring.reader()
    writer.write_many(np.array([0, 8, 16, 24]), bytes(24))
    twin.Memory(memory).put_u32(twin.HEADER_BYTES + 32, 2**31 + 5)
    assert len(reader.read_all()) == 2
    with pytest.raises(RingCorrupt, match="message length at byte 544"):
        reader.read_all()


def test_a_handle_is_not_entered_while_another_thread_is_inside() -> None:
    capacity = 1 << 26
    memory = bytearray(ring_bytes(capacity))
    large = bytes(capacity // 4 - 8)
    refused = 0
    for generation in range(1, 50):
        writer = Ring.create(memory, capacity_bytes=capacity, generation=generation).writer()
        thread = threading.Thread(target=writer.write, args=[large])
        thread.start()
        while thread.is_alive():  # the copy of a large message runs without the GIL
            try:
                writer.used_bytes()
            except InvalidRequest:
                refused += 1
        if refused:
            return
    pytest.fail("no call ever met another one inside")
