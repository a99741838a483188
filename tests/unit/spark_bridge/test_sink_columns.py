"""Rows of Arrow batches reach the topic and partition that their columns say, in their order, none lost or made up."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlog.errors import InvalidRequest
from ringlog.limits import SINK_GATHER_BYTES
from spark_bridge.sink_columns import gathered, rows_of

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.one_of(st.none(), st.integers(0, 5)),
            st.one_of(st.none(), st.binary(max_size=3)),
        ),
        min_size=1,
        max_size=60,
    )
)
def test_each_row_goes_once_to_its_topic_and_partition_and_keeps_its_order_there(rows):
    batch = pa.record_batch(
        {
            "topic": pa.array([row[0] for row in rows]),
            "partition": pa.array([row[1] for row in rows], pa.int32()),
            "key": pa.array([row[2] for row in rows], pa.binary()),
            "value": pa.array([str(number) for number in range(len(rows))]),
        }
    )
    expected = defaultdict(list)
    for number, (topic, partition, key) in enumerate(rows):
        expected[topic, partition].append((key, str(number)))
    found = {
        (part.topic, part.partition): list(zip(part.keys.to_pylist(), part.values.to_pylist(), strict=True))
        for part in rows_of(batch, None, NOW_MS)
    }
    assert found == expected


def test_the_option_wins_over_the_column_topic():
    batch = pa.record_batch({"topic": ["a", "b"], "value": ["x", "y"]})
    assert [(part.topic, len(part)) for part in rows_of(batch, "c", NOW_MS)] == [("c", 2)]


def test_one_place_for_all_rows_copies_nothing():
    batch = pa.record_batch({"topic": ["a"] * 3, "value": ["x", "y", "z"]})
    (part,) = rows_of(batch, None, NOW_MS)
    assert part.values.buffers()[2].address == batch.column("value").buffers()[2].address


def test_headers_and_times_stay_with_their_rows():
    batch = pa.record_batch(
        {
            "value": ["x", "y", "z"],
            "partition": pa.array([1, 0, 1], pa.int32()),
            "headers": pa.array([[("h", b"1")], None, [("h", b"3"), ("h", None)]], HEADERS),
            "timestamp": pa.array([1_500, None, -1], pa.timestamp("us", tz="UTC")),
        }
    )
    parts = {part.partition: part for part in rows_of(batch, "t", NOW_MS)}
    assert parts[1].headers.to_pylist() == [
        [{"key": "h", "value": b"1"}],
        [{"key": "h", "value": b"3"}, {"key": "h", "value": None}],
    ]
    assert parts[1].timestamps.tolist() == [1, -1], "the millisecond that a time lies in, also before 1970"
    assert parts[0].timestamps.tolist() == [NOW_MS], "without a time: now"


@pytest.mark.parametrize("partition", [-1, -7])
def test_a_partition_below_zero_is_refused(partition):
    batch = pa.record_batch({"value": ["x"], "partition": pa.array([partition], pa.int32())})
    with pytest.raises(InvalidRequest, match="they begin at 0"):
        list(rows_of(batch, "t", NOW_MS))


def test_a_partition_of_minus_one_is_refused_beside_null_too():
    batch = pa.record_batch({"value": ["x", "y"], "partition": pa.array([-1, None], pa.int32())})
    with pytest.raises(InvalidRequest, match="they begin at 0"):
        list(rows_of(batch, "t", NOW_MS))


def test_a_row_without_a_topic_is_refused():
    batch = pa.record_batch({"topic": ["a", None], "value": ["x", "y"]})
    with pytest.raises(InvalidRequest, match="1 of 2 rows have no topic"):
        list(rows_of(batch, None, NOW_MS))


def test_small_batches_with_keys_are_joined_and_lose_no_row():
    size = SINK_GATHER_BYTES // 4
    batches = [pa.record_batch({"key": [str(n)], "value": ["x" * size]}) for n in range(10)]
    joined = list(gathered([*batches[:5], batches[0].slice(0, 0), *batches[5:]]))
    assert [batch.num_rows for batch in joined] == [4, 4, 2]
    assert [key for batch in joined for key in batch.column("key").to_pylist()] == [str(n) for n in range(10)]


def test_batches_that_nothing_divides_are_sent_as_they_come():
    batches = [pa.record_batch({"value": ["x"]}), pa.record_batch({"value": ["y"]})]
    assert list(gathered(batches)) == batches
