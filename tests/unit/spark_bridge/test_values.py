"""Values as columns: JSON and Arrow, with nulls, and the record named that does not fit."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

from ringlog.errors import BadValue, InvalidRequest
from ringlog.model import TopicPartition
from spark_bridge.bad_values import CORRUPT, DROP, NULL, BadValues
from spark_bridge.values import _is_json, arrow_values, json_values

TP = TopicPartition("orders", 3)
BAD = BadValues(TP)
WANTED = pa.struct([("user", pa.string()), ("count", pa.int64())])
WITH_CORRUPT = pa.struct([("count", pa.int64()), (CORRUPT, pa.string())])
GOOD = b'{"user": "ann", "count": 1}'
NO_DOCUMENTS = [
    b"",
    b" ",
    b"{",
    b'{"count": "many"}',
    b'{"count": 1}{"count": 2}',
    b'{}}\n{"v":{}',
    b"[1]",
    b"\xff",
    b'{"a": 1}}',
]


def parse(values, wanted=WANTED):
    found = pa.array(values, pa.binary())
    rows, records = json_values(found, wanted, BAD, np.arange(100, 100 + len(values)))
    assert records is None, "each record is a row"
    return rows.to_pylist()


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
    rows, _ = json_values(values, WANTED, BAD, np.arange(1))
    assert rows.to_pylist() == [{"user": None, "count": 5}]


def test_times_are_parsed_as_the_schema_says():
    wanted = pa.struct([("at", pa.timestamp("us", tz="UTC"))])
    (found,) = parse([b'{"at": "2026-01-02T03:04:05Z"}'], wanted)
    assert found["at"].isoformat() == "2026-01-02T03:04:05+00:00"


@pytest.mark.parametrize("bad", NO_DOCUMENTS)
def test_the_first_record_that_does_not_fit_is_named_and_what_to_do(bad):
    with pytest.raises(BadValue, match=r"orders-3, offset 137.*mode=PERMISSIVE.*mode=DROPMALFORMED"):
        parse([GOOD] * 37 + [bad] + [GOOD] * 20 + [b"bad"])


def lenient(mode, values, wanted=WANTED):
    """Rows, and which records they are of."""
    found = pa.array(values, pa.binary())
    rows, records = json_values(found, wanted, BadValues(TP, mode), np.arange(100, 100 + len(values)))
    return rows.to_pylist(), list(range(len(values))) if records is None else records.tolist()


MIXED = [part for bad in NO_DOCUMENTS for part in (GOOD, None, bad, bad)]


def test_documents_that_do_not_fit_are_null_if_that_is_wanted(caplog):
    rows, records = lenient(NULL, MIXED)
    assert records == list(range(len(MIXED)))
    assert rows == [{"user": "ann", "count": 1} if value == GOOD else None for value in MIXED]
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith(
        "orders-3: 18 values are no JSON of the columns in valueSchema, the first at offset 102"
    )


def test_documents_that_do_not_fit_are_left_out_if_that_is_wanted(caplog):
    rows, records = lenient(DROP, MIXED)
    assert records == [at for at, value in enumerate(MIXED) if value in (GOOD, None)]
    assert rows == [{"user": "ann", "count": 1}, None] * len(NO_DOCUMENTS), "a null is no bad document"
    assert "their rows are left out" in caplog.text


@pytest.mark.parametrize("mode", [NULL, DROP])
def test_a_topic_of_nothing_but_bad_documents_is_read(mode):
    rows, records = lenient(mode, [b"no json"] * 3000)
    assert (rows, len(records)) == (([None] * 3000, 3000) if mode == NULL else ([], 0))


@pytest.mark.parametrize("mode", [NULL, DROP])
def test_good_documents_are_the_same_rows_in_every_mode(mode, caplog):
    values = [GOOD, None, b'{"count": 2}']
    assert lenient(mode, values) == (parse(values), [0, 1, 2])
    assert not caplog.records


def test_the_text_of_a_bad_document_is_kept_where_the_schema_has_a_place_for_it():
    values = [b'{"count": 1, "_corrupt_record": "no"}', None, b"bad \xff", b'{"count": "x"}']
    assert lenient(NULL, values, WITH_CORRUPT) == (
        [
            {"count": 1, CORRUPT: None},
            None,
            {"count": None, CORRUPT: "bad \ufffd"},
            {"count": None, CORRUPT: '{"count": "x"}'},
        ],
        [0, 1, 2, 3],
    )
    assert lenient(DROP, values, WITH_CORRUPT) == ([{"count": 1, CORRUPT: None}, None], [0, 1])
    assert parse(values[:2], WITH_CORRUPT) == [{"count": 1, CORRUPT: None}, None]


def test_the_quick_look_refuses_nothing_that_arrow_would_take():
    """Otherwise what becomes of a value would depend on those that are read with it."""
    rng = random.Random(1)
    seeds = [
        b'{"count": 1, "user": "x\\u00e9\\n\\"y"}',
        b'{"o": [1, 2.5e-3, true, null, {"q": []}], "count": -7, "x": 1E400}',
        b' {"user":"\xc3\xa9\\ud83d"}\n',
        b'{"z":' + b"[" * 3000 + b"]" * 3000 + b"}",
    ]
    parts = [
        b"{",
        b"}",
        b"[",
        b",",
        b":",
        b'"',
        b"\\",
        b"\n",
        b"\0",
        b"0",
        b"-",
        b".",
        b"NaN",
        b"\xff",
        b"//",
    ]
    refused = 0
    for number in range(200):
        text = bytearray(seeds[number % len(seeds)])
        for _ in range(rng.randrange(3)):
            at = rng.randrange(min(len(text), 60))
            text[at : at + rng.randrange(2)] = rng.choice(parts)
        if not _is_json(bytes(text)):
            refused += 1
            with pytest.raises(BadValue):
                parse([bytes(text)])
    assert refused > 30


@pytest.mark.parametrize("mode", [NULL, DROP])
def test_a_schema_that_no_document_can_be_read_by_is_an_error_in_every_mode(mode):
    wanted = pa.struct([("tags", pa.map_(pa.string(), pa.int64()))])
    with pytest.raises(InvalidRequest, match=r"valueSchema.*map.*from_json"):
        lenient(mode, [b'{"tags": {"a": 1}}'], wanted)


def test_an_arrow_value_is_as_many_rows_as_it_holds():
    values = pa.array(
        [stream(user=["a", "b"], count=[1, 2]), None, stream(count=[3], user=["c"])], pa.binary()
    )
    rows, records = arrow_values(values, WANTED, BAD, np.arange(3))
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
        arrow_values(pa.array([None, bad], pa.binary()), WANTED, BAD, np.array([7, 8]))


def test_arrow_values_of_another_kind_are_null_or_left_out_if_that_is_wanted(caplog):
    values = pa.array([b"bad", stream(user=["a", "b"], count=[1, 2]), None, b"bad"], pa.binary())
    good = [{"user": "a", "count": 1}, {"user": "b", "count": 2}, None]
    rows, records = arrow_values(values, WANTED, BadValues(TP, NULL), np.arange(4))
    assert (rows.to_pylist(), records.tolist()) == ([None, *good, None], [0, 1, 1, 2, 3])
    rows, records = arrow_values(values, WANTED, BadValues(TP, DROP), np.arange(4))
    assert (rows.to_pylist(), records.tolist()) == (good, [1, 1, 2])
    assert caplog.text.count("2 values are no Arrow stream") == 2
