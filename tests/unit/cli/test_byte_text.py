"""Bytes become text and back without loss."""

from __future__ import annotations

import ast
import json

from hypothesis import example, given
from hypothesis import strategies as st

from cli.byte_text import bytes_of_json, json_bytes, line_text, lines_text


@given(st.none() | st.binary())
@example(b"\xff")
@example(b'{"base64": "AA=="}')
def test_bytes_survive_json(value):
    assert bytes_of_json(json.loads(json.dumps(json_bytes(value)))) == value


@given(st.binary())
@example(b"b'x'")
@example(b'b"')
@example(b"\x1b[31m")
@example("süß\n".encode())
def test_bytes_survive_a_line(value):
    text = line_text(value)
    read_back = ast.literal_eval(text) if text.startswith(("b'", 'b"')) else text.encode()
    assert read_back == value


@given(st.binary())
def test_no_line_steers_a_terminal(value):
    assert not any(ord(letter) < 32 and letter not in "\t\n\r" for letter in line_text(value))


def test_common_text_is_shown_as_it_is():
    for text in ("on", "C:\\new", '{"a": "\\n"}', "süß", "a\tb", ""):
        assert line_text(text.encode()) == text


pieces = st.sampled_from(
    [b"on", b"b'", b'b"', b"\n", b"\t", b"\x1b", b"\xff", "ß".encode(), b"\xc3", b"\xc2\x85", b""]
)


@given(st.lists(st.none() | st.lists(pieces, max_size=4).map(b"".join), max_size=5))
def test_many_lines_are_what_each_would_be(values):
    assert lines_text(values) == "".join(line_text(value) + "\n" for value in values)
