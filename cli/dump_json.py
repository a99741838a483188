"""The JSON that scripts read: one object per line, each with its `type` and the `file` it comes from.

Bytes are strings where they are UTF-8 and `{"base64": ...}` where they are not, so that nothing is lost and
most of it can be read. Timestamps are milliseconds, −1 stands for none, as in the files.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cli.byte_text import json_bytes
from cli.printable import printable
from ringlog.log.dump import (
    Batch,
    IndexEntry,
    Line,
    MovedPoint,
    Owner,
    PartitionState,
    Preallocated,
    ProducerEntry,
    Record,
    SnapshotHead,
    TimeIndexEntry,
    Unreadable,
)


def json_line(path: str, line: Line) -> str:
    r"""One line of a dump.

    >>> line = json_line("a-0/00000000000000000000.log", Record(7, 0, None, b"\xff", [("unit", b"W")]))
    >>> line[line.index(chr(34) + "offset") :]
    '"offset":7,"timestamp":0,"key":null,"value":{"base64":"/w=="},"headers":[["unit","W"]]}\n'
    """
    kind, fields = _fields(line)
    return msgspec.json.encode({"type": kind, "file": printable(path), **fields}).decode() + "\n"


def _fields(line: Line) -> tuple[str, dict[str, Any]]:
    match line:
        case Batch():
            return "batch", {**line._asdict(), "codec": line.codec.name.lower()}
        case Record():
            headers = [[key, json_bytes(value)] for key, value in line.headers]
            return "record", {
                "offset": line.offset,
                "timestamp": line.timestamp,
                "key": json_bytes(line.key),
                "value": json_bytes(line.value),
                "headers": headers,
            }
        case Unreadable():
            return "broken", line._asdict()
        case Preallocated():
            return "preallocated", line._asdict()
        case IndexEntry():
            return "index_entry", line._asdict()
        case TimeIndexEntry():
            return "time_index_entry", line._asdict()
        case SnapshotHead():
            return "snapshot", line._asdict()
        case ProducerEntry():
            return "producer", _struct(line)
        case PartitionState():
            return "state", {**_struct(line), "epochs": [start._asdict() for start in line.epochs]}
        case Owner():
            return "owner", _struct(line)
        case MovedPoint():
            return "point", {
                **_struct(line),
                "epochs": [start._asdict() for start in line.epochs],
                "producers": json_bytes(line.producers),
            }


def _struct(value: Any) -> Any:
    """A structure as a JSON object, though its own encoding is an array."""
    if isinstance(value, msgspec.Struct):
        return {name: _struct(getattr(value, name)) for name in value.__struct_fields__}
    if type(value) is list:
        return [_struct(item) for item in value]
    return value
