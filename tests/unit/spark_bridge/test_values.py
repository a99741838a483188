"""Values as columns: JSON and Arrow, with nulls, and the record named that does not fit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

from ringlog.errors import BadValue
from ringlog.model import TopicPartition
from spark_bridge.values import arrow_values, json_values

TP = TopicPartition("orders", 3)
WANTED = pa.struct([("user", pa.string()), ("count", pa.int64())])


def parse(values, wanted=WANTED):
    found = pa.array(values, pa.binary())
    return json_values(found, wanted, TP, np.arange(100, 100 + len(values))).to_pylist()


def stream(**columns):
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_documents_become_structs():
    values = [b'{"user": "ann", "count": 1}', None, b'{"count": 2,\n "other": [1]}', b"{}", b"null"]
    assert parse(values) == [
        {"user": "ann", "count": 1},
        None,
        {"user": None, "count": 2},
        {"user": None, "count": None},
        None,
    ]
    assert parse([]) == []


def test_a_slice_of_values_is_parsed_alone():
    values = pa.array([b"bad", b'{"count": 5}', b"bad"], pa.binary()).slice(1, 1)
    assert json_values(values, WANTED, TP, np.arange(1)).to_pylist() == [{"user": None, "count": 5}]


def test_times_are_parsed_as_the_schema_says():
    wanted = pa.struct([("at", pa.timestamp("us", tz="UTC"))])
    (found,) = parse([b'{"at": "2026-01-02T03:04:05Z"}'], wanted)
    assert found["at"].isoformat() == "2026-01-02T03:04:05+00:00"


@pytest.mark.parametrize(
    "bad", [b"", b" ", b"{", b'{"count": "many"}', b'{"count": 1}{"count": 2}', b"[1]", b"\xff", b'{"a": 1}}']
)
def test_the_first_record_that_does_not_fit_is_named(bad):
    good = b'{"user": "ann", "count": 1}'
    with pytest.raises(BadValue, match="orders-3, offset 137"):
        parse([good] * 37 + [bad] + [good] * 20 + [b"bad"])


def test_an_arrow_value_is_as_many_rows_as_it_holds():
    values = pa.array(
        [stream(user=["a", "b"], count=[1, 2]), None, stream(count=[3], user=["c"])], pa.binary()
    )
    rows, records = arrow_values(values, WANTED, TP, np.arange(3))
    assert rows.to_pylist() == [
        {"user": "a", "count": 1},
        {"user": "b", "count": 2},
        None,
        {"user": "c", "count": 3},
    ]
    assert records.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize("bad", [b"", b"no arrow", stream(user=["a"]), stream(user=["a"], count=["b"])])
def test_an_arrow_value_of_another_kind_is_named(bad):
    with pytest.raises(BadValue, match="orders-3, offset 8"):
        arrow_values(pa.array([None, bad], pa.binary()), WANTED, TP, np.array([7, 8]))
