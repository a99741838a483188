"""The drain: every frame becomes a row, good or bad, grouped by partition; and it equals its twin."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlog.errors import InvalidRequest, RingCorrupt, RingStale
from ringlog.model import Codec
from ringlog.records.encode import encode, encode_empty
from ringlog.ring.drain import DRAIN_GROUP, DRAIN_ROW, NO_PARTITION, DrainStatus, copy_batches
from ringlog.ring.frame import FRAME_HEADER, frame_header
from ringlog.ring.ring import Ring, ring_bytes
from tests.support.twins import drain as drain_twin
from tests.support.twins import ring as ring_twin

CAPACITY = 1 << 15


@pytest.fixture
def pair():
    ring = Ring.create(bytearray(ring_bytes(CAPACITY)), capacity_bytes=CAPACITY)
    return ring.writer(), ring.reader()


def batch(records: int = 2, sequence: int = -1, producer: int = -1, **more) -> bytes:
    epoch = -1 if producer == -1 else 3
    return bytes(
        encode(
            [b"value"] * records,
            timestamps=1000 + records,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            **more,
        )
    )


def produce(body: bytes, partition: int = 0, correlation: int = 0) -> bytes:
    header = frame_header(
        api_key=0, partition=partition, correlation=correlation, session=77, body_bytes=len(body)
    )
    return header + body


def only_row(pair, message: bytes, kind: int = 0):
    writer, reader = pair
    assert writer.write(message, kind)
    table = reader.drain()
    assert len(table.rows) == 1 and table.groups["rows"].tolist() == [1]
    return table.rows[0]


def test_a_row_tells_all_that_a_frame_and_its_batches_say(pair) -> None:
    body = batch(3, sequence=10, producer=42) + batch(5, sequence=13, producer=42, codec=Codec.GZIP)
    message = (
        frame_header(
            api_key=0,
            partition=6,
            correlation=2**63,
            session=2**64 - 1,
            flags=0x8001,
            deadline_ms=250,
            body_bytes=len(body),
        )
        + body
    )
    row = only_row(pair, message, kind=5)
    assert {name: row[name].item() for name in DRAIN_ROW.names or ()} == {
        "correlation": 2**63,
        "session": 2**64 - 1,
        "body_position": 512 + 8 + 32,
        "producer_id": 42,
        "max_timestamp": 1005,
        "partition": 6,
        "kind": 5,
        "deadline_ms": 250,
        "body_bytes": len(body),
        "batch_count": 2,
        "record_count": 8,
        "base_sequence": 10,
        "last_sequence": 17,
        "fault_position": 0,
        "producer_epoch": 3,
        "flags": 0x8001,
        "attributes_any": 1,
        "status": 0,
        "api_key": 0,
        "version": 1,
        "zero": 0,
    }
    assert bytes(pair[1].memory[552 : 552 + len(body)]) == body


def test_rows_are_grouped_by_partition_in_the_order_of_arrival(pair) -> None:
    writer, reader = pair
    arrivals = [4, 1, 4, 9, 1, 4]
    for correlation, partition in enumerate(arrivals):
        assert writer.write(produce(batch(), partition, correlation))
    table = reader.drain()
    assert table.groups.tolist() == [(1, 0, 2), (4, 2, 3), (9, 5, 1)]
    assert table.rows["correlation"].tolist() == [1, 4, 0, 2, 5, 3]


def test_the_body_of_another_api_is_not_looked_at(pair) -> None:
    row = only_row(pair, frame_header(api_key=1, partition=2, correlation=3, body_bytes=4) + b"\xff" * 4)
    assert (row["status"], row["batch_count"], row["producer_id"]) == (0, 0, -1)


@pytest.mark.parametrize(
    ("message", "status", "fault_position"),
    [
        (b"", DrainStatus.FRAME_SHORT, 0),
        (bytes(31), DrainStatus.FRAME_SHORT, 31),
        (b"\x02" + produce(batch())[1:], DrainStatus.FRAME_VERSION, 0),
        (produce(batch()) + b"x", DrainStatus.FRAME_BODY_BYTES, 28),
        (produce(batch())[:-1], DrainStatus.FRAME_BODY_BYTES, 28),
        (produce(b""), DrainStatus.NO_BATCH, 32),
        (produce(batch()[:-1]), DrainStatus.BAD_BATCH, 32 + 8),
        (produce(batch() + b"\0"), DrainStatus.BAD_BATCH, 32 + len(batch()) + 8),
        (produce(batch()[:-1] + b"\xff"), DrainStatus.BAD_BATCH, 32 + 17),
        (produce(bytes(encode_empty(base_offset=0, last_offset=3))), DrainStatus.BAD_BATCH, 32 + 57),
        (
            produce(batch(producer=1, sequence=0) + batch(producer=2, sequence=2)),
            DrainStatus.MIXED_PRODUCERS,
            32 + len(batch()) + 43,
        ),
        (
            produce(batch(producer=1, sequence=0) + batch(producer=1, sequence=3)),
            DrainStatus.MIXED_PRODUCERS,
            32 + len(batch()) + 53,
        ),
    ],
)
def test_a_bad_frame_is_a_row_that_says_why_and_where(pair, message, status, fault_position) -> None:
    row = only_row(pair, message)
    assert (DrainStatus(row["status"]), row["fault_position"]) == (status, fault_position)
    assert row["partition"] == (NO_PARTITION if status == DrainStatus.FRAME_SHORT else 0)


def test_a_bad_frame_stops_no_other(pair) -> None:
    writer, reader = pair
    for message in (produce(batch(), 1), b"short", produce(b"junk", 1), produce(batch(), 1)):
        assert writer.write(message)
    rows = reader.drain().rows
    assert rows["status"].tolist() == [0, DrainStatus.BAD_BATCH, 0, DrainStatus.FRAME_SHORT]


def test_sequences_start_again_at_zero_behind_the_largest(pair) -> None:
    body = batch(4, sequence=2**31 - 2, producer=1) + batch(1, sequence=2, producer=1)
    row = only_row(pair, produce(body))
    assert (row["status"], row["base_sequence"], row["last_sequence"]) == (0, 2**31 - 2, 2)


def test_frames_are_drained_once_and_given_back_by_release(pair) -> None:
    writer, reader = pair
    writer.write(produce(batch()))
    assert len(reader.drain().rows) == 1
    assert len(reader.drain().rows) == 0
    assert writer.used_bytes() > 0
    reader.release()
    assert writer.used_bytes() == 0


def test_a_drain_keeps_to_its_bounds(pair) -> None:
    writer, reader = pair
    message = produce(batch())
    writer.write_many(np.arange(11) * len(message), message * 10)
    assert len(reader.drain(messages_max=3).rows) == 3
    assert len(reader.drain(bytes_max=len(message) + 1).rows) == 2
    assert len(reader.drain(bytes_max=1).rows) == 1
    assert len(reader.drain(messages_max=0).rows) == 0
    assert len(reader.drain().rows) == 4


def near(nbytes: int) -> bytes:
    """A frame that names so much in a client's memory."""
    body = struct.pack("<QI4s", 4096, nbytes, b"crc.")
    return frame_header(api_key=0, partition=0, correlation=1, flags=4, body_bytes=len(body)) + body


def test_a_batch_elsewhere_is_for_who_knows_where_to_look(pair) -> None:
    row = only_row(pair, near(700))
    assert (row["status"], row["batch_count"], row["flags"], row["body_bytes"]) == (DrainStatus.OK, 0, 4, 16)


def test_what_frames_name_elsewhere_counts_as_walked(pair) -> None:
    writer, reader = pair
    for _ in range(5):
        writer.write(near(700))
    assert len(reader.drain(bytes_max=1400).rows) == 2
    assert len(reader.drain(bytes_max=1500).rows) == 3


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 3), st.sampled_from((-1, 42))), max_size=3),
    st.data(),
)
def test_a_copy_is_described_as_the_twin_describes_a_frame_with_the_same_batches(batches, data) -> None:
    body = bytearray(b"".join(batch(1 + n, sequence=s, producer=p) for n, s, p in batches))
    if body and data.draw(st.booleans()):
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    made = bytearray(len(body))
    found = dict(zip(DRAIN_ROW.names or (), copy_batches(memoryview(made), memoryview(body)), strict=True))
    assert made == body
    wanted = drain_twin.describe(0, 0, produce(bytes(body)))
    of_header = {*drain_twin.HEADER_NAMES, "body_position"}
    assert {k: v for k, v in found.items() if k not in of_header} == {
        k: v for k, v in wanted.items() if k not in of_header
    }


def test_a_copy_is_as_large_as_what_is_copied() -> None:
    with pytest.raises(InvalidRequest):
        copy_batches(memoryview(bytearray(99)), memoryview(bytes(100)))


def test_a_table_stays_right_after_the_next_drain(pair) -> None:
    writer, reader = pair
    writer.write(produce(batch(), partition=1))
    first = reader.drain()
    writer.write(produce(batch(), partition=2))
    second = reader.drain()
    assert (first.rows["partition"].tolist(), second.rows["partition"].tolist()) == ([1], [2])


def test_frames_before_the_damage_are_drained_first() -> None:
    memory = bytearray(ring_bytes(CAPACITY))
    ring = Ring.create(memory, capacity_bytes=CAPACITY)
    writer, reader = ring.writer(), ring.reader()
    writer.write(produce(batch()))
    second_at = 512 + writer.used_bytes()
    writer.write(produce(batch()))
    struct.pack_into("<i", memory, second_at, -1)
    assert len(reader.drain().rows) == 1
    with pytest.raises(RingCorrupt) as caught:
        reader.drain()
    assert caught.value.position == second_at


def test_a_retired_ring_is_not_drained() -> None:
    ring = Ring.create(bytearray(ring_bytes(CAPACITY)), capacity_bytes=CAPACITY)
    reader = ring.reader()
    ring.retire()
    with pytest.raises(RingStale):
        reader.drain()


def test_a_drain_sees_the_end_of_a_closed_ring(pair) -> None:
    writer, reader = pair
    writer.write(produce(batch()))
    writer.close()
    assert len(reader.drain(messages_max=1).rows) == 1 and not reader.ended
    assert len(reader.drain().rows) == 0 and reader.ended


def test_headers_in_bulk_are_headers_byte_for_byte() -> None:
    one = np.zeros(1, dtype=FRAME_HEADER)
    fields = {"api_key": 3, "flags": 4, "partition": 5, "correlation": 6, "session": 7, "deadline_ms": 8}
    one["version"], one["body_bytes"] = 1, 9
    for name, value in fields.items():
        one[name] = value
    assert one.tobytes() == frame_header(**fields, body_bytes=9)


def test_the_dtypes_have_the_sizes_of_the_native_structs() -> None:
    assert (DRAIN_ROW.itemsize, DRAIN_GROUP.itemsize) == (88, 12)


# -- native and twin -------------------------------------------------------------------------------------

batches = st.builds(
    batch,
    records=st.integers(1, 4),
    sequence=st.sampled_from([-1, 0, 1, 2, 4, 2**31 - 2, 2**31 - 1]),
    producer=st.sampled_from([-1, 5, 6]),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
    transactional=st.booleans(),
)


@st.composite
def frames(draw) -> bytes:
    """Mostly good frames, some with one byte changed, some cut, some of another api, some noise."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=80))
    body = b"".join(draw(st.lists(batches, max_size=3)))
    header = frame_header(
        api_key=draw(st.sampled_from([0, 0, 0, 1])),
        partition=draw(st.sampled_from([0, 1, 2, 300, 2**32 - 1])),
        correlation=draw(st.integers(0, 2**64 - 1)),
        session=draw(st.integers(0, 2**64 - 1)),
        flags=draw(st.integers(0, 2**16 - 1)),
        deadline_ms=draw(st.integers(0, 2**32 - 1)),
        body_bytes=len(body),
    )
    message = bytearray(header + body)
    damage = draw(st.sampled_from(["none", "none", "flip", "cut"]))
    if damage == "flip":
        message[draw(st.integers(0, len(message) - 1))] ^= 1 << draw(st.integers(0, 7))
    elif damage == "cut":
        del message[draw(st.integers(0, len(message))) :]
    return bytes(message)


@settings(max_examples=150, deadline=None)
@given(
    rounds=st.lists(st.lists(st.tuples(frames(), st.integers(0, 9)), max_size=8), min_size=1, max_size=4),
    messages_max=st.sampled_from([1, 3, 100]),
    bytes_max=st.sampled_from([1, 300, 10**6]),
)
def test_native_and_twin_return_the_same_table(rounds, messages_max, bytes_max) -> None:
    memory = bytearray(ring_bytes(CAPACITY))
    ring = Ring.create(memory, capacity_bytes=CAPACITY)
    writer, reader = ring.writer(), ring.reader()
    for messages in rounds:
        for message, kind in messages:
            if not writer.write(message, kind):
                break
        copy = bytearray(memory)
        ring_twin.Memory(copy).put_u32(ring_twin.READER_STATE, 0)
        slow = ring_twin.Reader(copy, 1)
        while True:
            table = reader.drain(messages_max, bytes_max)
            rows, groups = drain_twin.drain(slow, messages_max, bytes_max)
            native_rows = [{name: row[name].item() for name in DRAIN_ROW.names or ()} for row in table.rows]
            assert native_rows == rows
            assert table.groups.tolist() == groups
            if not rows:
                break
        reader.release()
