"""The batch builder and its kin: equal to the twin that encodes all at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import BatchTooLarge, InvalidRequest
from ringlog.model import Codec
from ringlog.records.builder import HEADROOM, NO_ROOM, NOT_FEW, BatchBuilder, cut_columns, seal_for
from ringlog.records.columns import Column
from ringlog.records.decode import decode
from ringlog.records.partitioner import key_partitions, partition_for
from ringlog.records.scan import check
from tests.support.batches import record_lists
from tests.support.twins import batch as twin

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
items = st.lists(st.one_of(st.none(), st.binary(max_size=30), st.text(max_size=8)), max_size=40)


def plain(item):
    return item.encode() if isinstance(item, str) else item


def build(records, **settings):
    builder = BatchBuilder(tuple, "state", **{"bytes_target": 1 << 20, **settings})
    rows = zip(records["values"], records["keys"], records["timestamps"], records["headers"], strict=True)
    return builder, [builder.append(*row) for row in rows]


def old_enough(records):
    return {**records, "timestamps": [abs(one) for one in records["timestamps"]]}


@given(record_lists(), st.integers(0, 2**62), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1))
def test_records_built_one_by_one_equal_the_twin(records, producer, epoch, sequence):
    records = old_enough(records)
    builder, futures = build(records)
    assert futures == [("state", i) for i in range(len(records["values"]))]
    assert list(builder.timestamps) == records["timestamps"]
    data = builder.finish()
    seal_for(data, producer, epoch, sequence)
    wanted = twin.encode(**records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    assert data[HEADROOM:] == wanted
    assert not any(data[:HEADROOM])


@given(record_lists(), st.sampled_from(list(Codec)), st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_a_batch_that_is_given_to_another_producer_later_is_as_if_it_had_been_from_the_start(
    records, codec, producer, sequence
):
    builder, _ = build(old_enough(records))
    data = builder.finish(codec)
    once = bytearray(data)
    seal_for(once, producer, 3, sequence)
    for fields in ((producer // 2, 0, sequence // 3), (-1, -1, -1), (producer, 3, sequence)):
        seal_for(data, *fields)
        assert check(memoryview(data)[HEADROOM:])["producer_id"].tolist() == [fields[0]]
    assert data == once


@given(record_lists(), st.data())
def test_records_of_columns_join_those_before_them_and_equal_the_twin(records, data):
    records = old_enough(records)
    builder = BatchBuilder(tuple, "state", bytes_target=1 << 20)
    columns = (
        Column.gather(records["values"]),
        Column.gather(records["keys"]),
        pa.array(records["headers"], type=HEADERS),
    )
    times = np.array(records["timestamps"], dtype=np.int64)
    order = np.arange(len(times), dtype=np.int64)
    at = 0
    while at < len(times):
        stop = data.draw(st.integers(at + 1, len(times)))
        match data.draw(st.sampled_from(["one by one", "range", "rows"])):
            case "one by one":
                for row in range(at, stop):
                    assert builder.append(
                        *(records[name][row] for name in ("values", "keys", "timestamps", "headers"))
                    ) == ("state", row)
            case "range":
                few = builder.extend(*columns, timestamps=times, start=at, stop=stop, bytes_most=1 << 20)
                assert few == stop - at
            case "rows":
                few = builder.extend(
                    *columns, timestamps=times, start=at, stop=stop, rows=order, bytes_most=1 << 20
                )
                assert few == stop - at
        at = stop
    assert list(builder.timestamps) == records["timestamps"]
    made = builder.finish()
    seal_for(made, 7, 0, 5)
    assert made[HEADROOM:] == twin.encode(**records, producer_id=7, producer_epoch=0, base_sequence=5)


def test_columns_that_find_no_room_are_many_or_wrong_leave_the_batch_as_it_was():
    builder = BatchBuilder(tuple, None, bytes_target=1000)
    builder.append(b"first", None, 17, None)
    column = Column.gather([b"x" * 100] * 20)
    before = builder.nbytes
    assert builder.extend(column, None, None, timestamps=1, start=0, stop=9, bytes_most=5000) == NO_ROOM
    assert builder.extend(column, None, None, timestamps=1, start=0, stop=9, bytes_most=500) == NOT_FEW
    far = np.array([1, -(2**62), 2**62] + [0] * 17, dtype=np.int64)
    assert builder.extend(column, None, None, timestamps=far * 2, start=1, stop=3, bytes_most=5000) == NO_ROOM
    broken = Column(np.array([0, 5, 3], dtype=np.int32), b"12345")
    with pytest.raises(InvalidRequest, match="record 1: offsets"):
        builder.extend(broken, None, None, timestamps=1, start=0, stop=2, bytes_most=5000)
    with pytest.raises(InvalidRequest, match="the range"):
        builder.extend(column, None, None, timestamps=1, start=5, stop=5, bytes_most=5000)
    with pytest.raises(InvalidRequest, match="outside"):
        rows = np.array([0, 20])
        builder.extend(column, None, None, timestamps=1, start=0, stop=2, rows=rows, bytes_most=5000)
    assert (builder.count, builder.nbytes) == (1, before)
    assert builder.extend(column, None, None, timestamps=18, start=0, stop=2, bytes_most=5000) == 2
    data = builder.finish()
    seal_for(data, -1, -1, -1)
    assert [record.value for record in decode(bytes(data[HEADROOM:]))] == [b"first"] + [b"x" * 100] * 2


@given(record_lists(), st.sampled_from([codec for codec in Codec if codec is not Codec.NONE]))
def test_a_compressed_batch_holds_the_same_records(records, codec):
    records = old_enough(records)
    builder, _ = build(records)
    data = builder.finish(codec)
    seal_for(data, 7, 0, 0)
    batch = bytes(data[HEADROOM:])
    assert check(batch)["attributes"][0] & 7 == codec
    assert [record.value for record in decode(batch)] == records["values"]


def test_a_full_batch_refuses_the_next_record_and_stays_as_it_was():
    builder = BatchBuilder(tuple, None, bytes_target=1000)
    taken = 0
    while builder.append(b"x" * 90, None, 0, None) is not None:
        taken += 1
    assert builder.count == taken == 9
    assert builder.nbytes <= 1000
    assert len(builder.finish()) == builder.nbytes + HEADROOM


def test_a_first_record_larger_than_the_target_is_taken_and_one_past_the_bound_is_not():
    builder = BatchBuilder(tuple, None, bytes_target=100, bytes_max=1000)
    with pytest.raises(BatchTooLarge):
        builder.append(b"x" * 1000, None, 0, None)
    assert builder.append(b"x" * 500, None, 0, None) == (None, 0)
    assert builder.append(b"y", None, 0, None) is None


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ((17, None, 0, None), "value must be bytes, str or None, not int"),
        ((b"", 1.5, 0, None), "key must be bytes, str or None, not float"),
        ((b"", None, "now", None), "timestamp must be"),
        ((b"", None, 0, 17), "headers must be a dict"),
        ((b"", None, 0, [("a",)]), "headers must be a dict"),
        ((b"", None, 0, {1: b""}), "name must be a str"),
        ((b"", None, 0, {"a": 1}), "headers: a value must be"),
    ],
)
def test_a_wrong_type_is_named_and_leaves_the_batch_as_it_was(record, said):
    builder = BatchBuilder(tuple, None, bytes_target=1000)
    builder.append(b"good", None, 0, None)
    with pytest.raises(TypeError, match=said):
        builder.append(*record)
    assert builder.count == 1
    data = builder.finish()
    seal_for(data, -1, -1, -1)
    assert [one.value for one in decode(bytes(data[HEADROOM:]))] == [b"good"]


def test_any_buffer_is_a_value():
    builder = BatchBuilder(tuple, None, bytes_target=10_000)
    for value in (b"ab", bytearray(b"ab"), memoryview(b"ab"), np.frombuffer(b"ab", dtype=np.uint8), "ab"):
        builder.append(value, value, 0, [("h", value)])
    data = builder.finish()
    seal_for(data, -1, -1, -1)
    seen = {(one.key, one.value, one.headers[0][1]) for one in decode(bytes(data[HEADROOM:]))}
    assert seen == {(b"ab", b"ab", b"ab")}


def test_a_batch_is_finished_once():
    builder = BatchBuilder(tuple, None, bytes_target=1000)
    with pytest.raises(ValueError, match="no batch"):
        builder.finish()
    builder.append(b"", None, 0, None)
    builder.finish()
    with pytest.raises(ValueError, match="no batch"):
        builder.finish()


@pytest.mark.parametrize("end", [BatchBuilder.close, BatchBuilder.finish])
def test_a_batch_that_is_closed_or_finished_takes_no_more_records(end):
    builder = BatchBuilder(tuple, None, bytes_target=1000)
    builder.append(b"", None, 0, None)
    end(builder)
    assert builder.append(b"", None, 0, None) is None
    columns = (Column.of([b""]), None, None)
    assert builder.extend(*columns, timestamps=0, start=0, stop=1, bytes_most=1000) == NO_ROOM
    assert builder.count == 1


@given(items)
def test_a_gathered_column_has_the_items(things):
    assert list(Column.gather(things)) == [plain(item) for item in things]


@given(record_lists(), st.integers(100, 400), st.data())
def test_columns_are_cut_into_batches_that_hold_the_chosen_rows(records, target, data):
    count = len(records["values"])
    rows = data.draw(st.none() | st.lists(st.integers(0, count - 1), min_size=1).map(np.array))
    wanted = list(range(count)) if rows is None else rows.tolist()
    columns = [Column.of(records["values"]), Column.of(records["keys"])]
    at, seen = 0, []
    while at < len(wanted):
        cut = cut_columns(
            *columns, None, timestamps=5, start=at, stop=len(wanted), bytes_target=target, rows=rows
        )
        seal_for(cut.data, -1, -1, -1)
        some = wanted[at : cut.stop]
        expected = twin.encode(
            [records["values"][i] for i in some],
            [records["keys"][i] for i in some],
            [[]] * len(some),
            [5] * len(some),
        )
        assert cut.data[HEADROOM:] == expected
        assert cut.count == 1 or len(cut.data) - HEADROOM <= target
        seen += some
        at = cut.stop
    assert seen == wanted


@pytest.mark.parametrize("row", [-1, 3, 2**40])
def test_a_row_outside_the_columns_is_refused(row):
    with pytest.raises(InvalidRequest, match="rows"):
        cut_columns(
            Column.of([b"a", b"b", b"c"]),
            None,
            None,
            timestamps=0,
            start=0,
            stop=1,
            bytes_target=1000,
            rows=np.array([row]),
        )


@given(st.lists(st.one_of(st.none(), st.binary(max_size=20))), st.integers(1, 50))
def test_partitions_of_a_key_column_are_those_of_its_keys(keys, partitions):
    wanted = [-1 if key is None else partition_for(key, partitions) for key in keys]
    assert key_partitions(Column.of(keys), partitions).tolist() == wanted
    assert key_partitions(pa.array(keys, type=pa.large_binary()), partitions).tolist() == wanted


def test_a_record_beyond_every_batch_is_called_so_whoever_takes_it():
    column = Column.gather([bytes(65 << 20)], "values")
    taken = {"timestamps": 1, "start": 0, "stop": 1}
    with pytest.raises(BatchTooLarge, match=r"^one record takes more than \d+ bytes\. Send it in parts$"):
        cut_columns(column, None, None, bytes_target=1024, **taken)
    with pytest.raises(BatchTooLarge, match=r"^one record takes more than \d+ bytes\. Send it in parts$"):
        BatchBuilder(tuple, None, bytes_target=1024).extend(column, None, None, bytes_most=500, **taken)


def test_a_batch_that_is_closed_says_what_it_has():
    builder = BatchBuilder(tuple, "state", bytes_target=1000)
    for at_ms in (17, 5):
        builder.append(b"x" * 10, None, at_ms, None)
    count, nbytes, timestamps = builder.close()
    assert (count, nbytes, list(timestamps)) == (2, builder.nbytes, [17, 5])
    assert builder.append(b"x", None, 17, None) is None
