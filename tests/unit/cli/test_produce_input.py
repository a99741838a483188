"""Input becomes records: every line once, in order, however it is cut into pieces."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.produce_input import BadLine, json_chunks, lines_of, plain_chunks


def read_json(*lines, **settings):
    encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return list(json_chunks([encoded], now_ms=lambda: 99, **settings))


@given(st.lists(st.text("ab\n", max_size=8).map(str.encode)))
def test_lines_do_not_depend_on_how_the_input_was_cut(pieces):
    whole = b"".join(pieces)
    expected = whole.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert [line for lines in lines_of(pieces) for line in lines] == expected


def test_a_key_ends_at_the_first_separator():
    [chunk] = plain_chunks([[b"a:b:c", b":x", b"y:"]], key_separator=b":")
    assert (chunk.keys, chunk.values) == ([b"a", b"", b"y"], [b"b:c", b"x", b""])


def test_a_line_without_its_separator_is_named():
    with pytest.raises(BadLine, match="line 3 has no '::'"):
        list(plain_chunks([[b"a::1", b"b::2"], [b"oops"]], key_separator=b"::"))


@pytest.mark.parametrize("headers", [None, [("by", b"ann")]])
def test_what_stands_before_a_bad_line_is_handed_on_first(headers):
    chunks = plain_chunks([[b"a:1", b"oops", b"b:2"]], key_separator=b":", headers=headers)
    assert next(chunks).values == [b"1"]
    with pytest.raises(BadLine, match="line 2"):
        next(chunks)


def test_json_before_a_bad_line_is_handed_on_first():
    chunks = json_chunks([[b'{"value":"1"}', b"oops", b'{"value":"2"}']], now_ms=lambda: 5)
    assert next(chunks).values == [b"1"]
    with pytest.raises(BadLine, match="line 2"):
        next(chunks)


def test_a_separator_that_is_no_text_is_shown_as_bytes():
    with pytest.raises(BadLine, match=r"line 1 has no .*xff"):
        list(plain_chunks([[b"oops"]], key_separator=b"\xff"))


def test_headers_and_partition_of_the_command_line_go_to_every_record():
    [chunk] = plain_chunks([[b"1", b"2"]], headers=[("by", b"ann")], partition=3)
    assert (chunk.headers, chunk.partition) == ([[("by", b"ann")]] * 2, 3)


def test_json_has_all_fields_of_a_record():
    [chunk] = read_json(
        {"key": "k", "value": {"base64": base64.b64encode(b"\xff").decode()}, "timestamp": 5, "partition": 2},
        {"key": None, "value": None, "headers": [["a", "1"], ["a", "2"]], "partition": 2},
        partition=7,
    )
    assert (chunk.keys, chunk.values) == ([b"k", None], [b"\xff", None])
    assert chunk.headers == [[], [("a", b"1"), ("a", b"2")]]
    assert (chunk.timestamps, chunk.partition) == ([5, 99], 2)


def test_json_records_are_grouped_by_partition_in_their_order():
    chunks = read_json({"value": "1", "partition": 0}, {"value": "2"}, {"value": "3", "partition": 0})
    assert [(chunk.partition, chunk.values) for chunk in chunks] == [(0, [b"1", b"3"]), (None, [b"2"])]


def test_columns_that_nobody_gave_are_left_out():
    [chunk] = read_json({"value": "1"}, {"value": {"watt": 40}})
    assert (chunk.keys, chunk.headers, chunk.timestamps) == (None, None, None)
    assert chunk.values == [b"1", b'{"watt":40}']


@pytest.mark.parametrize(
    "line",
    [
        b"hello",
        b"[1]",
        b'{"vlaue": "x"}',
        b'{"partition": "x"}',
        b'{"value": {"base64": "*"}}',
        b'{"headers": 5}',
        b"\xff",
    ],
)
def test_a_line_that_is_no_record_is_named(line):
    with pytest.raises(BadLine, match="line 2 is no record in JSON"):
        read_json({"value": "good"}, line)


def test_what_consume_prints_beside_the_record_is_left_aside():
    [chunk] = read_json({"value": "1", "topic": "orders", "offset": 7})
    assert chunk.values == [b"1"]
