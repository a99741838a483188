"""Format strings and places to begin: what they may say, and what is said of wrong ones."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from cli.record_format import LETTERS, compile_format, json_record
from cli.start_point import StartKind, parse_start

RECORD = SimpleNamespace(
    topic="orders",
    partition=3,
    offset=42,
    timestamp=1_700_000_000_123,
    key=b"hall",
    value=b"\xff",
    headers=[("by", b"ann"), ("by", None)],
)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%o %k %v", "42 hall b'\\xff'"),
        ("%t-%p", "orders-3"),
        ("%T %i", "1700000000123 2023-11-14T22:13:20.123Z"),
        ("%K/%V", "4/1"),
        ("%h", "by=ann,by="),
        ("100%% \\t\\\\n", "100% \t\\n"),
        ("", ""),
        ("no letters 5%%", "no letters 5%"),
    ],
)
def test_letters_stand_for_parts_of_the_record(text, printed):
    assert compile_format(text)(RECORD) == printed + "\n"


@pytest.mark.parametrize("text", ["%x", "%", "\\q", "\\"])
def test_a_letter_that_stands_for_nothing_is_named(text):
    with pytest.raises(ValueError, match="stands for nothing"):
        compile_format(text)


def test_every_letter_is_in_the_help(run):
    text = run("consume", "--help").stdout
    for letter in LETTERS:
        assert f"%{letter}" in text


def test_json_has_every_part_of_the_record():
    assert json.loads(json_record(RECORD)) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_123,
        "key": "hall",
        "value": {"base64": "/w=="},
        "headers": [["by", "ann"], ["by", None]],
    }


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("beginning", StartKind.BEGINNING, 0),
        ("end", StartKind.END, 0),
        ("0", StartKind.OFFSET, 0),
        ("99999999999", StartKind.OFFSET, 99_999_999_999),
        ("1700000000123", StartKind.TIME, 1_700_000_000_123),
        ("2023-11-14T22:13:20.123+00:00", StartKind.TIME, 1_700_000_000_123),
        ("2023-11-14T23:13:20+01:00", StartKind.TIME, 1_700_000_000_000),
        ("time:5", StartKind.TIME, 5),
        ("time:2023-11-14T22:13:20Z", StartKind.TIME, 1_700_000_000_000),
        ("offset:1700000000123", StartKind.OFFSET, 1_700_000_000_123),
        ("time:9223372036854775807", StartKind.TIME, 2**63 - 1),
        ("1960-01-01T00:00:00Z", StartKind.TIME, 0),
    ],
)
def test_a_place_to_begin_is_a_word_an_offset_or_a_time(text, kind, value):
    assert parse_start(text) == (kind, value)


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "2023-13-01", "offset:x", "٣"])
def test_a_place_that_is_none_is_answered_with_those_there_are(text):
    with pytest.raises(ValueError, match="say beginning, end, an offset"):
        parse_start(text)


@pytest.mark.parametrize("text", ["time:9223372036854775808", "offset:9223372036854775808", "9" * 5000])
def test_a_number_that_no_log_could_have_is_named(text):
    with pytest.raises(ValueError, match="more than an offset or a time can be"):
        parse_start(text)
