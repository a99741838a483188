"""Turns what `ringlog produce` reads into chunks of records. Pure: bytes in, columns out.

Lines are split and handed on as they come, whole chunks at a time; without keys and headers no line is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from cli.byte_text import bytes_of_json, line_text

Headers = list[tuple[str, bytes]]


class BadLine(ValueError):
    """A line that is no record; the message names it. What stands before it has been handed on."""


@dataclass(slots=True)
class Chunk:
    """Records in their order, as columns. A column that is None is the same for all of them: not given."""

    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    headers: list[Headers] | None = None
    timestamps: list[int] | None = None
    partition: int | None = None


def lines_of(pieces: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The whole lines of each piece, without their ends; at last the line that has no end.

    >>> list(lines_of([b"a\\nb", b"c\\n", b"d"]))
    [[b'a'], [b'bc'], [b'd']]
    """
    begun: list[bytes] = []
    for piece in pieces:
        lines = piece.split(b"\n")
        if len(lines) == 1:
            begun += [piece] if piece else []  # still the same line: joined once, when it ends
            continue
        if begun:
            begun.append(lines[0])
            lines[0] = b"".join(begun)
        rest = lines.pop()
        begun = [rest] if rest else []
        yield lines
    if begun:
        yield [b"".join(begun)]


def plain_chunks(
    line_lists: Iterable[list[bytes]],
    *,
    key_separator: bytes | None = None,
    headers: Headers | None = None,
    partition: int | None = None,
) -> Iterator[Chunk]:
    """Each line is a value, or with a separator a key and a value.

    >>> chunk = next(plain_chunks([[b"hall:on", b"yard:off"]], key_separator=b":"))
    >>> chunk.keys, chunk.values
    ([b'hall', b'yard'], [b'on', b'off'])
    """
    number = 1
    for lines in line_lists:
        chunk = Chunk(list(lines), partition=partition)
        bad_at: int | None = None
        if key_separator is not None:
            parts = [line.partition(key_separator) for line in lines]
            bad_at = next((at for at, (_, found, _) in enumerate(parts) if not found), None)
            chunk.keys = [part[0] for part in parts[:bad_at]]
            chunk.values = [part[2] for part in parts[:bad_at]]
        if headers:
            chunk.headers = [headers] * len(chunk.values)
        if chunk.values:
            yield chunk
        if key_separator is not None and bad_at is not None:
            raise BadLine(f"line {number + bad_at} has no {line_text(key_separator)!r} that ends its key")
        number += len(lines)


class JsonRecord(msgspec.Struct, forbid_unknown_fields=True):
    """What a line of JSON may say of a record. A name that is none of these is an error: a value that was misspelt
    would be sent as null."""

    value: Any = None
    key: Any = None
    headers: dict[str, Any] | list[tuple[str, Any]] | None = None
    partition: int | None = None
    timestamp: int | None = None
    topic: str | None = None
    """Left aside, as is the offset: `ringlog consume --json` prints them."""
    offset: int | None = None


def json_chunks(
    line_lists: Iterable[list[bytes]],
    *,
    now_ms: Callable[[], int],
    headers: Headers | None = None,
    partition: int | None = None,
    by_key: bool = False,
) -> Iterator[Chunk]:
    """Each line is an object, as `ringlog consume --json` prints it. One chunk per partition that a piece names; with
    `by_key` what it names is left aside, as it is where the record stood in another topic.

    A record without a time gets the one of now when others beside it have theirs.

    >>> [chunk] = json_chunks([[b'{"key": "hall", "value": "on", "headers": {"by": "ann"}}']], now_ms=lambda: 5)
    >>> chunk.keys, chunk.values, chunk.headers
    ([b'hall'], [b'on'], [[('by', b'ann')]])
    """
    decoder = msgspec.json.Decoder(JsonRecord)
    number = 0
    for lines in line_lists:
        by_partition: dict[int | None, list[JsonRecord]] = {}
        bad: BadLine | None = None
        for line in lines:
            number += 1
            if not line or line.isspace():
                continue
            try:
                record = decoder.decode(line)
                record.key, record.value = bytes_of_json(record.key), bytes_of_json(record.value)
                record.headers = [*(headers or []), *_headers(record.headers)]
            except (msgspec.MsgspecError, ValueError) as wrong:
                bad = BadLine(f"line {number} is no record in JSON: {wrong}")
                break
            place = partition if by_key or record.partition is None else record.partition
            by_partition.setdefault(place, []).append(record)
        for place, records in by_partition.items():
            yield _chunk(records, place, now_ms)
        if bad is not None:
            raise bad


def _chunk(records: list[JsonRecord], partition: int | None, now_ms: Callable[[], int]) -> Chunk:
    times = [record.timestamp for record in records]
    has_times = any(time is not None for time in times)
    has_keys = any(record.key is not None for record in records)
    has_headers = any(record.headers for record in records)
    return Chunk(
        values=[record.value for record in records],
        keys=[record.key for record in records] if has_keys else None,
        headers=[record.headers for record in records] if has_headers else None,  # type: ignore[misc]
        timestamps=[now_ms() if time is None else time for time in times] if has_times else None,
        partition=partition,
    )


def _headers(given: dict[str, Any] | list[tuple[str, Any]] | None) -> Headers:
    if given is None:
        return []
    pairs = given.items() if isinstance(given, dict) else given
    return [(key, bytes_of_json(value)) for key, value in pairs]  # type: ignore[misc]
