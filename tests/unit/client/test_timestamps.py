"""Times of records: what one record may not have, many may not have either, and nothing is cut to fit."""

from __future__ import annotations

import array
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from ringlog import Producer
from ringlog.errors import InvalidRequest
from ringlog.records.decode import decode
from tests.support.router import RouterNode


@pytest.fixture
def node():
    with RouterNode(partitions=1) as made:
        yield made


@pytest.fixture
def producer(node):
    with Producer(node.bootstrap) as made:
        yield made


def times(node) -> list[int]:
    return [record.timestamp for batch in node.logs[100].batches for record in decode(batch)]


@pytest.mark.parametrize("wrong", [-1, 1.5, 2**63, "soon", float("nan")])
def test_one_and_many_refuse_the_same_times(producer, wrong):
    with pytest.raises(InvalidRequest, match="timestamp"):
        producer.produce("t", b"v", timestamp=wrong)
    for form in (wrong, [wrong], (1, wrong), [wrong] * 40_000):
        with pytest.raises(InvalidRequest, match="timestamp"):
            producer.produce_many(
                "t", [b"v"] * (len(form) if isinstance(form, list | tuple) else 1), timestamps=form
            )


@pytest.mark.parametrize(
    "wrong",
    [
        np.array([1.5]),
        np.array([-1]),
        np.array([2**63], dtype=np.uint64),
        np.array(["NaT"], dtype="datetime64[ms]"),
        np.array(["1969-12-31"], dtype="datetime64[s]"),
        np.array([None]),
        pa.array([-1], pa.int64()),
        pa.array([1.5]),
        pa.array([None], pa.int64()),
        pa.array([-1], pa.timestamp("ms")),
        pa.chunked_array([pa.array([], pa.int64()), pa.array([-1], pa.int64())]),
        array.array("d", [1.5]),
        [datetime(2026, 11, 17, tzinfo=UTC)],
    ],
)
def test_columns_of_times_that_no_record_can_have_are_refused(producer, wrong):
    with pytest.raises(InvalidRequest, match="timestamp"):
        producer.produce_many("t", [b"v"], timestamps=wrong)


@pytest.mark.parametrize(
    "form",
    [
        lambda ms: [ms],
        lambda ms: (np.int64(ms),),
        lambda ms: ms,
        lambda ms: np.int64(ms),
        lambda ms: np.array([ms], dtype=np.uint64),
        lambda ms: np.array([ms], dtype="datetime64[ms]"),
        lambda ms: np.array([ms * 1000], dtype="datetime64[us]"),
        lambda ms: array.array("q", [ms]),
        lambda ms: pa.array([ms], pa.int64()),
        lambda ms: pa.array([ms], pa.timestamp("ms", tz="UTC")),
        lambda ms: pa.chunked_array([pa.array([ms], pa.int64())]),
    ],
)
@pytest.mark.parametrize("ms", [0, 1_700_000_000_123])
def test_every_form_of_a_time_arrives_as_it_was(node, producer, form, ms):
    producer.produce_many("t", [b"v"], timestamps=form(ms)).result(5)
    assert times(node) == [ms]


def test_times_in_pieces_arrive_with_a_list_of_values(node, producer):
    pieces = pa.chunked_array([pa.array([1, 2], pa.int64()), pa.array([3], pa.int64())])
    producer.produce_many("t", [b"a", b"b", b"c"], timestamps=pieces).result(5)
    assert times(node) == [1, 2, 3]


def test_no_times_for_no_records(producer):
    assert producer.produce_many("t", [], timestamps=[]).result(5) == []
    assert producer.produce_many("t", [], timestamps=pa.chunked_array([], pa.int64())).result(5) == []
