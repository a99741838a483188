"""Promises of the sparse indexes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import CorruptFile, InvariantBroken
from ringlog.limits import INDEX_BYTES_MAX, INDEX_INTERVAL_BYTES
from ringlog.log.index import OffsetIndex, SegmentIndex, TimeIndex
from ringlog.log.replay import replay_index
from ringlog.records.format import BATCH_TABLE


def test_offset_index_bytes_are_kafkas():
    index = OffsetIndex(base_offset=1000)
    index.add(1009, 4096)
    assert index.encode() == bytes.fromhex("00000009 00001000")


def test_time_index_bytes_are_kafkas():
    index = TimeIndex(base_offset=1000)
    index.add(0x0102030405060708, 1003)
    assert index.encode() == bytes.fromhex("0102030405060708 00000003")


def test_an_index_that_does_not_increase_is_refused_in_memory():
    index = OffsetIndex(0)
    index.add(10, 100)
    with pytest.raises(InvariantBroken):
        index.add(10, 200)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (bytes(7), "offset index"),
        (bytes.fromhex("00000009 00001000 00000009 00002000"), "offset index offset"),
        (bytes.fromhex("00000009 00001000 0000000a 00001000"), "offset index position"),
        (bytes.fromhex("ffffffff 00001000"), "offset index offset"),
        (bytes.fromhex("00000009 7fffffff"), "offset index position"),
        (bytes(INDEX_BYTES_MAX + 8), "offset index"),
    ],
)
def test_a_bad_offset_index_names_the_field(data, field):
    with pytest.raises(CorruptFile) as error:
        OffsetIndex.decode(0, data, segment_bytes=1 << 20)
    assert error.value.field == field


def test_a_bad_time_index_names_the_entry():
    good = TimeIndex(0)
    good.add(5, 1)
    good.add(6, 2)
    data = bytearray(good.encode())
    data[12:20] = (4).to_bytes(8, "big")
    with pytest.raises(CorruptFile) as error:
        TimeIndex.decode(0, bytes(data))
    assert (error.value.field, error.value.position) == ("time index timestamp", 12)


@given(st.binary(max_size=200))
def test_any_bytes_give_an_index_or_a_typed_error(data):
    for decode in (lambda: OffsetIndex.decode(7, data, 1 << 20), lambda: TimeIndex.decode(7, data)):
        try:
            assert decode().encode() == data
        except CorruptFile:
            continue


batches = st.lists(
    st.tuples(st.integers(61, 9000), st.integers(1, 50), st.integers(0, 1000)), min_size=1, max_size=60
)


def table_of(shape):
    table = np.zeros(len(shape), BATCH_TABLE)
    position, offset = 0, 500
    for row, (nbytes, records, timestamp) in zip(table, shape, strict=True):
        row["position"], row["length"], row["max_timestamp"] = position, nbytes, timestamp
        row["base_offset"], row["last_offset"] = offset, offset + records - 1
        position, offset = position + nbytes, offset + records
    return table


@given(batches)
def test_lookups_never_pass_the_batch_that_is_looked_for(shape):
    table = table_of(shape)
    index = SegmentIndex(500)
    for row in table:
        index.add_batch(int(row["last_offset"]), int(row["position"]), int(row["max_timestamp"]))
    for row in table:
        for offset in (int(row["base_offset"]), int(row["last_offset"])):
            found = index.offsets.position_before(offset)
            assert found <= row["position"]
            assert row["position"] - found <= INDEX_INTERVAL_BYTES + 2 * 9000
    for timestamp in range(0, 1001, 100):
        start = index.times.offset_before(timestamp)
        assert not (table["max_timestamp"][table["last_offset"] < start] >= timestamp).any()


@given(batches, st.integers(1, 60))
def test_replay_of_a_table_makes_the_same_index_as_appends(shape, cut):
    table = table_of(shape)
    one, many = SegmentIndex(500), SegmentIndex(500)
    for row in table:
        one.add_batch(int(row["last_offset"]), int(row["position"]), int(row["max_timestamp"]))
    replay_index(many, table[:cut])
    replay_index(many, table[cut:])
    assert one.offsets.encode() == many.offsets.encode()
    assert one.times.encode() == many.times.encode()
    assert (one.max_timestamp, one.max_timestamp_offset) == (many.max_timestamp, many.max_timestamp_offset)


def test_an_index_resumed_from_its_files_goes_on_as_if_it_had_never_stopped():
    table = table_of([(3000, 5, t) for t in range(40)])
    whole, first = SegmentIndex(500), SegmentIndex(500)
    replay_index(whole, table)
    replay_index(first, table[:17])
    offsets = OffsetIndex.decode(500, first.offsets.encode(), 1 << 20)
    times = TimeIndex.decode(500, first.times.encode())
    resumed = SegmentIndex.resume(offsets, times, first.max_timestamp, first.max_timestamp_offset)
    replay_index(resumed, table[17:])
    assert resumed.offsets.encode() == whole.offsets.encode()
    assert resumed.times.encode() == whole.times.encode()


def test_split_points_lie_in_the_asked_range_and_on_batches():
    table = table_of([(5000, 5, 0) for _ in range(20)])
    index = SegmentIndex(500)
    replay_index(index, table)
    points = index.offsets.positions_between(20_000, 60_000)
    assert points
    assert all(20_000 <= point < 60_000 and point % 5000 == 0 for point in points)


def test_cut_forgets_only_what_lies_behind():
    table = table_of([(5000, 5, t) for t in range(10)])
    index = SegmentIndex(500)
    replay_index(index, table)
    index.offsets.cut(25_000)
    index.times.cut(525)
    assert index.offsets.last_position == 20_000
    assert index.times.offset_before(10**9) < 525


@given(
    batches=st.lists(
        st.tuples(st.integers(1, 5), st.integers(61, 9_000), st.integers(-1, 20)), min_size=1, max_size=40
    ),
    at=st.integers(0, 120),
)
def test_an_index_below_an_offset_goes_on_as_one_that_was_fed_with_the_batches_below_alone(batches, at):
    """With the last indexed batch again, as who scans on from there sees it."""
    rows, position, offset = [], 0, 100
    for records, nbytes, timestamp in batches:
        offset += records
        rows.append((offset - 1, position, timestamp))
        position += nbytes
    whole, alone = SegmentIndex(100), SegmentIndex(100)
    for row in rows:
        whole.add_batch(*row)
        if row[0] < 100 + at:
            alone.add_batch(*row)
    below = whole.below(100 + at)
    for row in rows:
        if row[0] < 100 + at and row[1] >= below.offsets.last_position:
            below.add_batch(*row)
    assert below.offsets.encode() == alone.offsets.encode()
    assert below.times.encode() == alone.times.encode()
    assert (below.max_timestamp, below.max_timestamp_offset, below.next_position) == (
        alone.max_timestamp,
        alone.max_timestamp_offset,
        alone.next_position,
    )
