"""Prints records as `ringlog consume` was asked to: by a format string with letters, or as JSON. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cli.byte_text import json_bytes, line_text, lines_text

Formatter = Callable[[Any], str]
BulkFormatter = Callable[[Sequence[Any]], str]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_TOKEN = re.compile(r"%(.?)|\\(.?)", re.DOTALL)


def iso_time(timestamp_ms: int) -> str:
    """A record's time in UTC; empty for none, and the number where no calendar has it.

    >>> iso_time(1_700_000_000_123), iso_time(-1), iso_time(2**62)
    ('2023-11-14T22:13:20.123Z', '', '4611686018427387904')
    """
    if timestamp_ms == -1:
        return ""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _headers_text(record: Any) -> str:
    return ",".join(f"{line_text(key.encode())}={line_text(value)}" for key, value in record.headers)


def _length(value: bytes | None) -> str:
    return "-1" if value is None else str(len(value))


LETTERS: dict[str, tuple[Formatter, str]] = {
    "o": (lambda r: str(r.offset), "offset"),
    "p": (lambda r: str(r.partition), "partition"),
    "t": (lambda r: str(r.topic), "topic"),
    "k": (lambda r: line_text(r.key), "key"),
    "v": (lambda r: line_text(r.value), "value"),
    "h": (_headers_text, "headers, as name=value,name=value"),
    "T": (lambda r: str(r.timestamp), "timestamp in milliseconds"),
    "i": (lambda r: iso_time(r.timestamp), "timestamp in ISO 8601, UTC"),
    "K": (lambda r: _length(r.key), "bytes of the key, -1 for null"),
    "V": (lambda r: _length(r.value), "bytes of the value, -1 for null"),
    "%": (lambda r: "%", "a percent sign"),
}


def compile_format(text: str) -> Formatter:
    r"""A function that prints a record, and ends its line. ValueError names a letter that there is none of.

    >>> from types import SimpleNamespace
    >>> compile_format(r"%o\t%k=%v (%V)")(SimpleNamespace(offset=7, key=b"hall", value=b"on"))
    '7\thall=on (2)\n'
    """
    parts: list[str] = []
    fields: list[Formatter] = []
    at = 0
    for token in _TOKEN.finditer(text):
        parts.append(text[at : token.start()].replace("%", "%%"))
        at = token.end()
        letter, escape = token.groups()
        if letter is not None:
            if letter not in LETTERS:
                known = " ".join(f"%{known}" for known in LETTERS)
                raise ValueError(f"%{letter} stands for nothing; there are {known}")
            parts.append("%s")
            fields.append(LETTERS[letter][0])
        elif escape in _ESCAPES:
            parts.append(_ESCAPES[escape])
        else:
            raise ValueError(
                f"\\{escape} stands for nothing; there are " + " ".join(f"\\{e}" for e in _ESCAPES)
            )
    parts.append(text[at:].replace("%", "%%") + "\n")
    template = "".join(parts)
    return lambda record: template % tuple(field(record) for field in fields)


def bulk_formatter(text: str | None, *, as_json: bool) -> BulkFormatter:
    """A function that prints many records: by a format, as JSON, or with neither the values alone, which is fastest."""
    if text is None and not as_json:
        return lambda records: lines_text([record.value for record in records])
    formatter = json_record if text is None else compile_format(text)
    return lambda records: "".join(map(formatter, records))


def json_record(record: Any) -> str:
    """A record as one line of JSON, which `ringlog produce --json` takes.

    >>> from types import SimpleNamespace
    >>> r = SimpleNamespace(topic="a", partition=0, offset=7, timestamp=5, key=None, value=b"on", headers=[])
    >>> print(json_record(r), end="")
    {"topic":"a","partition":0,"offset":7,"timestamp":5,"key":null,"value":"on","headers":[]}
    """
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[key, json_bytes(value)] for key, value in record.headers],
    }
    return msgspec.json.encode(fields).decode() + "\n"
